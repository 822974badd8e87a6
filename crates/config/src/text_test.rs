//! Tests of a field value: equal, contains, begins with, ends with, matches a regular expression.
//! In: the text and the kind of the test. Out: a `TextTest` that is ready to match.
//! Never: allocates, locks or backtracks in a match. `contains` and `regex` are tables of states that are built once,
//! so the time of a match is linear in the length of the value.
//! Limits: `TEXT_BYTES_MAX`, `TABLE_BYTES_MAX`, `BUILD_BYTES_MAX`.

use std::collections::BTreeSet;
use std::sync::Arc;

use regex_automata::dfa::{Automaton as _, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};

/// Maximum length of the text of a test in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Maximum size of a table of states in bytes.
pub const TABLE_BYTES_MAX: usize = 1024 * 1024;
/// Maximum memory in bytes that building a table of states may use in addition to the table.
pub const BUILD_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How the text of a test is compared with a field value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// The whole value is the text.
    Equals,
    /// The text appears in the value.
    Contains,
    /// The value begins with the text.
    Prefix,
    /// The value ends with the text.
    Suffix,
    /// The regular expression matches a part of the value.
    Regex,
}

/// A test of a field value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTest {
    kind: TextKind,
    /// The text, or the regular expression.
    text: String,
    /// Whether upper and lower case ASCII letters are equal.
    ignore_case: bool,
    /// Present for `Contains` and `Regex`.
    table: Option<StateTable>,
}

/// Why a string cannot be used as a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextFault {
    /// The text is empty, so every value would match.
    Empty,
    /// The text is longer than `TEXT_BYTES_MAX`.
    TooLong,
    /// The text is not a regular expression; the message of the parser.
    Syntax(String),
    /// The table of states would exceed `TABLE_BYTES_MAX` or `BUILD_BYTES_MAX`.
    TooLarge,
}

impl TextTest {
    /// The kind of the test.
    #[must_use]
    pub fn kind(&self) -> TextKind {
        self.kind
    }

    /// The text, or the regular expression.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The only value that passes the test, if there is one.
    #[must_use]
    pub fn only_value(&self) -> Option<&str> {
        (self.kind == TextKind::Equals && !self.ignore_case).then_some(self.text.as_str())
    }

    /// Prepares a test.
    ///
    /// # Errors
    /// The text is unsuitable for this kind of test.
    pub fn new(kind: TextKind, text: &str, ignore_case: bool) -> Result<Self, TextFault> {
        if text.is_empty() && kind != TextKind::Equals {
            return Err(TextFault::Empty);
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(TextFault::TooLong);
        }
        let table = match kind {
            TextKind::Contains => Some(StateTable::new(&escape(text), ignore_case)?),
            TextKind::Regex => Some(StateTable::new(text, ignore_case)?),
            TextKind::Equals | TextKind::Prefix | TextKind::Suffix => None,
        };
        Ok(Self { kind, text: text.to_owned(), ignore_case, table })
    }

    /// Whether `value` passes the test.
    #[must_use]
    pub fn matches(&self, value: &[u8]) -> bool {
        let text = self.text.as_bytes();
        match self.kind {
            TextKind::Equals => self.is_equal(value, text),
            TextKind::Prefix => {
                value.get(..text.len()).is_some_and(|start| self.is_equal(start, text))
            }
            TextKind::Suffix => {
                let start = value.len().checked_sub(text.len());
                start.and_then(|at| value.get(at..)).is_some_and(|end| self.is_equal(end, text))
            }
            TextKind::Contains | TextKind::Regex => {
                self.table.as_ref().is_some_and(|table| table.matches(value))
            }
        }
    }

    /// Whether every value that passes `other` certainly passes this test. Regular expressions are not compared with each
    /// other unless they are equal.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        // A value of `other` in another case might not pass this test.
        if other.ignore_case && !self.ignore_case {
            return false;
        }
        match (self.kind, other.kind) {
            (_, TextKind::Equals)
            | (TextKind::Contains, TextKind::Contains | TextKind::Prefix | TextKind::Suffix)
            | (TextKind::Prefix, TextKind::Prefix)
            | (TextKind::Suffix, TextKind::Suffix) => self.matches(other.text.as_bytes()),
            (TextKind::Regex | TextKind::Equals, _)
            | (TextKind::Contains, TextKind::Regex)
            | (TextKind::Prefix, TextKind::Contains | TextKind::Suffix | TextKind::Regex)
            | (TextKind::Suffix, TextKind::Contains | TextKind::Prefix | TextKind::Regex) => false,
        }
    }

    /// Whether no value of any bytes passes the test, as with the regular expressions `a^b` and `[a&&b]`.
    #[must_use]
    pub fn is_hopeless(&self) -> bool {
        self.table.as_ref().is_some_and(StateTable::is_hopeless)
    }

    fn is_equal(&self, value: &[u8], text: &[u8]) -> bool {
        match self.ignore_case {
            true => value.eq_ignore_ascii_case(text),
            false => value == text,
        }
    }
}

/// A deterministic automaton. It depends only on the other fields of `TextTest`, so equal tests have equal tables.
#[derive(Clone)]
struct StateTable(Arc<dense::DFA<Vec<u32>>>);

impl StateTable {
    fn new(pattern: &str, ignore_case: bool) -> Result<Self, TextFault> {
        // Values are bytes of any encoding, so classes and case are those of ASCII.
        let syntax = syntax::Config::new().unicode(false).utf8(false).case_insensitive(ignore_case);
        let states = thompson::Config::new().utf8(false).nfa_size_limit(Some(BUILD_BYTES_MAX));
        let table = dense::Config::new()
            .start_kind(StartKind::Unanchored)
            .match_kind(MatchKind::All)
            .dfa_size_limit(Some(TABLE_BYTES_MAX))
            .determinize_size_limit(Some(BUILD_BYTES_MAX));
        // The syntax is parsed separately first, so that an error message is about the text and not about automata.
        syntax::parse_with(pattern, &syntax).map_err(|error| {
            let text = error.to_string();
            // The parser quotes the pattern over several lines and gives the reason in the last one.
            let reason = text.lines().last().unwrap_or_default();
            TextFault::Syntax(reason.trim_start_matches("error: ").to_owned())
        })?;
        dense::Builder::new()
            .syntax(syntax)
            .thompson(states)
            .configure(table)
            .build(pattern)
            .map(|table| Self(Arc::new(table)))
            .map_err(|_| TextFault::TooLarge)
    }

    fn matches(&self, value: &[u8]) -> bool {
        let input = Input::new(value).earliest(true);
        matches!(self.0.try_search_fwd(&input), Ok(Some(_)))
    }

    /// Whether no match state can be reached from the state in which a search begins. Every state is visited at most
    /// once, so the table's size limits the time.
    fn is_hopeless(&self) -> bool {
        let Ok(first) = self.0.start_state_forward(&Input::new("")) else { return false };
        let bytes: Vec<u8> =
            self.0.byte_classes().representatives(..).filter_map(|unit| unit.as_u8()).collect();
        let (mut visited, mut open) = (BTreeSet::from([first]), vec![first]);
        while let Some(state) = open.pop() {
            let end = self.0.next_eoi_state(state);
            if self.0.is_match_state(state) || self.0.is_match_state(end) {
                return false;
            }
            let next = bytes.iter().map(|&byte| self.0.next_state(state, byte));
            open.extend(next.filter(|next| visited.insert(*next)));
        }
        true
    }
}

impl core::fmt::Debug for StateTable {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} bytes", self.0.memory_usage())
    }
}

impl PartialEq for StateTable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for StateTable {}

/// A regular expression that matches `text` literally.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c.is_ascii_punctuation() {
            // As a number, because a backslash gives some characters a meaning, such as `\<`.
            true => escaped.push_str(&format!("\\x{:02x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::TextKind::{Contains, Equals, Prefix, Regex, Suffix};
    use super::*;

    #[test]
    fn each_kind_matches_its_values_and_no_others() {
        let google = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)";
        for (kind, text, ignore_case, value, expected) in [
            (Equals, "a*", false, "a*", true),
            (Equals, "a*", false, "ab", false),
            (Equals, "Ab", true, "aB", true),
            (Equals, "", false, "", true),
            (Contains, "googlebot", false, google, false),
            (Contains, "googlebot", true, google, true),
            (Contains, "Googlebot/2.1; +", false, google, true),
            (Contains, "a.c", false, "xabcx", false),
            (Contains, "é", true, "caf\u{e9}!", true),
            (Prefix, "mozilla", true, google, true),
            (Prefix, "mozilla", false, google, false),
            (Prefix, "long", false, "lon", false),
            (Suffix, ".html)", false, google, true),
            (Suffix, ".HTML)", false, google, false),
            (Suffix, "xy", true, "y", false),
            (Regex, "^(google|bing)bot/[0-9]+$", true, "BingBot/2", true),
            (Regex, "^(google|bing)bot/[0-9]+$", true, "xBingBot/2", false),
            (Regex, r"\bbot\b", false, "a bot.", true),
            (Regex, "b+", false, "abbb", true),
            (Regex, "^$", false, "", true),
        ] {
            let test = TextTest::new(kind, text, ignore_case).expect("a valid test");
            assert_eq!(test.matches(value.as_bytes()), expected, "{kind:?} {text:?} {value:?}");
        }
        let test = TextTest::new(Contains, "a", false).expect("a valid test");
        assert!(test.matches(b"\xff\xfea") && !test.matches(b"\xff\n\0"));
    }

    #[test]
    fn wider_text_covers_narrower_text_but_not_the_reverse() {
        let new =
            |(kind, text, ignore_case)| TextTest::new(kind, text, ignore_case).expect("a test");
        for (early, late, expected) in [
            ((Prefix, "a", false), (Prefix, "ab", false), true),
            ((Prefix, "ab", false), (Prefix, "a", false), false),
            ((Prefix, "A", true), (Equals, "ab", false), true),
            ((Prefix, "a", false), (Prefix, "ab", true), false),
            ((Prefix, "a", false), (Suffix, "a", false), false),
            ((Prefix, "a", false), (Contains, "a", false), false),
            ((Suffix, "b", false), (Suffix, "ab", false), true),
            ((Contains, "b", false), (Prefix, "abc", false), true),
            ((Contains, "b", false), (Contains, "abc", false), true),
            ((Contains, "b", false), (Regex, "b", false), false),
            ((Regex, "^a", false), (Equals, "ab", false), true),
            ((Regex, "^a", false), (Prefix, "a", false), false),
            ((Regex, "^a", false), (Regex, "^a", false), true),
            ((Equals, "a", false), (Equals, "a", true), false),
            ((Equals, "a", true), (Equals, "A", false), true),
            ((Equals, "a", false), (Prefix, "a", false), false),
        ] {
            assert_eq!(new(early).covers(&new(late)), expected, "{early:?} {late:?}");
        }
    }

    #[test]
    fn expressions_that_match_no_value_are_known() {
        for (text, is_hopeless) in [
            ("a^b", true),
            ("$x", true),
            ("[a&&b]", true),
            ("^$x", true),
            (r"x\b\Bx", true),
            ("(a^|b$)c", true),
            (r"a\bb", true),
            ("a|x^", false),
            ("^$", false),
            ("(?m)a$\n^b", false),
            ("a{1000}$", false),
            (r"\bx", false),
            (r"[^\x00-\xfe]", false),
            ("(a|b)*a(a|b){10}", false),
        ] {
            let test = TextTest::new(Regex, text, false).expect("a valid test");
            assert_eq!(test.is_hopeless(), is_hopeless, "{text}");
        }
        let test = TextTest::new(Contains, "a^b", true).expect("a valid test");
        assert!(!test.is_hopeless() && !TextTest::new(Equals, "", true).unwrap().is_hopeless());
    }

    #[test]
    fn literal_texts_are_found_as_they_are() {
        for byte in 0x20..0x7f_u8 {
            let text = format!("x{}y", char::from(byte));
            let test = TextTest::new(Contains, &text, false).expect("a valid test");
            assert!(test.matches(format!("..{text}..").as_bytes()), "{text}");
            assert!(!test.matches(b"..x\x01y.."), "{text}");
        }
    }

    #[test]
    fn unsuitable_texts_are_refused() {
        let refused = |kind, text: &str| TextTest::new(kind, text, true).err();
        assert_eq!(refused(Contains, ""), Some(TextFault::Empty));
        assert_eq!(refused(Regex, &"a".repeat(TEXT_BYTES_MAX + 1)), Some(TextFault::TooLong));
        for text in ["(", "[a", "a{2,1}", "(?=x)", r"(a)\1", "*"] {
            let fault = refused(Regex, text);
            assert!(
                matches!(&fault, Some(TextFault::Syntax(reason)) if !reason.is_empty() && !reason.contains('\n')),
                "{text}: {fault:?}"
            );
        }
        for text in ["(a|b)*a(a|b){30}", "((a{100}){100}){100}"] {
            assert_eq!(refused(Regex, text), Some(TextFault::TooLarge), "{text}");
        }
        assert!(refused(Contains, &"a".repeat(TEXT_BYTES_MAX)).is_none(), "any literal text fits");
        let mixed: String =
            (0..TEXT_BYTES_MAX).map(|at| char::from(b' ' + (at % 95) as u8)).collect();
        assert!(refused(Contains, &mixed).is_none(), "any literal text fits");
    }
}
