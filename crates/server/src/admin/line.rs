//! The line protocol of the admin interface, as scripts for HAProxy's Runtime API use it.
//! In: lines of commands, separated by `;`; after `<<` at the end of a line, the lines that belong to its last command, up to an
//! empty one. Out: for each command its text and an empty line. After a line the connection closes, unless `prompt` began a
//! session.
//! Never: runs a part of a line: every command of a line is looked up before the first one runs. Runs anything after a
//! line that was refused, unless an earlier line began a session: lines of another protocol may contain commands, but none of them
//! begins with a line `prompt`. Runs the lines after `<<` of a refused command. Reads the lines after `<<` of a client that may not
//! run the command. Holds the strings of several commands: each is
//! written before the next command runs.
//! Limits: `COMMANDS_MAX` commands in a line; `wait::SPAN_MAX` for all waits of a line; `PEM_BYTES_MAX` after `<<`.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use super::command::{self, Outcome, Reply};
use super::connection::Connection;
use super::profile::parse_span;
use super::token::Rights;
use super::words::words_of;
use super::{Caller, Input, Operations, SentCommand, certificates, wait};
use crate::staged_certificates::PEM_BYTES_MAX;

/// Maximum number of commands of a line.
const COMMANDS_MAX: usize = 64;

/// Serves the line `first` and, in a session, the lines after it.
pub(super) fn serve(
    connection: &mut Connection,
    first: String,
    mut input: Input,
    caller: &Caller,
    operations: &Operations,
) -> io::Result<()> {
    let mut session = Session::new(caller);
    let mut next = Some(first);
    while let Some(line) = next {
        let (mut output, goes_on) =
            session.run_line(&line, caller, operations, (connection, &mut input))?;
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
            connection.mark_idle(session.span);
        }
        next = input.read_line(connection)?;
        // A client connects again with a certificate that is still valid.
        if !caller.is_current() {
            return Ok(());
        }
    }
    Ok(())
}

/// The state of a connection.
struct Session {
    /// The client has requested a prompt, and may send more lines.
    has_prompt: bool,
    /// The permissions of the client, by the token that it has presented.
    rights: Rights,
    /// How long the session waits for its next line.
    span: Duration,
}

/// A command of a line.
enum Step<'l> {
    /// Ends the connection after the line.
    Quit,
    /// Begins or ends a session.
    Prompt,
    /// Presents the token.
    Auth(&'l str),
    /// Sets how long the session waits for its next line.
    Span(Duration),
    /// A command of `command.rs`.
    Run(Vec<&'l str>),
}

impl<'l> Step<'l> {
    /// The step of one command; the error lists the commands.
    fn of(text: &'l str) -> Result<Self, String> {
        let mut words = words_of(text);
        if words.len() > 2 && words[1..3] == ["ssl", "cert"] {
            // HAProxy's word.
            words[1] = "tls";
        }
        match words.as_slice() {
            ["quit" | "exit"] => Ok(Self::Quit),
            ["prompt"] => Ok(Self::Prompt),
            ["auth", token] => Ok(Self::Auth(token)),
            ["set", "timeout", "cli", rest @ ..] => match rest {
                [span] => session_span(span).map(Self::Span),
                _ => Err(SPAN_USAGE.to_owned()),
            },
            _ if command::is_known(&words) => Ok(Self::Run(words)),
            _ => Err(command::unknown(&words)),
        }
    }
}

/// The argument of `set timeout cli`, in seconds unless it has a unit.
fn session_span(text: &str) -> Result<Duration, String> {
    let hours = |unit: &str, hours: u64| {
        let count = text.strip_suffix(unit)?.parse::<u64>().ok()?;
        count.checked_mul(hours * 3600).map(Duration::from_secs)
    };
    let span = parse_span(text).or_else(|| hours("h", 1)).or_else(|| hours("d", 24));
    let allowed = span.filter(|span| (Duration::from_secs(1)..=SPAN_MAX).contains(span));
    allowed.ok_or_else(|| format!("the time cannot be {text:?}; {SPAN_USAGE}"))
}

impl Session {
    /// The state of a new connection.
    fn new(caller: &Caller) -> Self {
        Self { has_prompt: false, rights: caller.rights_of(None), span: SESSION_SPAN }
    }

    /// Whether lines may follow a line that was refused: an earlier line began a session, and what follows is not input of a command
    /// that was refused.
    fn outlasts_refusal(&self, line: &str) -> bool {
        self.has_prompt && !line.contains("<<")
    }

    /// Runs the commands of a line, if all of them are known, and writes their texts. Returns the bytes that are left to write,
    /// and whether another line may follow.
    fn run_line(
        &mut self,
        line: &str,
        caller: &Caller,
        operations: &Operations,
        (connection, input): (&mut Connection, &mut Input),
    ) -> io::Result<(String, bool)> {
        let texts = line.split(';').map(str::trim).filter(|text| !text.is_empty());
        let steps: Vec<Step<'_>> = match texts.map(Step::of).collect() {
            Ok(steps) => steps,
            Err(why) => return Ok((format!("error: {why}\n\n"), self.outlasts_refusal(line))),
        };
        if steps.len() > COMMANDS_MAX {
            return Ok((TOO_MANY.to_owned(), self.outlasts_refusal(line)));
        }
        let has_lines =
            |step: &Step<'_>| matches!(step, Step::Run(words) if certificates::has_lines(words));
        if steps.iter().rev().skip(1).any(has_lines) {
            return Ok((NOT_LAST.to_owned(), false));
        }
        let waits_until = Instant::now() + wait::SPAN_MAX;
        let (mut quits, outlasts) = (false, self.outlasts_refusal(line));
        for step in steps {
            match step {
                Step::Quit => quits = true,
                Step::Prompt => self.has_prompt = !self.has_prompt,
                Step::Auth(token) => {
                    self.rights = caller.rights_of(Some(token));
                    if self.rights == Rights::None {
                        return Ok((DENIED.to_owned(), false));
                    }
                }
                Step::Run(_) | Step::Span(_) if self.rights == Rights::None => {
                    return Ok((DENIED.to_owned(), false));
                }
                Step::Run(words)
                    if self.rights == Rights::Read && command::needs_all_rights(&words) =>
                {
                    return Ok((READ_ONLY.to_owned(), outlasts));
                }
                Step::Span(span) => {
                    self.span = span;
                    connection.write_all(b"\n")?;
                }
                Step::Run(words) => {
                    // A command may take longer than the time limit for a line, and the connection keeps its place meanwhile.
                    connection.mark_served();
                    let outcome = match begin(&words, operations, connection, input)? {
                        Ok(outcome) => outcome,
                        Err(why) => return Ok((format!("error: {why}\n\n"), false)),
                    };
                    let text =
                        complete((outcome, &words), caller, operations, connection, waits_until);
                    connection.mark_served();
                    connection.write_all(text.as_bytes())?;
                }
            }
        }
        Ok((String::new(), self.has_prompt && !quits))
    }
}

/// Runs a command, after the lines that belong to it. The error: these are refused.
fn begin(
    words: &[&str],
    operations: &Operations,
    connection: &mut Connection,
    input: &mut Input,
) -> io::Result<Result<Outcome, String>> {
    if !certificates::has_lines(words) {
        return Ok(Ok(command::run(words, operations)));
    }
    // A new client may displace a client that is slow to send them, as it may displace a silent session.
    connection.mark_idle(SESSION_SPAN);
    let lines = input.read_lines(connection, PEM_BYTES_MAX)?;
    connection.mark_served();
    Ok(lines.map(|lines| certificates::set(words, &lines, operations)))
}

/// Completes a command. Returns its text.
fn complete(
    (outcome, words): (Outcome, &[&str]),
    caller: &Caller,
    operations: &Operations,
    connection: &mut Connection,
    waits_until: Instant,
) -> String {
    match outcome {
        Ok(Reply::Profile(plan)) => {
            SentCommand::new(caller, words).audit();
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
        Ok(Reply::Pending(pending)) => {
            connection.mark_pending();
            let sent = SentCommand::new(caller, words);
            let outcome = pending.run(operations, sent, &|| connection.was_ended());
            complete((outcome, words), caller, operations, connection, waits_until)
        }
        Ok(Reply::Shown(text)) => text + "\n",
        Ok(Reply::Changed(text)) => {
            SentCommand::new(caller, words).audit();
            text + "\n"
        }
        Ok(Reply::Ran(result)) => {
            SentCommand::new(caller, words).audit();
            match result {
                Ok(text) => text + "\n\n",
                Err(why) => format!("error: {why}\n\n"),
            }
        }
        Err(why) => format!("error: {why}\n\n"),
    }
}

/// The reply to a client without the token.
const DENIED: &str =
    "error: present the token first: auth TOKEN (tidegate ctl: --token-file FILE)\n\n";

/// The reply to a client that may only read, by the token of `read-token-file` or by its certificate, and requests more.
const READ_ONLY: &str = "error: this token or certificate allows only show, get, help and wait, except show errors, show sess and \
    show conn, which show requests of clients; help: present the token of `token-file`, or a certificate that `write-clients` \
    names\n\n";

/// How long a session waits for its next line, unless the client sets another time.
const SESSION_SPAN: Duration = Duration::from_secs(60);
/// The longest time that a client may set. A session that waits gives its place to a new client that needs it.
const SPAN_MAX: Duration = Duration::from_secs(24 * 24 * 3600);
const SPAN_USAGE: &str = "usage: set timeout cli TIME, with a TIME from 1s to 24d, such as 60, 10m or 2h; without a unit, it is in seconds";

/// The reply to a line with more than `COMMANDS_MAX` commands.
const TOO_MANY: &str =
    "error: a line has at most 64 commands; no command of the line was executed\n\n";

/// The reply to a line with a second command after a command with lines.
const NOT_LAST: &str =
    "error: `<<` must be at the end of the line; no command of the line was executed\n\n";

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Mutex};
    use std::time::{Instant, SystemTime};

    use rustix::event::{EventfdFlags, eventfd};
    use tidegate_config::arrange::Arranged;

    use super::super::connection::{Places, Stream};
    use super::super::profile::Profiler;
    use super::super::rates::Rates;
    use super::super::reloads::Reloads;
    use super::super::serve as serve_any;
    use super::super::token::Tokens;
    use super::*;
    use crate::health::{Roster, ServerState};
    use crate::known_names::KnownNames;
    use crate::live_edits::LiveEdits;
    use crate::staged_certificates::StagedCertificates;
    use crate::stats::Registry;

    const FILE: &str = "[[listener]]\nbind = \"127.0.0.1:1\"\n[[route]]\nproxy = \"p\"\n\
        [[listener]]\nname = \"web\"\nbind = \"127.0.0.1:3\"\n\
        tls = { certificates = [{ cert = \"/a.pem\", key = \"/a.key\" }] }\n\
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
            names: Arc::new(KnownNames::default()),
            registry: Arc::new(Registry::new(1)),
            roster: Arc::new(Roster::new(&arranged, Vec::new())),
            started: (Instant::now(), SystemTime::now()),
            is_stopping: false.into(),
            places: Places::default(),
            reloads: Reloads::default(),
            upgrades: Reloads::default(),
            edits: LiveEdits::default(),
            staged: StagedCertificates::default(),
            profiler: Profiler::default(),
            process_rates: Rates::default(),
            rates: Rates::default(),
        }
    }

    fn caller_with(tokens: Arc<Tokens>) -> Caller {
        Caller::new("the test".to_owned(), tokens, Arc::default())
    }

    /// The bytes that a client receives after it has sent `bytes`, and whether the server is in maintenance after that.
    fn exchange(bytes: &[u8], token: Option<&str>) -> (String, bool) {
        let operations = operations();
        let (mut client, own) = UnixStream::pair().expect("a pair of sockets");
        client.write_all(bytes).expect("room");
        client.shutdown(std::net::Shutdown::Write).expect("it is open");
        let connection = operations.places.take(Stream::Unix(own)).expect("a place");
        let tokens = Tokens { all: token.map(str::to_owned), read: Some("reader".to_owned()) };
        let caller = caller_with(Arc::new(tokens));
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
                format!("prompt;frobnicate\n{SET}\n"),
                format!("frobnicate\nprompt\n{SET}\n"),
                format!("prompt\nfrobnicate <<\n{SET}\n"),
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
    fn unknown_command_does_not_end_a_session() {
        for line in ["frobnicate", "show info;frobnicate", "set server", "set timeout cli 0"] {
            let (reply, is_set) = exchange(format!("prompt\n{line}\n{SET}\n").as_bytes(), None);
            assert!(is_set && reply.starts_with("\n> error: "), "{line}: {reply}");
            assert!(reply.ends_with("\n\n> \n\n> "), "{line}: {reply}");
        }
        // Nor does a command that the token does not permit.
        let input = format!("auth reader;prompt\n{SET}\nshow info\nauth secret\n{SET}\n");
        let (reply, is_set) = exchange(input.as_bytes(), Some("secret"));
        assert!(is_set && reply.contains(READ_ONLY) && reply.contains("Uptime"), "{reply}");
    }

    #[test]
    fn programs_for_haproxy_set_the_timeout_of_their_session() {
        let input = format!("prompt\nset timeout cli 60\n{SET}\n");
        assert_eq!(exchange(input.as_bytes(), None), ("\n> \n\n> \n\n> ".to_owned(), true));
        let expected = [("1", 1), ("90s", 90), ("10m", 600), ("2h", 7200), ("24d", 24 * 86_400)];
        for (text, seconds) in expected {
            assert_eq!(session_span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["0", "25d", "99999999999999999999", "1y", "-1", "", "h"] {
            assert!(session_span(text).is_err(), "{text}");
        }
        let (reply, _) = exchange(b"set timeout cli 60\n", Some("secret"));
        assert_eq!(reply, DENIED);
        let (reply, _) = exchange(b"set timeout cli\n", None);
        assert!(reply.starts_with("error: usage: set timeout cli TIME"), "{reply}");
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
            "disable route *",
            "enable route *",
            "add pool n { servers = [] }",
            "del pool p",
            "add route { proxy = \"p\" }",
            "del route *",
            "set tls cert /a.pem <<",
            "commit tls cert /a.pem",
            "abort ssl cert /a.pem",
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

    /// PEM of a certificate and its key.
    fn pem() -> String {
        let made = rcgen::generate_simple_self_signed(vec!["a.example".to_owned()]).expect("a key");
        made.cert.pem() + &made.signing_key.serialize_pem()
    }

    #[test]
    fn lines_of_a_certificate_end_with_an_empty_line() {
        let pem = pem();
        for (name, end) in [("/a.pem", "\n"), ("web", "\n"), ("127.0.0.1:3", "\r\n")] {
            let lines = pem.replace('\n', end);
            let line = format!("auth secret;set ssl cert {name} <<{end}{lines}{end}");
            let (reply, _) = exchange(line.as_bytes(), Some("secret"));
            let begin = "Transaction created for certificate /a.pem!\n# a.example, expires ";
            assert!(reply.starts_with(begin) && reply.ends_with("\n\n"), "{reply}");
        }
        let (reply, is_set) = exchange(
            format!("prompt\nset tls cert web <<\n{pem}\nshow tls cert\nset ssl cert web <<\n{pem}\nabort tls cert web\n{SET}\n")
                .as_bytes(),
            None,
        );
        let begin = "\n> Transaction created for certificate /a.pem!\n";
        assert!(is_set && reply.starts_with(begin), "{reply}");
        for part in [
            "# transaction\n*/a.pem\n\n# filename\n/a.pem\n\n",
            "Transaction updated for certificate /a.pem!\n",
            "Transaction aborted for certificate '/a.pem'!\n",
        ] {
            assert!(reply.contains(part), "{part}: {reply}");
        }
    }

    #[test]
    fn refused_lines_of_a_certificate_run_no_command() {
        let pem = pem();
        let long = format!("{SET}\n").repeat(PEM_BYTES_MAX / SET.len());
        let denied = |token: &str| format!("{token}set tls cert web <<\n{SET}\n\n{SET}\n");
        for (input, token, part) in [
            (format!("set tls cert web <<;{SET}\n\n"), None, NOT_LAST),
            (format!("prompt\nset tls cert web <<\n{SET}\n"), None, "must end with an empty line"),
            (
                format!("prompt\nset tls cert web <<\n{long}\n{SET}\n"),
                None,
                "more than 65536 bytes",
            ),
            (format!("prompt\nset tls cert web <<\n{SET}\n\n"), None, "no certificate found"),
            (format!("prompt\nset tls cert x <<\n{SET}\n\n"), None, "the certificates are: /a.pem"),
            (denied("prompt;"), Some("secret"), DENIED),
            (denied("prompt;auth reader;"), Some("secret"), READ_ONLY),
            ("set tls cert web\n".to_owned(), None, "usage: set tls cert NAME <<"),
            (format!("set tls cert web x <<\n{SET}\n\n"), None, "usage: set tls cert NAME <<"),
            ("commit tls cert web\n".to_owned(), None, "no new certificate waits for \"web\""),
            (format!("set tls cert web <<\n{pem}\u{e9}\n\n"), None, ""),
        ] {
            let (reply, is_set) = exchange(input.as_bytes(), token);
            assert!(!is_set && reply.contains(part), "{input}: {reply}");
        }
        // The lines of a refused command are read, so that the session continues after them.
        let input = format!("prompt\nset tls cert x <<\n{pem}\n{SET}\n");
        assert!(exchange(input.as_bytes(), None).1);
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
                let caller = caller_with(Arc::clone(&tokens));
                let operations = &operations;
                scope.spawn(move || serve_any(connection, &caller, operations));
                clients.push(client);
            }
            // Three times as many new clients are served, each of which closes a client that waits or has not sent a line yet.
            for _ in 0..3 * super::super::connection::CONNECTIONS_MAX {
                let begin = Instant::now();
                let (mut client, own) = UnixStream::pair().expect("a pair of sockets");
                client.write_all(b"show info\n").expect("room");
                let mut own = Some(own);
                let connection = loop {
                    // The threads of ended waits need a moment to exit.
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
                let caller = caller_with(Arc::clone(&tokens));
                let _ = serve_any(connection, &caller, &operations);
                let mut reply = String::new();
                let _ = client.read_to_string(&mut reply);
                assert!(reply.starts_with("Name: Tidegate\n"), "{reply}");
                // Another client waits in its place.
                let (mut client, own) = UnixStream::pair().expect("a pair of sockets");
                client.write_all(b"wait 5m\n").expect("room");
                let Some(connection) = operations.places.take(Stream::Unix(own)) else { continue };
                let caller = caller_with(Arc::clone(&tokens));
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
    fn edit_of_a_client_that_has_left_states_its_command() {
        let operations = operations();
        operations.edits.connect(eventfd(0, EventfdFlags::CLOEXEC).expect("a counter"));
        let (mut client, own) = UnixStream::pair().expect("a pair of sockets");
        client.write_all(b"disable listener web\n").expect("room");
        let connection = operations.places.take(Stream::Unix(own)).expect("a place");
        std::thread::scope(|scope| {
            let (caller, operations) = (caller_with(Arc::default()), &operations);
            scope.spawn(move || serve_any(connection, &caller, operations));
            let request = loop {
                if let Some(request) = operations.edits.take().pop_front().and_then(|it| it.take())
                {
                    break request;
                }
                std::thread::yield_now();
            };
            operations.places.end_all();
            let command = "disable listener web".to_owned();
            assert_eq!(request.sent, SentCommand { from: "the test".to_owned(), command });
        });
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
            ("wait 6m".to_owned(), "allowed: 0s to 5m"),
            ("enable server".to_owned(), "usage: enable server POOL/SERVER"),
            ("set log level loud".to_owned(), "allowed: error, warning, info"),
        ] {
            let (reply, _) = run(&line);
            assert!(reply.starts_with("error: ") && reply.contains(part), "{line}: {reply}");
        }
    }
}
