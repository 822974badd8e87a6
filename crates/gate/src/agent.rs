//! The lines of agents. An agent is a program next to a server that reports how much load the server can take, in the words
//! of HAProxy's agent checks: `75%`, `up`, `down # reason`, `drain`.
//! In: bytes of an agent. Out: the settings that a line contains, and the state of a server after it.
//! Never: opens a connection; guesses: a line that is cut off, too long or has an unknown word changes nothing.
//! Limits: `TEXT_BYTES_MAX` bytes of a line.
//! Invariant: a line changes only the settings that it mentions.

use core::fmt;

use crate::health::{Outcome, ServerState};

/// Maximum size in bytes of a line, without its end.
pub const TEXT_BYTES_MAX: usize = 1024;
/// The largest weight of a server.
pub const WEIGHT_MAX: u16 = 1000;
/// The largest percentage. More than 100 gives a server more than its weight.
const PERCENT_MAX: u16 = 10_000;

/// Whether a server works, in the words of its agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// It works.
    #[default]
    Up,
    /// It does not work.
    Down,
    /// Its self-test has failed.
    Failed,
    /// It was stopped on purpose.
    Stopped,
}

impl Operation {
    /// The words of agents.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("up", Self::Up),
        ("down", Self::Down),
        ("fail", Self::Failed),
        ("stopped", Self::Stopped),
    ];
}

/// The contents of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// The part of the server's weight, in percent.
    pub percent: Option<u16>,
    /// Whether the server may get requests.
    pub state: Option<ServerState>,
    /// Whether the server works.
    pub operation: Option<Operation>,
    /// The line, with a question mark for each byte that is not printable ASCII.
    pub text: String,
}

impl Statement {
    /// Parses a line without its end. The words are separated by blanks and commas, in any order and case; a
    /// reason follows a number sign. The last word of a kind counts.
    ///
    /// # Errors
    /// A word is unknown.
    pub fn parse(text: &[u8]) -> Result<Self, Failure> {
        let shown = |byte: &u8| match byte {
            b'\t' => ' ',
            b' '..=b'~' => char::from(*byte),
            _ => '?',
        };
        let text: String = text.iter().map(shown).collect();
        let text = text.trim().to_owned();
        let words = text.split('#').next().unwrap_or_default().to_ascii_lowercase();
        let mut statement = Self { text, ..Self::default() };
        for word in words.split([' ', ',']).filter(|word| !word.is_empty()) {
            if !statement.take(word) {
                return Err(Failure::UnknownWord);
            }
        }
        Ok(statement)
    }

    /// Takes a word. Returns false if it is unknown.
    fn take(&mut self, word: &str) -> bool {
        let find = |known: &str| known == word;
        if let Some((_, operation)) = Operation::WORDS.iter().find(|(known, _)| find(known)) {
            self.operation = Some(*operation);
        } else if let Some((_, state)) = ServerState::WORDS.iter().find(|(known, _)| find(known)) {
            self.state = Some(*state);
        } else if let Some(number) = word.strip_suffix('%') {
            let percent = number.parse().ok().filter(|percent| *percent <= PERCENT_MAX);
            self.percent = percent.filter(|_| number.bytes().all(|byte| byte.is_ascii_digit()));
            return self.percent.is_some();
        } else {
            // `maxconn:N` is a valid word, but limits of agents are ignored.
            let number = word.strip_prefix("maxconn:").unwrap_or_default();
            return !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        }
        true
    }

    /// HAProxy's word for the result of the check.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self.operation {
            None | Some(Operation::Up) => "L7OK",
            Some(Operation::Down | Operation::Failed | Operation::Stopped) => "L7STS",
        }
    }
}

/// Why a check of an agent has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The connection to the agent failed, or ended before the end of the line.
    Connection(Outcome),
    /// The line has more than `TEXT_BYTES_MAX` bytes.
    TooLong,
    /// The line has an unknown word.
    UnknownWord,
}

impl Failure {
    /// HAProxy's word for the result of the check.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Connection(outcome) => outcome.code(),
            Self::TooLong | Self::UnknownWord => "L7RSP",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(outcome) => write!(f, "{outcome}"),
            Self::TooLong => write!(f, "the line has more than {TEXT_BYTES_MAX} bytes"),
            Self::UnknownWord => write!(f, "the line has an unknown word"),
        }
    }
}

/// Reads the line of one check.
#[derive(Debug, Default)]
pub struct TextReader {
    /// The bytes of the line so far.
    held: Vec<u8>,
}

impl TextReader {
    /// Takes bytes of the agent. Returns the result once a line is complete or too long. The reader takes no more bytes
    /// after that.
    pub fn read(&mut self, bytes: &[u8]) -> Option<Result<Statement, Failure>> {
        let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let line = &bytes[..end.unwrap_or(bytes.len())];
        if self.held.len() + line.len() > TEXT_BYTES_MAX {
            return Some(Err(Failure::TooLong));
        }
        self.held.extend_from_slice(line);
        end.map(|_| Statement::parse(&self.held))
    }
}

/// The values that the agent of a server has reported so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentState {
    /// Whether the server may get requests.
    pub state: ServerState,
    /// Whether the server works.
    pub operation: Operation,
    /// The part of the server's weight, in percent.
    pub percent: u16,
}

impl Default for AgentState {
    /// Before the first line, the server is up and ready with its full weight.
    fn default() -> Self {
        Self { state: ServerState::Ready, operation: Operation::Up, percent: 100 }
    }
}

impl AgentState {
    /// Applies the settings of a line.
    pub fn adopt(&mut self, statement: &Statement) {
        self.state = statement.state.unwrap_or(self.state);
        self.operation = statement.operation.unwrap_or(self.operation);
        self.percent = statement.percent.unwrap_or(self.percent);
    }

    /// Whether the server works.
    #[must_use]
    pub fn works(self) -> bool {
        self.operation == Operation::Up
    }

    /// Whether the server takes requests, apart from its weight.
    #[must_use]
    pub fn takes_requests(self) -> bool {
        self.works() && self.state == ServerState::Ready
    }
}

/// A part of a weight, rounded up, so that only 0 % of it is 0.
#[must_use]
pub fn part_of_weight(weight: u16, percent: u16) -> u16 {
    let part = (u32::from(weight) * u32::from(percent)).div_ceil(100);
    u16::try_from(part).unwrap_or(WEIGHT_MAX).min(WEIGHT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Option<u16>, Option<ServerState>, Option<Operation>) {
        let Ok(statement) = Statement::parse(text.as_bytes()) else { panic!("{text:?}") };
        (statement.percent, statement.state, statement.operation)
    }

    #[test]
    fn texts_of_haproxys_agents_are_parsed() {
        use Operation::{Down, Failed, Stopped, Up};
        use ServerState::{Drain, Maintenance, Ready};
        for (text, expected) in [
            ("", (None, None, None)),
            ("75%", (Some(75), None, None)),
            ("0%", (Some(0), None, None)),
            ("10000%", (Some(10_000), None, None)),
            ("up", (None, None, Some(Up))),
            ("Down", (None, None, Some(Down))),
            ("fail#its disk is full, 75% drain", (None, None, Some(Failed))),
            ("stopped # by the operator", (None, None, Some(Stopped))),
            ("drain", (None, Some(Drain), None)),
            ("maint", (None, Some(Maintenance), None)),
            ("up ready 60%", (Some(60), Some(Ready), Some(Up))),
            (" ready,,up\t, 60% ", (Some(60), Some(Ready), Some(Up))),
            ("drain ready", (None, Some(Ready), None)),
            ("maxconn:30 50%", (Some(50), None, None)),
        ] {
            assert_eq!(parsed(text), expected, "{text:?}");
        }
    }

    #[test]
    fn unknown_words_make_a_line_unusable() {
        for text in [
            "ok",
            "75",
            "75 %",
            "%",
            "+5%",
            "10001%",
            "99999999%",
            "maxconn:",
            "maxconn:x",
            "up\0",
            "HTTP/1.1 200",
        ] {
            assert_eq!(Statement::parse(text.as_bytes()), Err(Failure::UnknownWord), "{text:?}");
        }
        let statement = Statement::parse(b"down # \x1b[31m\xff").expect("a text");
        assert_eq!((statement.text.as_str(), statement.code()), ("down # ?[31m?", "L7STS"));
    }

    #[test]
    fn first_line_is_read_from_any_pieces_and_is_bounded() {
        let text = b"50% up\r\ndown\n";
        for cut in 0..text.len() {
            let mut reader = TextReader::default();
            let first = reader.read(&text[..cut]);
            let result =
                first.or_else(|| reader.read(&text[cut..])).expect("a line").expect("words");
            assert_eq!((result.percent, result.operation), (Some(50), Some(Operation::Up)));
        }
        let mut reader = TextReader::default();
        assert_eq!(reader.read(&[b' '; TEXT_BYTES_MAX]), None);
        assert!(matches!(reader.read(b"\n"), Some(Ok(_))));
        let mut reader = TextReader::default();
        assert_eq!(reader.read(&[b' '; TEXT_BYTES_MAX]), None);
        assert_eq!(reader.read(b" \n"), Some(Err(Failure::TooLong)));
    }

    #[test]
    fn settings_that_a_line_does_not_mention_are_unchanged() {
        let mut state = AgentState::default();
        assert!(state.takes_requests());
        for (text, takes, percent) in [
            ("75%", true, 75),
            ("down", false, 75),
            ("50%", false, 50),
            ("ready", false, 50),
            ("up drain", false, 50),
            ("up", false, 50),
            ("ready", true, 50),
            ("100%", true, 100),
        ] {
            state.adopt(&Statement::parse(text.as_bytes()).expect("a text"));
            assert_eq!((state.takes_requests(), state.percent), (takes, percent), "{text}");
        }
    }

    #[test]
    fn part_of_a_weight_is_rounded_up_and_bounded() {
        for (weight, percent, part) in
            [(1, 100, 1), (1, 1, 1), (1, 0, 0), (0, 50, 0), (10, 75, 8), (100, 10_000, 1000)]
        {
            assert_eq!(part_of_weight(weight, percent), part, "{percent} % of {weight}");
        }
    }
}
