//! The line protocol of the admin interface, as scripts for HAProxy's Runtime API use it.
//! In: lines of commands, separated by `;`. Out: for each command its text and an empty line. After a line the
//! connection closes, unless `prompt` began a session.
//! Never: runs a part of a line: every command of a line is looked up before the first one runs. Runs anything after a
//! line that was refused: lines of another protocol may contain commands. Holds the texts of several commands: each is
//! written before the next command runs.
//! Limits: `COMMANDS_MAX` commands in a line; `wait::SPAN_MAX` for all waits of a line.

use std::io::{self, Write as _};
use std::time::Instant;

use super::command::{self, Reply};
use super::connection::Connection;
use super::token::Rights;
use super::{Caller, Input, Operations, wait};

/// The most commands of a line.
const COMMANDS_MAX: usize = 64;

/// Serves the line `first` and, in a session, the lines after it.
pub(super) fn serve(
    mut connection: Connection,
    first: String,
    mut input: Input,
    caller: &Caller,
    operations: &Operations,
) -> io::Result<()> {
    let mut session = Session { has_prompt: false, rights: caller.tokens.rights_of(None) };
    let mut next = Some(first);
    while let Some(line) = next {
        let (mut output, goes_on) = session.run_line(&line, caller, operations, &mut connection)?;
        let is_known = session.rights != Rights::None;
        match is_known {
            true => connection.mark_served(),
            false => connection.mark_refused(),
        }
        if goes_on {
            output.push_str("\n> ");
        }
        connection.write_all(output.as_bytes())?;
        if !goes_on {
            return Ok(());
        }
        // Without the token, the deadline of the first line still applies.
        if is_known {
            connection.mark_idle();
        }
        next = input.read_line(&mut connection)?;
    }
    Ok(())
}

/// The state of a connection.
struct Session {
    /// The client wants a prompt, and to send more lines.
    has_prompt: bool,
    /// What the client may do, by the token that it has presented.
    rights: Rights,
}

/// A command of a line.
enum Step<'l> {
    /// Ends the connection after the line.
    Quit,
    /// Begins or ends a session.
    Prompt,
    /// Presents the token.
    Auth(&'l str),
    /// A command of `command.rs`.
    Run(Vec<&'l str>),
}

impl<'l> Step<'l> {
    /// The step of one command; the error states the commands.
    fn of(text: &'l str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["quit" | "exit"] => Ok(Self::Quit),
            ["prompt"] => Ok(Self::Prompt),
            ["auth", token] => Ok(Self::Auth(token)),
            _ if command::is_known(&words) => Ok(Self::Run(words)),
            _ => Err(command::unknown(&words)),
        }
    }
}

impl Session {
    /// Runs the commands of a line, if all of them are known, and writes their texts. Returns what is left to write, and
    /// whether another line may follow.
    fn run_line(
        &mut self,
        line: &str,
        caller: &Caller,
        operations: &Operations,
        connection: &mut Connection,
    ) -> io::Result<(String, bool)> {
        let texts = line.split(';').map(str::trim).filter(|text| !text.is_empty());
        let steps: Vec<Step<'_>> = match texts.map(Step::of).collect() {
            Ok(steps) => steps,
            Err(why) => return Ok((format!("error: {why}\n\n"), false)),
        };
        if steps.len() > COMMANDS_MAX {
            return Ok((TOO_MANY.to_owned(), false));
        }
        let waits_until = Instant::now() + wait::SPAN_MAX;
        let mut quits = false;
        for step in steps {
            match step {
                Step::Quit => quits = true,
                Step::Prompt => self.has_prompt = !self.has_prompt,
                Step::Auth(token) => {
                    self.rights = caller.tokens.rights_of(Some(token));
                    if self.rights == Rights::None {
                        return Ok((DENIED.to_owned(), false));
                    }
                }
                Step::Run(_) if self.rights == Rights::None => {
                    return Ok((DENIED.to_owned(), false));
                }
                Step::Run(words)
                    if self.rights == Rights::Read && command::needs_all_rights(&words) =>
                {
                    return Ok((READ_ONLY.to_owned(), false));
                }
                Step::Run(words) => {
                    // A command may take longer than the time limit for a line, and the connection keeps its place meanwhile.
                    connection.mark_served();
                    let text = run(&words, caller, operations, connection, waits_until);
                    connection.mark_served();
                    connection.write_all(text.as_bytes())?;
                }
            }
        }
        Ok((String::new(), self.has_prompt && !quits))
    }
}

/// Runs one command. Returns its text.
fn run(
    words: &[&str],
    caller: &Caller,
    operations: &Operations,
    connection: &mut Connection,
    waits_until: Instant,
) -> String {
    match command::run(words, operations) {
        Ok(Reply::Profile(plan)) => {
            super::audit(caller, &words.join(" "));
            match plan.record(operations, || connection.has_client_left()) {
                Ok(profile) => profile + "\n",
                Err(why) => format!("error: {why}\n\n"),
            }
        }
        Ok(Reply::Wait(wait)) => {
            connection.mark_waiting();
            match wait.run(operations, waits_until, || connection.was_ended()) {
                Ok(()) => "\n".to_owned(),
                Err(why) => format!("error: {why}\n\n"),
            }
        }
        Ok(Reply::Shown(text)) => text + "\n",
        Ok(Reply::Changed(text)) => {
            super::audit(caller, &words.join(" "));
            text + "\n"
        }
        Err(why) => format!("error: {why}\n\n"),
    }
}

/// The reply to a client without the token.
const DENIED: &str =
    "error: present the token first: auth TOKEN (tidegate ctl: --token-file FILE)\n\n";

/// The reply to a client that has presented the token of `read-token-file` and requests more.
const READ_ONLY: &str = "error: this token allows only show, get, help and wait, except show errors, show sess and show conn, which show \
    requests of clients; help: present the token of `token-file`\n\n";

/// The reply to a line with more than `COMMANDS_MAX` commands.
const TOO_MANY: &str =
    "error: a line has at most 64 commands; no command of the line was executed\n\n";

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex};
    use std::time::{Instant, SystemTime};

    use tidegate_config::arrange::Arranged;

    use super::super::connection::{Places, Stream};
    use super::super::profile::Profiler;
    use super::super::reloads::Reloads;
    use super::super::serve as serve_any;
    use super::super::token::Tokens;
    use super::*;
    use crate::health::{Roster, ServerState};
    use crate::known_names::KnownNames;
    use crate::live_edits::LiveEdits;
    use crate::stats::Registry;

    const FILE: &str = "[[listener]]\nbind = \"127.0.0.1:1\"\n[[route]]\nproxy = \"p\"\n\
        [pool.p]\nservers = [\"127.0.0.1:2\"]\n";

    fn operations() -> Operations {
        let Ok(config) = tidegate_config::parse(FILE, "the test") else { panic!("{FILE}") };
        let arranged = Arranged::first(config.clone());
        Operations {
            config: Mutex::new(Arc::new(config)),
            inventory: Mutex::default(),
            process: Mutex::default(),
            accounts: Vec::new(),
            workers: Vec::new(),
            is_private: true,
            tls: Mutex::default(),
            names: KnownNames::default(),
            registry: Arc::new(Registry::new(1)),
            roster: Arc::new(Roster::new(&arranged, Vec::new())),
            started: (Instant::now(), SystemTime::now()),
            is_stopping: false.into(),
            places: Places::default(),
            reloads: Reloads::default(),
            edits: LiveEdits::default(),
            profiler: Profiler::default(),
        }
    }

    /// What a client that sends `bytes` receives, and whether the server is in maintenance after that.
    fn exchange(bytes: &[u8], token: Option<&str>) -> (String, bool) {
        let operations = operations();
        let (mut client, own) = UnixStream::pair().expect("a pair of sockets");
        client.write_all(bytes).expect("room");
        client.shutdown(std::net::Shutdown::Write).expect("it is open");
        let connection = operations.places.take(Stream::Unix(own)).expect("a place");
        let tokens = Tokens { all: token.map(str::to_owned), read: Some("reader".to_owned()) };
        let caller = Caller { from: "the test".to_owned(), tokens: Arc::new(tokens) };
        let _ = serve_any(connection, &caller, &operations);
        let mut reply = String::new();
        // Bytes that were not read reset the connection.
        let _ = client.read_to_string(&mut reply);
        let view = operations.roster.view(0, 0).expect("the server");
        (reply, view.state == ServerState::Maintenance)
    }

    const SET: &str = "set server p/127.0.0.1:2 state maint";

    #[test]
    fn bytes_of_another_protocol_run_no_command() {
        let hello = |text: &str| {
            let mut hello = b"\x16\x03\x01\0\x7a\x01\0\0\x76\x03\x03random\x20".to_vec();
            hello.extend_from_slice(text.as_bytes());
            hello.extend_from_slice(b"\0\x0a\0\x08\0\x06\0\x1d");
            hello
        };
        let mut inputs = vec![
            hello(&format!(";{SET};zzz")),
            hello(&format!("\n{SET}\n")),
            format!("show info;\0;{SET}\n").into_bytes(),
            format!("{SET}\u{7f}\n").into_bytes(),
            format!("{SET};\u{e9}\n").into_bytes(),
        ];
        inputs.extend(
            [
                format!("EHLO x;{SET}\n"),
                format!("EHLO x\r\n{SET}\r\n"),
                format!("POST /;{SET};\n{SET}\n"),
                format!("{SET};frobnicate\n"),
                format!("prompt\nfrobnicate\n{SET}\n"),
                format!("GET /;{SET}; HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n{SET}\n"),
                format!("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{SET}\n"),
            ]
            .map(String::into_bytes),
        );
        for input in inputs {
            let (reply, is_set) = exchange(&input, None);
            let text = String::from_utf8_lossy(&input);
            assert!(!is_set, "{text}: {reply}");
            assert!(!reply.contains("Uptime"), "{text}: {reply}");
        }
        let (reply, _) = exchange(format!("{SET};frobnicate\n").as_bytes(), None);
        let expected = "error: unknown command \"frobnicate\": no command of the line was executed; the commands are:\n";
        assert!(reply.starts_with(expected), "{reply}");
    }

    #[test]
    fn known_commands_of_a_line_run_in_order() {
        let (reply, is_set) = exchange(format!("show info;\t{SET}\r\n").as_bytes(), None);
        assert!(reply.starts_with("Name: Tidegate\n"), "{reply}");
        assert!(is_set);
        let (reply, is_set) = exchange(format!("prompt\n{SET}\nquit\n").as_bytes(), None);
        assert_eq!((reply.as_str(), is_set), ("\n> \n\n> ", true));
    }

    #[test]
    fn command_without_the_token_runs_nothing_after_it() {
        let denied = |line: &str| {
            let (reply, is_set) = exchange(line.as_bytes(), Some("secret"));
            assert!(!is_set && reply == DENIED, "{line}: {reply}");
        };
        denied(&format!("{SET}\n"));
        denied(&format!("auth Secret;{SET}\n"));
        denied(&format!("auth wrong;auth secret;{SET}\n"));
        denied(&format!("{SET};auth secret;{SET}\n"));
        assert!(exchange(format!("auth secret;{SET}\n").as_bytes(), Some("secret")).1);
    }

    #[test]
    fn token_for_reading_runs_no_command_that_changes_something() {
        for line in [
            SET,
            "disable server p/127.0.0.1:2",
            "reload",
            "profile 1s",
            "clear map m",
            "set server p/127.0.0.1:2 address 127.0.0.1:3",
            "set maxconn server p/127.0.0.1:2 4",
            "add server p/127.0.0.1:3",
            "del server p/127.0.0.1:2",
            "disable listener 127.0.0.1:1",
            "enable listener 127.0.0.1:1",
            "show errors",
            "show sess",
            "show conn 1",
        ] {
            let line = format!("auth reader;{line}\n");
            let (reply, is_set) = exchange(line.as_bytes(), Some("secret"));
            assert!(!is_set && reply == READ_ONLY, "{line}: {reply}");
        }
        let (reply, _) = exchange(b"auth reader;show info;wait 0s\n", Some("secret"));
        assert!(reply.starts_with("Name: Tidegate\n") && !reply.contains("error"), "{reply}");
        let both = format!("auth reader;auth secret;{SET}\n");
        assert!(exchange(both.as_bytes(), Some("secret")).1);
    }

    #[test]
    fn line_with_too_many_commands_runs_none() {
        let line = format!("{SET};{}\n", "show info;".repeat(COMMANDS_MAX));
        let (reply, is_set) = exchange(line.as_bytes(), None);
        assert!(!is_set && reply == TOO_MANY, "{reply}");
        let (reply, _) = exchange("show info;".repeat(COMMANDS_MAX).as_bytes(), None);
        assert_eq!(reply.matches("Name: Tidegate").count(), COMMANDS_MAX);
    }

    #[test]
    fn client_that_waits_gives_its_place_to_a_new_client() {
        let operations = operations();
        let tokens = Arc::new(Tokens { all: None, read: None });
        let clients = std::thread::scope(|scope| {
            let mut clients = Vec::new();
            for _ in 0..super::super::connection::CONNECTIONS_MAX {
                let (mut client, own) = UnixStream::pair().expect("a pair of sockets");
                client.write_all(b"wait 5m;wait 5m\n").expect("room");
                let connection = operations.places.take(Stream::Unix(own)).expect("a place");
                let caller = Caller { from: "the test".to_owned(), tokens: Arc::clone(&tokens) };
                let operations = &operations;
                scope.spawn(move || serve_any(connection, &caller, operations));
                clients.push(client);
            }
            // Three times as many new clients are served, each of which closes one that waits or has not sent a line yet.
            for _ in 0..3 * super::super::connection::CONNECTIONS_MAX {
                let begin = Instant::now();
                let (mut client, own) = UnixStream::pair().expect("a pair of sockets");
                client.write_all(b"show info\n").expect("room");
                let mut own = Some(own);
                let connection = loop {
                    // The threads of ended waits need a moment to leave.
                    let stream = own.take().map_or_else(|| unreachable!(), Stream::Unix);
                    match operations.places.take(stream) {
                        Some(connection) => break connection,
                        None => {
                            assert!(begin.elapsed().as_secs() < 60, "no place");
                            std::thread::yield_now();
                            let pair = UnixStream::pair().expect("a pair of sockets");
                            (client, own) = (pair.0, Some(pair.1));
                            client.write_all(b"show info\n").expect("room");
                        }
                    }
                };
                let caller = Caller { from: "the test".to_owned(), tokens: Arc::clone(&tokens) };
                let _ = serve_any(connection, &caller, &operations);
                let mut reply = String::new();
                let _ = client.read_to_string(&mut reply);
                assert!(reply.starts_with("Name: Tidegate\n"), "{reply}");
                // Another client waits in its place.
                let (mut client, own) = UnixStream::pair().expect("a pair of sockets");
                client.write_all(b"wait 5m\n").expect("room");
                let Some(connection) = operations.places.take(Stream::Unix(own)) else { continue };
                let caller = Caller { from: "the test".to_owned(), tokens: Arc::clone(&tokens) };
                let operations = &operations;
                scope.spawn(move || serve_any(connection, &caller, operations));
                clients.push(client);
            }
            operations.places.end_all();
            clients
        });
        drop(clients);
        assert_eq!(operations.places.open(), 0);
    }

    #[test]
    fn scripts_wait_for_a_server_and_switch_it() {
        let run = |line: &str| exchange(format!("{line}\n").as_bytes(), None);
        assert_eq!(run("disable server p/127.0.0.1:2"), ("\n".to_owned(), true));
        assert!(!run("disable server p/127.0.0.1:2;enable server p/127.0.0.1:2").1);
        let place = "p/127.0.0.1:2";
        for line in [
            format!("wait 1m server {place} up"),
            format!("disable server {place};wait 1m server {place} down"),
            format!("wait 1m server {place} unused"),
        ] {
            let (reply, _) = run(&line);
            assert!(!reply.contains("error"), "{line}: {reply}");
        }
        for (line, part) in [
            (format!("wait 0s server {place} down"), "is not down after 0ns"),
            (format!("wait 1s server {place} well"), "allowed: up, down, unused"),
            ("wait 1s server p/x up".to_owned(), "no server p/x"),
            ("wait".to_owned(), "usage: wait DURATION"),
            ("wait 6m".to_owned(), "at most 5m"),
            ("enable server".to_owned(), "usage: enable server POOL/SERVER"),
            ("set log level loud".to_owned(), "allowed: error, warning, info"),
        ] {
            let (reply, _) = run(&line);
            assert!(reply.starts_with("error: ") && reply.contains(part), "{line}: {reply}");
        }
    }
}
