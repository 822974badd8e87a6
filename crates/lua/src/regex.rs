//! Regular expressions of the layer `ngx`, in the syntax of PCRE, by an engine that takes linear time.
//! In: patterns, options, subject strings. Out: places of matches and groups, or an error.
//! Never: backtracks: patterns that need it (backreferences, lookaround, atomic groups) are refused.
//! Limits: `PATTERNS_MAX` compiled patterns of a VM, of which the least recently used one is replaced; `COMPILED_BYTES_MAX` of
//! each; `WORK_MAX` of a search: the bytes of the subject times the bytes of the compiled pattern.

use std::collections::BTreeMap;

use regex_automata::meta;
use regex_automata::util::primitives::NonMaxUsize;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// Maximum number of compiled patterns that a VM keeps.
const PATTERNS_MAX: usize = 64;
/// Maximum number of bytes of a compiled pattern, and of the states that a search keeps for it.
const COMPILED_BYTES_MAX: usize = 256 * 1024;
/// Maximum product of the bytes of a subject and the bytes of the compiled pattern.
const WORK_MAX: usize = 1 << 31;
/// Maximum number of bytes of a pattern.
const PATTERN_BYTES_MAX: usize = 16 * 1024;

/// The options of a call. Other letters have no effect: `j` and `o` concern the speed of PCRE.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Options {
    /// `a`: a match begins where the search does.
    is_anchored: bool,
    /// `i`
    ignores_case: bool,
    /// `m`
    is_multi_line: bool,
    /// `s`: a dot matches a line feed, too.
    dot_matches_all: bool,
    /// `x`
    ignores_space: bool,
    /// `u`: characters are UTF-8 sequences, not bytes.
    is_utf8: bool,
}

impl Options {
    pub(crate) fn of(letters: &[u8]) -> Result<Self, String> {
        let mut options = Self::default();
        for letter in letters {
            match letter {
                b'a' => options.is_anchored = true,
                b'i' => options.ignores_case = true,
                b'm' => options.is_multi_line = true,
                b's' => options.dot_matches_all = true,
                b'x' => options.ignores_space = true,
                b'u' | b'U' => options.is_utf8 = true,
                b'd' | b'D' | b'j' | b'J' | b'o' => {}
                other => return Err(format!("unknown flag \"{}\"", char::from(*other))),
            }
        }
        Ok(options)
    }
}

/// A compiled pattern.
struct Pattern {
    regex: meta::Regex,
    cache: meta::Cache,
    /// The places of the last match and its groups.
    slots: Vec<Option<NonMaxUsize>>,
    /// The value of `Patterns::uses` when the pattern was used last.
    used: u64,
}

/// The compiled patterns of a VM; see the module header.
#[derive(Default)]
pub(crate) struct Patterns {
    patterns: BTreeMap<(Options, Vec<u8>), Pattern>,
    /// The number of uses of patterns so far.
    uses: u64,
}

/// The places of a match and of its groups.
pub(crate) struct Match<'p> {
    slots: &'p [Option<NonMaxUsize>],
    regex: &'p meta::Regex,
}

impl Match<'_> {
    /// The number of groups, the match itself included.
    pub(crate) fn groups(&self) -> usize {
        self.slots.len() / 2
    }

    /// The place of a group; `None` if the group did not match.
    pub(crate) fn place(&self, group: usize) -> Option<core::ops::Range<usize>> {
        let at = |slot: usize| self.slots.get(slot).copied().flatten().map(NonMaxUsize::get);
        Some(at(2 * group)?..at(2 * group + 1)?)
    }

    /// The name of a group.
    pub(crate) fn name(&self, group: usize) -> Option<&str> {
        let groups = self.regex.group_info();
        groups.to_name(regex_automata::PatternID::ZERO, group)
    }
}

impl Patterns {
    /// Finds the first match from `from` on. `spend` counts the work, and returns whether to stop.
    pub(crate) fn find(
        &mut self,
        pattern: &[u8],
        options: Options,
        text: &[u8],
        from: usize,
        spend: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Match<'_>>, String> {
        if options.is_utf8 && core::str::from_utf8(text).is_err() {
            return Err("the text is not valid UTF-8".to_owned());
        }
        self.uses += 1;
        let key = (options, pattern.to_vec());
        if !self.patterns.contains_key(&key) {
            let compiled = compile(pattern, options)?;
            self.make_room();
            self.patterns.insert(key.clone(), compiled);
        }
        let Some(found) = self.patterns.get_mut(&key) else { return Ok(None) };
        found.used = self.uses;
        let Pattern { regex, cache, slots, .. } = found;
        let bytes = text.len().saturating_sub(from);
        let work = bytes.saturating_mul(regex.memory_usage());
        if work > WORK_MAX || spend(bytes as u64) {
            return Err("the text is too long for this pattern".to_owned());
        }
        let anchored = if options.is_anchored { Anchored::Yes } else { Anchored::No };
        let input = Input::new(text).range(from.min(text.len())..).anchored(anchored);
        let is_found = regex.search_slots_with(cache, &input, slots).is_some();
        Ok(is_found.then_some(Match { slots, regex }))
    }

    fn make_room(&mut self) {
        if self.patterns.len() < PATTERNS_MAX {
            return;
        }
        let oldest = self.patterns.iter().min_by_key(|(_, pattern)| pattern.used);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.patterns.remove(&key);
        }
    }
}

fn compile(pattern: &[u8], options: Options) -> Result<Pattern, String> {
    let text = core::str::from_utf8(pattern)
        .map_err(|_| "the pattern is not valid UTF-8: write \\xNN".to_owned())?;
    if text.len() > PATTERN_BYTES_MAX {
        return Err("the pattern exceeds 16 KiB".to_owned());
    }
    let config = syntax::Config::new()
        .utf8(false)
        .unicode(options.is_utf8)
        .case_insensitive(options.ignores_case)
        .multi_line(options.is_multi_line)
        .dot_matches_new_line(options.dot_matches_all)
        .ignore_whitespace(options.ignores_space)
        .octal(false)
        .nest_limit(50);
    let limits = meta::Config::new()
        .utf8_empty(options.is_utf8)
        .nfa_size_limit(Some(COMPILED_BYTES_MAX))
        .onepass(false)
        .dfa(false)
        .hybrid_cache_capacity(COMPILED_BYTES_MAX);
    let translated = translate(text, options)?;
    let regex = meta::Builder::new()
        .syntax(config)
        .configure(limits)
        .build(&translated)
        .map_err(|error| describe(&error))?;
    let (cache, slots) = (regex.create_cache(), vec![None; regex.group_info().slot_len()]);
    Ok(Pattern { regex, cache, slots, used: 0 })
}

/// The reason of an error, on one line.
fn describe(error: &meta::BuildError) -> String {
    let text = match error.syntax_error() {
        Some(error) => error.to_string(),
        None => error.to_string(),
    };
    let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
    format!("pattern: {last}")
}

/// Rewrites syntax that the engine interprets differently from PCRE, and refuses syntax that the engine lacks.
fn translate(pattern: &str, options: Options) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some(first) = rest.chars().next() {
        let (taken, has_atom) = match first {
            '\\' => (escape(rest, false, options, &mut out)?, true),
            '[' => (class(rest, options, &mut out)?, true),
            '(' => (group(rest, &mut out)?, false),
            '*' | '+' | '?' => {
                out.push(first);
                (1, false)
            }
            '{' => match quantifier_bytes(rest) {
                Some(bytes) => {
                    out.push_str(&rest[..bytes]);
                    (bytes, false)
                }
                None => {
                    out.push_str("\\{");
                    (1, true)
                }
            },
            other => {
                out.push(other);
                (other.len_utf8(), true)
            }
        };
        let is_quantifier = !has_atom && first != '(';
        rest = &rest[taken..];
        if is_quantifier && rest.starts_with('+') {
            return Err("pattern: possessive quantifiers are not supported".to_owned());
        }
        if is_quantifier && rest.starts_with('?') {
            out.push('?');
            rest = &rest[1..];
        }
    }
    Ok(out)
}

/// The length of `{n}`, `{n,}` or `{n,m}` at the start of a string.
fn quantifier_bytes(text: &str) -> Option<usize> {
    let end = text.find('}')?;
    let (least, most) = match text[1..end].split_once(',') {
        Some((least, most)) => (least, most),
        None => (&text[1..end], "0"),
    };
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    (!least.is_empty() && is_number(least) && is_number(most)).then_some(end + 1)
}

/// Translates the start of a group. Refuses a group that does more than capture, group or set options.
fn group(text: &str, out: &mut String) -> Result<usize, String> {
    for refused in ["(?=", "(?!", "(?<=", "(?<!", "(?>", "(?|", "(?(", "(?R", "(?&", "(*"] {
        if text.starts_with(refused) {
            return Err(format!(
                "pattern: {refused} is not supported: the engine takes linear time"
            ));
        }
    }
    if text.starts_with("(?#") {
        return Ok(text.find(')').map_or(text.len(), |at| at + 1));
    }
    if let Some(name) = text.strip_prefix("(?'") {
        let end = name.find('\'').ok_or("pattern: the name of a group is not terminated")?;
        out.push_str(&format!("(?<{}>", &name[..end]));
        return Ok(3 + end + 1);
    }
    out.push('(');
    Ok(1)
}

/// Translates an escape sequence, inside of a class or not. Returns its length.
fn escape(text: &str, in_class: bool, options: Options, out: &mut String) -> Result<usize, String> {
    let Some(letter) = text[1..].chars().next() else {
        return Err("pattern: \\ at the end".to_owned());
    };
    let taken = 1 + letter.len_utf8();
    if letter == '0' || in_class && matches!(letter, '1'..='7') {
        return octal(text, out);
    }
    if letter == 'c' {
        let control = text[taken..].chars().next().filter(char::is_ascii);
        let Some(control) = control else {
            return Err("pattern: \\c needs an ASCII character".to_owned());
        };
        out.push_str(&format!("\\x{:02x}", u32::from(control.to_ascii_uppercase()) ^ 0x40));
        return Ok(taken + 1);
    }
    let known = match (letter, in_class) {
        ('h', true) => " \\t",
        ('h', false) => "[ \\t]",
        ('H', false) => "[^ \\t]",
        ('N', false) => "[^\\n]",
        ('R', false) => "(?:\\r\\n|[\\n\\r\\x0b\\f])",
        ('Z', false) => "\\z",
        ('e', _) => "\\x1b",
        ('b', true) => "\\x08",
        ('w', true) if options.is_utf8 => "0-9A-Za-z_",
        ('d', true) if options.is_utf8 => "0-9",
        ('s', true) if options.is_utf8 => "\\t\\n\\x0b\\f\\r ",
        ('w' | 'd' | 's', false) if options.is_utf8 => {
            out.push_str(&format!("(?-u:\\{letter})"));
            return Ok(taken);
        }
        ('b' | 'B', false) if options.is_utf8 => {
            out.push_str(&format!("(?-u:\\{letter})"));
            return Ok(taken);
        }
        ('1'..='9' | 'g' | 'k', false) => {
            return Err("pattern: backreferences are not supported: the engine takes linear time"
                .to_owned());
        }
        ('K' | 'G' | 'C' | 'X' | 'Q' | 'E', _) => {
            return Err(format!("pattern: \\{letter} is not supported"));
        }
        (other, _) if other.is_ascii_alphanumeric() => {
            out.push_str(&text[..taken]);
            return Ok(taken);
        }
        (other, _) => {
            // Every other character stands for itself.
            if !other.is_ascii() {
                out.push(other);
            } else {
                out.push_str(&format!("\\x{:02x}", u32::from(other)));
            }
            return Ok(taken);
        }
    };
    out.push_str(known);
    Ok(taken)
}

/// Translates `\\` and up to three octal digits. Returns its length.
fn octal(text: &str, out: &mut String) -> Result<usize, String> {
    let digits = text[1..].bytes().take(3).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
    let value = u32::from_str_radix(&text[1..=digits], 8).unwrap_or_default();
    if value > 0xff {
        return Err("pattern: an octal value exceeds \\377".to_owned());
    }
    out.push_str(&format!("\\x{value:02x}"));
    Ok(1 + digits)
}

/// Translates a class. A bracket in a class is an ordinary character, and there are no set operations.
fn class(text: &str, options: Options, out: &mut String) -> Result<usize, String> {
    let mut at = 1;
    out.push('[');
    if text[at..].starts_with('^') {
        out.push('^');
        at += 1;
    }
    let mut is_first = true;
    while let Some(letter) = text[at..].chars().next() {
        match letter {
            ']' if !is_first => {
                out.push(']');
                return Ok(at + 1);
            }
            '\\' => {
                let is_set = matches!(
                    text.as_bytes().get(at + 1),
                    Some(b'w' | b'd' | b's' | b'W' | b'D' | b'S' | b'h')
                );
                at += escape(&text[at..], true, options, out)?;
                // No range begins with a set.
                if is_set && text[at..].starts_with('-') {
                    out.push_str("\\-");
                    at += 1;
                }
            }
            '[' if text[at..].starts_with("[:") && text[at..].contains(":]") => {
                let end = at + text[at..].find(":]").unwrap_or(0) + 2;
                out.push_str(&text[at..end]);
                at = end;
            }
            '[' | ']' | '&' | '~' | '#' | ' ' => {
                out.push_str(&format!("\\x{:02x}", u32::from(letter)));
                at += 1;
            }
            '-' if text[at..].starts_with("--") || is_first || text[at + 1..].starts_with(']') => {
                out.push_str("\\-");
                at += 1;
            }
            other => {
                out.push(other);
                at += other.len_utf8();
            }
        }
        is_first = false;
    }
    Err("pattern: missing terminating ] for character class".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(pattern: &str, options: &str, text: &str) -> Result<Option<(usize, usize)>, String> {
        let options = Options::of(options.as_bytes())?;
        let mut patterns = Patterns::default();
        let found = patterns.find(pattern.as_bytes(), options, text.as_bytes(), 0, &|_| false)?;
        Ok(found.and_then(|found| found.place(0)).map(|place| (place.start, place.end)))
    }

    #[test]
    fn syntax_has_the_meaning_of_pcre() {
        for (pattern, options, text, place) in [
            ("[[a]+", "", "b[a[", Some((1, 4))),
            ("[]a]+", "", "x]a", Some((1, 3))),
            ("[^]a]+", "", "]xy", Some((1, 3))),
            ("[a&&b]+", "", "&a", Some((0, 2))),
            ("[[:digit:]x]+", "", "a1x", Some((1, 3))),
            ("[\\w.-]+", "", "/a.b-c/", Some((1, 6))),
            ("[\\w-.]+", "", "/a.b-c/", Some((1, 6))),
            ("a\\012\\0b", "", "a\n\0b", Some((0, 4))),
            ("[\\000-\\037]", "", "a\tb", Some((1, 2))),
            ("\\cA\\cj", "", "\x01\n", Some((0, 2))),
            ("a{", "", "xa{", Some((1, 3))),
            ("a{2,}?", "", "aaa", Some((0, 2))),
            ("a\\/b\\_\\\"", "", "a/b_\"", Some((0, 5))),
            ("\\h+\\R", "", "a \t\r\n", Some((1, 5))),
            ("(?i)AB|c", "", "ab", Some((0, 2))),
            ("^b$", "m", "a\nb\nc", Some((2, 3))),
            ("a.b", "", "a\nb", None),
            ("a.b", "s", "a\nb", Some((0, 3))),
            ("a b # c", "x", "ab", Some((0, 2))),
            ("b", "a", "ab", None),
            ("^.$", "u", "\u{fc}", Some((0, 2))),
            ("^.$", "", "\u{fc}", None),
            ("\\w", "u", "\u{fc}", None),
            ("\\w", "", "\u{fc}", None),
            ("(?'n'a)(?#note)b", "", "ab", Some((0, 2))),
            ("ab|abc", "", "abc", Some((0, 2))),
        ] {
            assert_eq!(find(pattern, options, text), Ok(place), "{pattern} {options}");
        }
    }

    #[test]
    fn pattern_that_needs_backtracking_is_refused_and_a_search_is_bounded() {
        for pattern in [
            "(a)\\1", "a(?=b)", "(?<!a)b", "(?>a)", "a++", "a*+b", "(?|a)", "\\Ka", "[a", "(a",
            "a\\",
        ] {
            assert!(find(pattern, "", "ab").is_err(), "{pattern}");
        }
        assert!(find("a", "q", "a").is_err_and(|error| error.contains("unknown flag")));
        assert!(find("((a{1000}){1000})", "", "a").is_err(), "it is too large");
        let text = "a".repeat(100_000);
        assert_eq!(find("(a*)*b", "", &text), Ok(None));
        let large = "x".repeat(10_000_000);
        assert!(
            find("(a|b|[c-f]|ghi){200}", "", &large).is_err_and(|error| error.contains("too long"))
        );
        assert_eq!(Patterns::default().patterns.len(), 0);
    }

    #[test]
    fn number_of_compiled_patterns_is_limited() {
        let mut patterns = Patterns::default();
        for number in 0..PATTERNS_MAX + 10 {
            let pattern = format!("a{number}");
            let found = patterns.find(pattern.as_bytes(), Options::default(), b"a3", 0, &|_| false);
            assert_eq!(found.is_ok_and(|found| found.is_some()), number == 3);
            assert!(patterns.find(b"kept", Options::default(), b"kept", 0, &|_| false).is_ok());
        }
        assert_eq!(patterns.patterns.len(), PATTERNS_MAX);
        assert!(patterns.patterns.keys().any(|(_, pattern)| pattern == b"kept"));
    }
}
