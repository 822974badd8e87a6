//! Translated configurations serve as the original programs do: HAProxy and nginx run a file, Tidegate its translation.
//! nginx sends requests in HTTP/1.0, which is not compared.
//! In: the example of docs/convert.md, and a file of nginx. Out: the same statuses, redirects and requests at the servers.

use std::net::SocketAddr;
use std::path::Path;

use tidegate_testing::{command, run};

use crate::cookbook::start_mirror;
use crate::gate::Gate;
use crate::process::{Folder, Process, free_address, program, run_well, text};
use crate::requests::curl;

/// The files of nginx that the test runs.
const NGINX: &str = "\
server {
    listen 127.0.0.1:8080;
    server_name a.example.com;
    if ($request_method = DELETE) { return 405; }
    proxy_set_header Host $host;
    proxy_set_header X-Real-IP $remote_addr;
    location / { proxy_pass http://127.0.0.1:8001; }
    location /api/ { proxy_pass http://127.0.0.1:8000/v1/; }
    location = /one { proxy_pass http://127.0.0.1:8000/two; }
    location /sub/ { rewrite ^/sub/(.*)$ /other/$1 break; proxy_pass http://127.0.0.1:8000; }
    location /private/ { allow 10.0.0.0/8; deny all; proxy_pass http://127.0.0.1:8000; }
    location = /health { return 200 \"well\\n\"; }
    location /moved/ { return 308 https://new.example.com$request_uri; }
}
server {
    listen 127.0.0.1:8080 default_server;
    return 404;
}
";

/// Requests: the arguments of curl and the path.
const REQUESTS: &[(&[&str], &str)] = &[
    (&[], "/"),
    (&[], "/api/users?page=2"),
    (&["-H", "X-Real-IP: 192.0.2.1"], "/api/"),
    (&["-X", "POST", "-d", "a"], "/other/x"),
    (&["-X", "DELETE"], "/x"),
    (&["-H", "Host: old.example.com"], "/x?y=z"),
    (&["-H", "Host: www.example.com"], "/admin/users"),
    (&[], "/admin/users"),
    (&[], "/one"),
    (&[], "/sub/a/b?c"),
    (&[], "/private/x"),
    (&[], "/health"),
    (&[], "/moved/x?y"),
];

/// What a request does: its status and its target if it is redirected, and what the server received.
fn outcome(address: SocketAddr, arguments: &[&str], path: &str) -> Vec<String> {
    let mut command = curl();
    if !arguments.iter().any(|argument| argument.starts_with("Host:")) {
        command.args(["-H", "Host: a.example.com"]);
    }
    command.args(arguments);
    command.args(["-w", "\n%{http_code} %{redirect_url}"]).arg(format!("http://{address}{path}"));
    let printed = text(&run(&mut command).stdout);
    let (body, result) = printed.rsplit_once('\n').expect("curl prints the status");
    let known = ["host:", "x-real-ip:", "served by", "content-length:"];
    let mut lines: Vec<String> = body
        .lines()
        .enumerate()
        .filter(|(at, line)| {
            let line = line.to_ascii_lowercase();
            *at == 0 && line.contains(" http/1.")
                || known.iter().any(|known| line.starts_with(known))
        })
        .map(|(_, line)| line.trim_end().to_ascii_lowercase().replace(" http/1.0", " http/1.1"))
        .collect();
    lines.sort();
    lines.push(result.to_owned());
    lines
}

/// Compares the program at `original` with Tidegate, which runs the translation of `content`.
fn compare(folder: &Folder, name: &str, content: &str, original: SocketAddr) {
    let file = folder.file(name, content.replace("127.0.0.1:8080", "127.0.0.1:0"));
    let mut convert = command(env!("CARGO_BIN_EXE_tidegate"));
    let toml = text(&run(convert.args(["convert", &file])).stdout);
    let gate = Gate::start(folder, &toml);
    let mut statuses = std::collections::BTreeSet::new();
    for (arguments, path) in REQUESTS {
        let expected = outcome(original, arguments, path);
        let found = outcome(gate.address(), arguments, path);
        assert_eq!(found, expected, "{name}: {arguments:?} {path}\n{toml}");
        statuses.insert(expected.last().cloned().unwrap_or_default()[..3].to_owned());
    }
    assert!(statuses.len() >= 3, "{name}: the requests show only {statuses:?}");
}

/// `content` with the addresses of real servers.
fn with_servers(content: &str) -> String {
    let servers =
        [("127.0.0.1:8000", start_mirror("one")), ("127.0.0.1:8001", start_mirror("two"))];
    servers.iter().fold(content.to_owned(), |content, (written, real)| {
        content.replace(written, &real.to_string())
    })
}

/// The block of docs/convert.md in this language.
fn documented(language: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/convert.md");
    let document = std::fs::read_to_string(&path).expect("the document exists");
    let (_, rest) = document.split_once(&format!("```{language}\n")).expect("the block exists");
    rest.split("```").next().unwrap_or_default().to_owned()
}

#[test]
fn translated_file_of_haproxy_serves_as_haproxy_does() {
    let folder = Folder::new("convert-haproxy");
    let content = with_servers(&documented("haproxy"));
    let address = free_address();
    let own = folder.file("original.cfg", content.replace("127.0.0.1:8080", &address.to_string()));
    let mut haproxy = command(program("haproxy", "haproxy"));
    let mut process = Process::spawn(haproxy.args(["-db", "-q", "-f", &own]));
    process.wait_for_listener(address);
    compare(&folder, "haproxy.cfg", &content, address);
}

#[test]
fn translated_file_of_nginx_serves_as_nginx_does() {
    let folder = Folder::new("convert-nginx");
    let content = with_servers(NGINX);
    let address = free_address();
    let temporary = folder.path().display();
    let whole = format!(
        "daemon off;\nmaster_process off;\npid {temporary}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n\
         client_body_temp_path {temporary}/body;\nproxy_temp_path {temporary}/proxy;\n\
         fastcgi_temp_path {temporary}/fastcgi;\nuwsgi_temp_path {temporary}/uwsgi;\nscgi_temp_path {temporary}/scgi;\n{}\n}}\n",
        content.replace("127.0.0.1:8080", &address.to_string())
    );
    let own = folder.file("original.conf", whole);
    let mut nginx = command(program("nginx", "nginx-light"));
    let mut process =
        Process::spawn(nginx.args(["-e", &folder.join("nginx-error.log"), "-c", &own]));
    process.wait_for_listener(address);
    compare(&folder, "nginx.conf", &content, address);
}

#[test]
fn example_of_the_document_is_what_convert_prints() {
    let folder = Folder::new("convert-document");
    folder.file("haproxy.cfg", documented("haproxy"));
    let mut convert = command(env!("CARGO_BIN_EXE_tidegate"));
    let output = run(convert.current_dir(folder.path()).args(["convert", "haproxy.cfg"]));
    assert_eq!(text(&output.stdout), documented("toml"), "{}", text(&output.stdout));
    assert_eq!(output.status.code(), Some(1));
    let summary = text(&output.stderr);
    assert!(
        summary.contains("haproxy.cfg:16: not translated: compression algo gzip\n"),
        "{summary}"
    );
    assert!(
        summary.ends_with("1 not translated, 0 translated with a difference, 1 not needed\n"),
        "{summary}"
    );
    let file = folder.file("tidegate.toml", &output.stdout);
    let mut check = command(env!("CARGO_BIN_EXE_tidegate"));
    assert!(run_well(check.args(["check", &file])).contains(": ok, "));
    // Other inputs: stdin, no program, no file.
    let none = folder.file("none.txt", "hello\n");
    for (arguments, why) in [
        (&["convert", &none][..], "not recognized as a configuration of HAProxy or nginx"),
        (&["convert", "/nonexistent"], "No such file"),
    ] {
        let output = run(command(env!("CARGO_BIN_EXE_tidegate")).args(arguments));
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
    let whole = folder.file(
        "whole.cfg",
        "frontend a\nmode http\nbind 127.0.0.1:0\nhttp-request return status 200\n",
    );
    let output =
        run(command(env!("CARGO_BIN_EXE_tidegate")).args(["convert", "--from", "haproxy", &whole]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
