//! The examples of the documentation work as described: configurations of README.md and docs/, the embedded page.
//! In: the documents, with their addresses replaced by free ones. Out: the responses that the documents describe.

use std::path::Path;

use crate::gate::Gate;
use crate::origins::{FileServer, Nginx};
use crate::process::{Folder, free_address, run_well};
use crate::requests::curl;

/// The first TOML block after `heading` in a document.
fn example(document: &str, heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = std::fs::read_to_string(&path).expect("the document exists");
    let (_, rest) = text.split_once(heading).unwrap_or_else(|| panic!("{document}: {heading}"));
    let (_, block) = rest.split_once("```toml\n").expect("a TOML block follows");
    block.split("```").next().unwrap_or_default().to_owned()
}

fn exchange(text: &str, from: &str, to: impl std::fmt::Display) -> String {
    assert!(text.contains(from), "{from} is not in\n{text}");
    text.replace(from, &to.to_string())
}

#[test]
fn readme_example_serves_the_python_file_server() {
    let folder = Folder::new("readme");
    folder.file("index.html", "<p>hello from python");
    let server = FileServer::start(&folder);
    let config = example("README.md", "## Your first file");
    let config = exchange(&config, "0.0.0.0:8080", "127.0.0.1:0");
    let gate = Gate::start(&folder, &exchange(&config, "127.0.0.1:8000", server.address));
    assert_eq!(run_well(curl().arg(gate.url("/"))), "<p>hello from python");
}

#[test]
fn getting_started_example_routes_to_nginx_and_python_by_path() {
    let folder = Folder::new("started");
    let nginx = Nginx::start(&folder);
    nginx.file(&folder, "index.html", "<p>hello from nginx");
    let api = Folder::new("started-api");
    std::fs::create_dir_all(api.path().join("api")).expect("a folder can be made");
    api.file("api/users.json", "[]");
    let server = FileServer::start(&api);
    let config = example("docs/getting-started.md", "## Two servers, one address");
    let config = exchange(&config, "0.0.0.0:8080", "127.0.0.1:0");
    let config = exchange(&config, "127.0.0.1:8000", server.address);
    let gate = Gate::start(&folder, &exchange(&config, "127.0.0.1:8081", nginx.address));
    assert_eq!(run_well(curl().arg(gate.url("/"))), "<p>hello from nginx");
    assert_eq!(run_well(curl().arg(gate.url("/api/users.json"))), "[]");
    assert_eq!(run_well(curl().arg(gate.url("/healthz"))), "ok\n");
}

#[test]
fn embedded_configuration_serves_every_path_of_its_page() {
    let folder = Folder::new("embedded");
    // In a file, `${` begins a reference.
    let text = tidegate_config::embedded_text().replace("${", "$${");
    let gate = Gate::start(&folder, &exchange(&text, "127.0.0.1:8080", free_address()));
    let page = run_well(curl().arg(gate.url("/")));
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>"), "{page}");
    let status = ["-o", "/dev/null", "-w", "%{http_code}"];
    let links: Vec<&str> = page.split("href=\"/").skip(1).collect();
    assert!(links.len() >= 10, "{links:?}");
    for link in links {
        let path = format!("/{}", link.split('"').next().unwrap_or_default());
        assert_eq!(run_well(curl().args(status).arg(gate.url(&path))), "200", "{path}");
    }
    assert_eq!(run_well(curl().arg(gate.url("/json"))), "{\"message\":\"Hello, World!\"}");
    assert_eq!(run_well(curl().arg(gate.url("/plaintext"))), "Hello, World!");
    let proxied = run_well(curl().arg(gate.url("/proxied/json")));
    assert_eq!(proxied, "{\"message\":\"Hello from the origin, through the proxy!\"}");
    let unknown = run_well(curl().args(status).arg(gate.url("/proxied/unknown")));
    assert_eq!(unknown, "404", "the request is forwarded once");
    let sizes = ["-o", "/dev/null", "-w", "%{http_code} %{size_download}"];
    for path in ["/synthetic?s=20k&t=50", "/proxied/synthetic?s=20k&c=1"] {
        let printed = run_well(curl().args(sizes).arg(gate.url(path)));
        assert!(printed.starts_with("200 20"), "{path}: {printed}");
    }
}
