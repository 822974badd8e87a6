//! Each recipe of docs/cookbook.md works with curl and `tidegate ctl` as the document shows.
//! In: the recipes: files, a configuration, commands with lines of their output. Out: each line is in the output, and
//! without the settings in question some line is not.
//! The server of the recipes sends back the head that it received, after the time of `wait` in the query. A line `(no NAME)`
//! means that no line begins with `NAME:`; `LINE (2 times)` that two lines are equal to `LINE`; `BEGIN...` that a line begins
//! with `BEGIN`.

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
    let text_of_head = text(&head);
    if let Some((_, rest)) = text_of_head.lines().next().and_then(|line| line.split_once("wait=")) {
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        std::thread::sleep(Duration::from_millis(digits.parse().expect("a number")));
    }
    if head.starts_with(b"GET /.well-known/jwks.json ") {
        let length = KEYS.len();
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{KEYS}"
        );
        return;
    }
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

/// The public key of the tokens that are verified with fetched keys.
const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","use":"sig","kid":"a","x":"ZQhNzUoPDzMdM7WAhNJ28S-94QATPwuiAKJvkRrAeY8"}]}"#;

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

/// A running recipe.
struct Run<'a> {
    folder: &'a Folder,
    gate: &'a Gate,
    /// The addresses in the document, and the real ones.
    addresses: &'a [(&'static str, String)],
}

impl Run<'_> {
    /// Runs one command.
    ///
    /// # Errors
    /// Its output does not contain one of `lines`.
    fn check(&self, command: &str, lines: &[&str]) -> Result<(), String> {
        let words = arguments(command);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (mut program, words) = match words.as_slice() {
            ["curl", words @ ..] => (curl(), words),
            ["tidegate", "ctl", words @ ..] => {
                let mut program = tidegate_testing::command(env!("CARGO_BIN_EXE_tidegate"));
                program.args(["ctl", "--at", &real(ADMIN, self.addresses)]);
                (program, words)
            }
            _ => panic!("unknown command: {command}"),
        };
        program.current_dir(self.folder.path());
        for word in words {
            let word = word.replace(PUBLIC, &format!("http://{}", self.gate.address()));
            program.arg(real(&word, self.addresses));
        }
        let output = run(&mut program);
        let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
        match lines.iter().find(|line| !is_shown(line, &printed)) {
            Some(line) => Err(format!("{command}: {line:?} does not hold for\n{printed}")),
            None => Ok(()),
        }
    }
}

/// `text` with the real addresses.
fn real(text: &str, addresses: &[(&'static str, String)]) -> String {
    addresses.iter().fold(text.to_owned(), |text, (written, real)| text.replace(written, real))
}

/// Whether a line of the document describes the output of its command.
fn is_shown(line: &str, printed: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let printed = printed.to_ascii_lowercase();
    let mut found = printed.lines().map(str::trim_end);
    if let Some(name) = line.strip_prefix("(no ").and_then(|rest| rest.strip_suffix(')')) {
        return !found.any(|found| found.split_once(':').is_some_and(|(own, _)| own == name));
    }
    let counted = line.strip_suffix(" times)").and_then(|rest| rest.rsplit_once(" ("));
    if let Some((line, count)) = counted {
        let count: usize = count.parse().expect("a number");
        return found.filter(|found| *found == line).count() == count;
    }
    match line.strip_suffix("...") {
        Some(begin) => found.any(|found| found.starts_with(begin)),
        None => found.any(|found| found == line),
    }
}

/// Starts Tidegate with the configuration of a recipe, without the text `removed`, and runs the commands.
///
/// # Errors
/// The output of a command is not that in the document.
fn attempt(
    recipe: &Recipe,
    removed: Option<&str>,
    name: &str,
    servers: [SocketAddr; 3],
) -> Result<(), String> {
    let folder = Folder::new(name);
    for (name, content) in &recipe.files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a file is in a folder"))
            .expect("a folder can be made");
        std::fs::write(path, content).expect("a file can be written");
    }
    let free = [ABSENT, ADMIN].map(|written| (written, free_address().to_string()));
    let servers = SERVERS.into_iter().zip(servers.map(|server| server.to_string()));
    let addresses: Vec<_> = servers.chain(free).collect();
    let mut config = recipe.config.replace("0.0.0.0:8080", "127.0.0.1:0");
    if let Some(removed) = removed {
        assert!(config.contains(removed), "{}: {removed:?} is not in {config}", recipe.title);
        config = config.replace(removed, "");
    }
    let gate = Gate::start(&folder, &real(&config, &addresses));
    let run = Run { folder: &folder, gate: &gate, addresses: &addresses };
    let mut blocks = recipe.console.split("$ ").skip(1);
    blocks.try_for_each(|block| {
        let mut lines = block.lines();
        let command = lines.next().unwrap_or_default();
        if removed.is_some() && command.starts_with("tidegate ctl wait ") {
            return Ok(());
        }
        let lines: Vec<&str> = lines.filter(|line| !line.is_empty() && *line != "...").collect();
        run.check(command, &lines)
    })
}

fn start_servers() -> [SocketAddr; 3] {
    [start_mirror("one"), start_mirror("two"), start_mirror("three")]
}

#[test]
fn every_recipe_works_as_shown() {
    let servers = start_servers();
    let recipes = recipes();
    assert!(recipes.len() >= RECIPES_MIN, "found only {} recipes", recipes.len());
    for (number, recipe) in recipes.iter().enumerate() {
        let attempted = attempt(recipe, None, &format!("cookbook-{number}"), servers);
        attempted.unwrap_or_else(|why| panic!("{}: {why}", recipe.title));
    }
}

/// The recipes that the document has at least.
const RECIPES_MIN: usize = 30;

/// The beginning of a recipe's title, and a text of its configuration without which it must fail.
const NEEDED: [(&str, &str); 32] = [
    ("Remove a prefix", ", path = \"/{rest}\""),
    ("Keep a session", "sticky = { cookie = \"SRV\" }\n"),
    ("Give slow requests", "timeouts = { response-head = \"5m\" }\n"),
    ("Give slow requests", "timeouts = { response-head = \"200ms\" }\n"),
    (
        "Take failing servers",
        "health = { http = \"/healthz\", every = \"500ms\", timeout = \"5s\" }\n",
    ),
    ("Limit requests of each client", "rate = { limit = \"10/h\", burst = 3 }\n"),
    ("Slow down clients", ", then = \"tarpit\", wait = \"1s\", waiting-max = 500"),
    ("Limit the connections", "connections-per-address-max = 50\n"),
    ("Limit the connections", "connections-per-address-max = 2\n"),
    ("Keep connections free", "connections-max = 50\n"),
    ("Limit the bandwidth", "bandwidth = { down = \"1MiB/s\" }\n"),
    ("Refuse clients that cause", "count = \"abuse\"\n"),
    ("Refuse further attempts", "count = [\"logins\", \"addresses\"]\n"),
    ("Require a user name", ", remove = [\"authorization\"]"),
    ("Serve only requests", ", claims = { role = \"root\" }"),
    ("Ask an authentication", ", copy = [\"x-user\"]"),
    ("Serve only some", "allow = [\"set:office\"]\n"),
    ("Serve only some", "deny = [\"192.0.2.0/24\", \"set:abusers\"]\n"),
    ("Ban and admit", "deny = [\"set:banned\"]\n"),
    ("Answer some clients", "cookies = { beta = \"1\" }\n"),
    ("Try a new version with a few", ", by = \"cookie:id\""),
    ("Try a new version with copies", "mirror = { pool = \"next\", share = \"100%\" }\n"),
    (
        "Keep users on one server",
        "sticky = { by = \"cookie:JSESSIONID\", for = \"30m\", entries-max = 1_000_000 }\n",
    ),
    ("Verify tokens", ", audience = \"app\", issuer = \"https://id.example\""),
    ("Limit the requests of each user", ", { limit = \"2/m\", by = \"claim:sub\" }"),
    ("Redirect to https", ", status = 308"),
    ("Let pages of another", ", credentials = true"),
    ("Send your own error", "errors = { 502 = \"errors/502.html\", 504 = \"errors/502.html\" }\n"),
    (
        "Take a site down",
        "maintenance = { name = \"site\", page = \"down.html\", retry-after = \"10m\", except = [\"set:office\"] }\n",
    ),
    ("Take a site down", ", except = [\"set:office\"]"),
    ("Protect browsers", "security-headers = true\n"),
    ("Forward connections", "forward = \"db\"\n"),
];

#[test]
fn recipes_fail_without_their_settings() {
    let servers = start_servers();
    let recipes = recipes();
    for (number, (title, removed)) in NEEDED.into_iter().enumerate() {
        let mut named = recipes.iter().filter(|recipe| recipe.title.starts_with(title));
        let (Some(recipe), None) = (named.next(), named.next()) else {
            panic!("not one recipe has a title that begins with {title:?}");
        };
        let attempted =
            attempt(recipe, Some(removed), &format!("cookbook-without-{number}"), servers);
        assert!(attempted.is_err(), "{}: it works without {removed:?}", recipe.title);
    }
}
