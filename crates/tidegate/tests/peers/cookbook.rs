//! Each recipe of docs/cookbook.md works with curl and `tidegate ctl` as the document shows.
//! In: the recipes: files, a configuration, commands with lines of their output. Out: each line is in the output.
//! The server of the recipes sends back the head that it received. A line `(no NAME)` means that no line begins with
//! `NAME:`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::gate::Gate;
use crate::process::{Folder, free_address, run, text};
use crate::requests::curl;

/// The address at which the recipes' users reach Tidegate.
const PUBLIC: &str = "http://localhost:8080";
/// The addresses of the recipes' servers.
const SERVERS: [&str; 3] = ["127.0.0.1:8000", "127.0.0.1:8001", "127.0.0.1:8002"];
/// The address of the admin interface.
const ADMIN: &str = "127.0.0.1:9901";
/// The address of a server that is not running.
const ABSENT: &str = "127.0.0.1:8009";
/// Longest wait for the head of a request.
const READ_MAX: Duration = Duration::from_secs(30);

/// One recipe.
struct Recipe {
    title: String,
    config: String,
    /// Files with their content.
    files: Vec<(String, String)>,
    /// The block of commands and their output.
    console: String,
}

/// The recipes of the document: each section has a configuration and a block `console`.
fn recipes() -> Vec<Recipe> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cookbook.md");
    let document = std::fs::read_to_string(&path).expect("the document exists");
    let sections = document.split("\n## ").skip(1);
    let block = |section: &str, language: &str| {
        let (_, rest) = section.split_once(&format!("```{language}\n"))?;
        Some(rest.split("```").next().unwrap_or_default().to_owned())
    };
    let read = |section: &str| {
        let files = section.split("```text ").skip(1).map(|rest| {
            let (name, rest) = rest.split_once('\n').expect("a file has a name");
            (name.to_owned(), rest.split("```").next().unwrap_or_default().to_owned())
        });
        let title = section.lines().next().unwrap_or_default().to_owned();
        let part = |language| {
            block(section, language).unwrap_or_else(|| panic!("{title} has no block `{language}`"))
        };
        Recipe {
            config: part("toml"),
            console: part("console"),
            files: files.collect(),
            title: title.clone(),
        }
    };
    sections.map(read).collect()
}

/// Starts a server that answers each request with the head that it received, and the name of the server. `/session` begins a
/// session, with a cookie that only this server knows.
pub fn start_mirror(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the kernel has a port");
    let address = listener.local_addr().expect("a bound socket has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || mirror(stream, name));
        }
    });
    address
}

fn mirror(mut stream: TcpStream, name: &str) {
    let _ = stream.set_read_timeout(Some(READ_MAX));
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => head.extend_from_slice(&buffer[..count]),
            Ok(_) | Err(_) => return,
        }
    }
    let end = head.windows(4).position(|end| end == b"\r\n\r\n").map_or(head.len(), |at| at + 4);
    // A body that is not read would reset the connection.
    let mut left = content_length(&text(&head[..end])).saturating_sub(head.len() - end);
    while left > 0 {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => left = left.saturating_sub(count),
            Ok(_) | Err(_) => return,
        }
    }
    head.truncate(end);
    if head.starts_with(b"GET /verify ") {
        let _ = stream.write_all(verdict(&text(&head)).as_bytes());
        return;
    }
    let head = text(&head);
    let (cookie, session) = session_of(&head, name);
    let body = format!("{}served by {name}\n{session}", head.replace("\r\n", "\n"));
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nServer: mirror\r\nX-Powered-By: threads\r\n{cookie}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
}

/// The length of the body of a request.
fn content_length(head: &str) -> usize {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    length.map_or(0, |(_, value)| value.trim().parse().expect("a number"))
}

/// The field that sets the cookie of a session, and what the server `name` knows about the session of a request.
fn session_of(head: &str, name: &str) -> (String, &'static str) {
    static BEGUN: AtomicU32 = AtomicU32::new(0);
    if head.starts_with("GET /session ") {
        let number = BEGUN.fetch_add(1, Ordering::Relaxed);
        return (format!("Set-Cookie: JSESSIONID={name}-{number}; Path=/\r\n"), "session begun\n");
    }
    let (_, session) = head.split_once("JSESSIONID=").unwrap_or_default();
    match session.strip_prefix(name).is_some_and(|rest| rest.starts_with('-')) {
        true => (String::new(), "session known\n"),
        false => (String::new(), ""),
    }
}

/// The answer of an authentication server to the question `head`: a session is the name of the user.
fn verdict(head: &str) -> String {
    let value = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    };
    let end = "Content-Length: 0\r\nConnection: close\r\n\r\n";
    match value("cookie").and_then(|cookie| cookie.strip_prefix("session=")) {
        Some(user) => format!("HTTP/1.1 200 OK\r\nX-User: {user}\r\n{end}"),
        None => {
            let back = value("x-forwarded-uri").unwrap_or_default();
            format!("HTTP/1.1 302 Found\r\nLocation: /login/?back={back}\r\n{end}")
        }
    }
}

/// The arguments of a command, split as a shell does it for quotes.
fn arguments(command: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for c in command.chars() {
        match (c, quote) {
            ('\'' | '"', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => words.push(String::new()),
            (c, _) => words.last_mut().expect("a word is open").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Runs one command, whose output must contain each of `lines`.
fn check(
    recipe: &str,
    folder: &Folder,
    (gate, admin): (&Gate, &str),
    command: &str,
    lines: &[&str],
) {
    let words = arguments(command);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (mut program, words) = match words.as_slice() {
        ["curl", words @ ..] => (curl(), words),
        ["tidegate", "ctl", words @ ..] => {
            let mut program = tidegate_testing::command(env!("CARGO_BIN_EXE_tidegate"));
            program.args(["ctl", "--at", admin]);
            (program, words)
        }
        _ => panic!("{recipe}: {command}"),
    };
    program.current_dir(folder.path());
    for word in words {
        program.arg(word.replace(PUBLIC, &format!("http://{}", gate.address())));
    }
    let output = run(&mut program);
    let printed = text(&output.stdout);
    let found: Vec<&str> = printed.lines().map(str::trim_end).collect();
    for line in lines {
        match line.strip_prefix("(no ").and_then(|rest| rest.strip_suffix(')')) {
            Some(name) => {
                let field = format!("{}:", name.to_ascii_lowercase());
                let is_there =
                    found.iter().any(|line| line.to_ascii_lowercase().starts_with(&field));
                assert!(!is_there, "{recipe}: {command}: {name} is in\n{printed}");
            }
            None => assert!(
                found.iter().any(|found| found.eq_ignore_ascii_case(line)),
                "{recipe}: {command}: {line:?} is not in\n{printed}{}",
                text(&output.stderr)
            ),
        }
    }
}

#[test]
fn every_recipe_works_as_shown() {
    let servers = [start_mirror("one"), start_mirror("two"), start_mirror("three")];
    let recipes = recipes();
    assert!(recipes.len() >= RECIPES_MIN, "found only {} recipes", recipes.len());
    for (number, recipe) in recipes.iter().enumerate() {
        let folder = Folder::new(&format!("cookbook-{number}"));
        for (name, content) in &recipe.files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a file is in a folder"))
                .expect("a folder can be made");
            std::fs::write(path, content).expect("a file can be written");
        }
        let mut config = recipe.config.replace("0.0.0.0:8080", "127.0.0.1:0");
        for (written, real) in SERVERS.iter().zip(servers) {
            config = config.replace(written, &real.to_string());
        }
        config = config.replace(ABSENT, &free_address().to_string());
        let admin = free_address().to_string();
        config = config.replace(ADMIN, &admin);
        let gate = Gate::start(&folder, &config);
        for block in recipe.console.split("$ ").skip(1) {
            let mut lines = block.lines();
            let command = lines.next().unwrap_or_default();
            let lines: Vec<&str> =
                lines.filter(|line| !line.is_empty() && *line != "...").collect();
            check(&recipe.title, &folder, (&gate, &admin), command, &lines);
        }
    }
}

/// The recipes that the document has at least.
const RECIPES_MIN: usize = 30;
