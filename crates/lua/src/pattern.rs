//! Lua's patterns, with a bound on the work: LuaJIT's own matcher runs in C, where no budget can stop it, and a pattern such as
//! `.-.-.-.-x` takes years on a string of some kilobytes.
//! In: a string, a pattern (Lua 5.1 reference manual section 5.4.1, and `%f`), the position to begin at. Out: the match.
//! Never: recurses deeper than `DEPTH_MAX`; continues after `spend` has refused further steps.
//! Limits: `CAPTURES_MAX` captures; `STEPS_PER_CHECK` steps between two checks of the budget.

use core::ops::Range;

/// Maximum number of captures of a pattern.
pub(crate) const CAPTURES_MAX: usize = 32;
/// Maximum number of nested calls of the matcher, one for each capture or repetition in a row.
const DEPTH_MAX: usize = 200;
/// Steps between two checks of the budget.
const STEPS_PER_CHECK: u32 = 4096;
const ESCAPE: u8 = b'%';

/// The value of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Capture {
    /// A part of the text.
    Text(usize, usize),
    /// A position, from 1 (`()`).
    Position(usize),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Length {
    Open,
    Position,
    Closed(usize),
}

/// A match: where it is, and its captures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Match {
    /// The matched part of the text.
    pub(crate) place: Range<usize>,
    /// The captures, in order.
    pub(crate) captures: Vec<Capture>,
}

/// Finds the first match of `pattern` in `text` at or after `from`. With `is_anchored`, a `^` at the start of the pattern
/// allows a match at `from` only; otherwise it is an ordinary character. `spend` counts steps and returns whether to stop.
pub(crate) fn find(
    text: &[u8],
    pattern: &[u8],
    from: usize,
    is_anchored: bool,
    spend: &dyn Fn(u64) -> bool,
) -> Result<Option<Match>, &'static str> {
    let (anchor, pattern) = match pattern.strip_prefix(b"^") {
        Some(rest) if is_anchored => (true, rest),
        _ => (false, pattern),
    };
    let mut matcher = Matcher {
        text,
        pattern,
        captures: [(0, Length::Open); CAPTURES_MAX],
        level: 0,
        depth: 0,
        steps: 0,
        spend,
    };
    for start in from..=text.len() {
        matcher.level = 0;
        if let Some(end) = matcher.run(start, 0)? {
            let captures = (0..matcher.level).map(|at| matcher.capture(at));
            let captures = captures.collect::<Result<_, _>>()?;
            return Ok(Some(Match { place: start..end, captures }));
        }
        if anchor {
            break;
        }
    }
    Ok(None)
}

/// Whether the pattern contains no special character, so that it only matches itself.
pub(crate) fn is_plain(pattern: &[u8]) -> bool {
    !pattern.iter().any(|byte| b"^$*+?.([%-".contains(byte))
}

/// The state of one search.
struct Matcher<'a> {
    /// The text in which a match is searched.
    text: &'a [u8],
    /// The pattern, without the `^` that anchors it.
    pattern: &'a [u8],
    /// Begin and length of each capture.
    captures: [(usize, Length); CAPTURES_MAX],
    /// Captures that were begun.
    level: usize,
    /// Nested calls of `run`, at most `DEPTH_MAX`.
    depth: usize,
    /// Steps since the last check of the budget.
    steps: u32,
    /// Counts steps; returns whether to stop.
    spend: &'a dyn Fn(u64) -> bool,
}

type Found = Result<Option<usize>, &'static str>;

impl Matcher<'_> {
    fn step(&mut self) -> Result<(), &'static str> {
        self.count_steps(1)
    }

    /// Counts the steps of work that takes time in proportion to `count`.
    fn count_steps(&mut self, count: usize) -> Result<(), &'static str> {
        self.steps = self.steps.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if self.steps < STEPS_PER_CHECK {
            return Ok(());
        }
        match (self.spend)(u64::from(core::mem::take(&mut self.steps))) {
            true => Err("the callback exceeds its budget"),
            false => Ok(()),
        }
    }

    /// Matches the pattern from `p` on against the text from `s` on. Returns where the match ends.
    fn run(&mut self, s: usize, p: usize) -> Found {
        if self.depth == DEPTH_MAX {
            return Err("pattern too complex");
        }
        self.depth += 1;
        let found = self.items(s, p);
        self.depth -= 1;
        found
    }

    fn items(&mut self, mut s: usize, mut p: usize) -> Found {
        loop {
            self.step()?;
            let Some(&item) = self.pattern.get(p) else { return Ok(Some(s)) };
            match item {
                b'(' if self.pattern.get(p + 1) == Some(&b')') => {
                    return self.open(s, p + 2, Length::Position);
                }
                b'(' => return self.open(s, p + 1, Length::Open),
                b')' => return self.close(s, p + 1),
                b'$' if p + 1 == self.pattern.len() => {
                    return Ok((s == self.text.len()).then_some(s));
                }
                ESCAPE => match self.pattern.get(p + 1) {
                    Some(b'b') => match self.balance(s, p + 2)? {
                        Some(end) => (s, p) = (end, p + 4),
                        None => return Ok(None),
                    },
                    Some(b'f') => {
                        if self.pattern.get(p + 2) != Some(&b'[') {
                            return Err("missing '[' after '%f' in pattern");
                        }
                        let end = self.class_end(p + 2)?;
                        self.count_steps(end - p)?;
                        let before = if s == 0 { 0 } else { self.text[s - 1] };
                        let here = self.text.get(s).copied().unwrap_or(0);
                        if self.is_in_set(before, p + 2, end) || !self.is_in_set(here, p + 2, end) {
                            return Ok(None);
                        }
                        p = end;
                    }
                    Some(digit @ b'0'..=b'9') => match self.back_reference(s, *digit)? {
                        Some(end) => (s, p) = (end, p + 2),
                        None => return Ok(None),
                    },
                    _ => match self.single(s, p)? {
                        Single::Next(next_s, next_p) => (s, p) = (next_s, next_p),
                        Single::Done(found) => return Ok(found),
                    },
                },
                _ => match self.single(s, p)? {
                    Single::Next(next_s, next_p) => (s, p) = (next_s, next_p),
                    Single::Done(found) => return Ok(found),
                },
            }
        }
    }

    /// A class of characters and its repetition.
    fn single(&mut self, s: usize, p: usize) -> Result<Single, &'static str> {
        let end = self.class_end(p)?;
        self.count_steps(end - p)?;
        let fits = s < self.text.len() && self.fits(self.text[s], p, end);
        Ok(match self.pattern.get(end) {
            Some(b'?') => {
                if fits && let Some(found) = self.run(s + 1, end + 1)? {
                    Single::Done(Some(found))
                } else {
                    Single::Next(s, end + 1)
                }
            }
            Some(b'*') => Single::Done(self.longest(s, p, end, 0)?),
            Some(b'+') => Single::Done(if fits { self.longest(s, p, end, 1)? } else { None }),
            Some(b'-') => Single::Done(self.shortest(s, p, end)?),
            _ if fits => Single::Next(s + 1, end),
            _ => Single::Done(None),
        })
    }

    fn longest(&mut self, s: usize, p: usize, end: usize, least: usize) -> Found {
        let mut count = 0;
        while s + count < self.text.len() && self.fits(self.text[s + count], p, end) {
            self.count_steps(end - p)?;
            count += 1;
        }
        for count in (least..=count).rev() {
            if let Some(found) = self.run(s + count, end + 1)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Found {
        loop {
            if let Some(found) = self.run(s, end + 1)? {
                return Ok(Some(found));
            }
            if s < self.text.len() && self.fits(self.text[s], p, end) {
                self.count_steps(end - p)?;
                s += 1;
            } else {
                return Ok(None);
            }
        }
    }

    fn open(&mut self, s: usize, p: usize, length: Length) -> Found {
        if self.level == CAPTURES_MAX {
            return Err("too many captures");
        }
        self.captures[self.level] = (s, length);
        self.level += 1;
        let found = self.run(s, p)?;
        if found.is_none() {
            self.level -= 1;
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize) -> Found {
        let open = (0..self.level).rev().find(|at| self.captures[*at].1 == Length::Open);
        let Some(at) = open else { return Err("invalid pattern capture") };
        self.captures[at].1 = Length::Closed(s - self.captures[at].0);
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures[at].1 = Length::Open;
        }
        Ok(found)
    }

    fn back_reference(&mut self, s: usize, digit: u8) -> Found {
        let at = usize::from(digit.wrapping_sub(b'1'));
        let (start, Length::Closed(length)) = self.captures[at.min(CAPTURES_MAX - 1)] else {
            return Err("invalid capture index");
        };
        if digit == b'0' || at >= self.level {
            return Err("invalid capture index");
        }
        self.count_steps(length)?;
        let same = self.text[s..].starts_with(&self.text[start..start + length]);
        Ok(same.then_some(s + length))
    }

    fn balance(&mut self, s: usize, p: usize) -> Found {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err("unbalanced pattern");
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for (at, &byte) in self.text.iter().enumerate().skip(s + 1) {
            self.step()?;
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// Where the class that begins at `p` ends.
    fn class_end(&self, p: usize) -> Result<usize, &'static str> {
        match self.pattern.get(p) {
            Some(&ESCAPE) => match p + 1 < self.pattern.len() {
                true => Ok(p + 2),
                false => Err("malformed pattern (ends with '%')"),
            },
            Some(b'[') => {
                let mut at = p + 1;
                if self.pattern.get(at) == Some(&b'^') {
                    at += 1;
                }
                // A bracket in the first place is an ordinary character.
                loop {
                    match self.pattern.get(at) {
                        None => return Err("malformed pattern (missing ']')"),
                        Some(&ESCAPE) => at += 2,
                        Some(_) => at += 1,
                    }
                    if self.pattern.get(at) == Some(&b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// Whether a character belongs to the class in `p..end`.
    fn fits(&self, byte: u8, p: usize, end: usize) -> bool {
        match self.pattern[p] {
            b'.' => true,
            ESCAPE => is_of_class(byte, self.pattern[p + 1]),
            b'[' => self.is_in_set(byte, p, end),
            literal => literal == byte,
        }
    }

    /// Whether a character belongs to the set in `p..end`, with its brackets.
    fn is_in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let mut set = &self.pattern[p + 1..end - 1];
        let is_negated = set.first() == Some(&b'^');
        if is_negated {
            set = &set[1..];
        }
        let mut at = 0;
        while at < set.len() {
            let is_found = match set[at] {
                ESCAPE if at + 1 < set.len() => {
                    at += 1;
                    is_of_class(byte, set[at])
                }
                first if at + 2 < set.len() && set[at + 1] == b'-' => {
                    at += 2;
                    (first..=set[at]).contains(&byte)
                }
                literal => literal == byte,
            };
            if is_found {
                return !is_negated;
            }
            at += 1;
        }
        is_negated
    }

    fn capture(&self, at: usize) -> Result<Capture, &'static str> {
        match self.captures[at] {
            (start, Length::Closed(length)) => Ok(Capture::Text(start, start + length)),
            (start, Length::Position) => Ok(Capture::Position(start + 1)),
            (_, Length::Open) => Err("unfinished capture"),
        }
    }
}

/// The result of matching a class.
enum Single {
    /// The match continues at these positions of the text and the pattern.
    Next(usize, usize),
    /// The match has ended or failed.
    Done(Option<usize>),
}

/// Whether a character belongs to `%class`.
fn is_of_class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => matches!(byte, b' ' | 9..=13),
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is != class.is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::*;

    fn matched<'t>(text: &'t str, pattern: &str) -> Option<(&'t str, Vec<&'t str>)> {
        let found = find(text.as_bytes(), pattern.as_bytes(), 0, true, &|_| false);
        let found = found.expect("the pattern is valid")?;
        let captures = found.captures.iter().map(|capture| match *capture {
            Capture::Text(from, to) => &text[from..to],
            Capture::Position(_) => "()",
        });
        Some((&text[found.place.clone()], captures.collect()))
    }

    #[test]
    fn patterns_match_as_the_manual_describes() {
        let table: [(&str, &str, Option<&str>, &[&str]); 20] = [
            ("hello world", "o w", Some("o w"), &[]),
            ("key = value", "^(%w+)%s*=%s*(%w+)$", Some("key = value"), &["key", "value"]),
            ("  trim me  ", "^%s*(.-)%s*$", Some("  trim me  "), &["trim me"]),
            ("aaa", "a-", Some(""), &[]),
            ("aaab", "a*b", Some("aaab"), &[]),
            ("ab", "a?b", Some("ab"), &[]),
            ("b", "a?b", Some("b"), &[]),
            ("f(a(b)c)d", "%b()", Some("(a(b)c)"), &[]),
            ("THE (quick) fox", "%f[%a]%a+%f[%A]", Some("THE"), &[]),
            ("\"it's\"", "([\"'])(.-)%1", Some("\"it's\""), &["\"", "it's"]),
            ("a]b", "[]]", Some("]"), &[]),
            ("a-b", "[a%-]+", Some("a-"), &[]),
            ("x^y", "[%^x]+", Some("x^"), &[]),
            ("abc", "[^a-b]", Some("c"), &[]),
            ("abc", "()b()", Some("b"), &["()", "()"]),
            ("a.b", "%.", Some("."), &[]),
            ("a$", "a$", None, &[]),
            ("a$b", "a$b", Some("a$b"), &[]),
            ("", "^$", Some(""), &[]),
            ("abc", "^b", None, &[]),
        ];
        for (text, pattern, place, captures) in table {
            let expected = place.map(|place| (place, captures.to_vec()));
            assert_eq!(matched(text, pattern), expected, "{pattern:?} in {text:?}");
        }
    }

    #[test]
    fn malformed_patterns_are_errors() {
        for pattern in ["%", "[a", "(a", "a)", "%b", "%f", "%1", "[%", "[^]"] {
            let found = find(b"aaaa", pattern.as_bytes(), 0, true, &|_| false);
            assert!(found.is_err(), "{pattern}: {found:?}");
        }
        let deep = "(".repeat(40);
        assert!(find(b"a", deep.as_bytes(), 0, true, &|_| false).is_err());
        let long = "a?".repeat(10_000);
        let text = "a".repeat(10_000);
        let found = find(text.as_bytes(), long.as_bytes(), 0, true, &|_| false);
        assert_eq!(found, Err("pattern too complex"));
    }

    #[test]
    fn steps_count_the_length_of_sets_and_references() {
        let spent = Cell::new(0);
        let spend = |steps| {
            spent.set(spent.get() + steps);
            spent.get() > 1_000_000
        };
        let text = "x".repeat(5000);
        for pattern in
            [format!("[{}]", "y".repeat(100_000)), format!("[^{}]*z", "y".repeat(100_000))]
        {
            spent.set(0);
            let found = find(text.as_bytes(), pattern.as_bytes(), 0, true, &spend);
            assert_eq!(found, Err("the callback exceeds its budget"), "{:?}", &pattern[..9]);
            assert!(spent.get() < 1_300_000, "{}", spent.get());
        }
        spent.set(0);
        let twice = "x".repeat(20_000);
        let found = find(twice.as_bytes(), b"(x+)%1y", 0, true, &spend);
        assert_eq!(found, Err("the callback exceeds its budget"));
    }

    #[test]
    fn catastrophic_pattern_stops_when_its_budget_is_used_up() {
        let text = "a".repeat(5000);
        let spent = Cell::new(0);
        let spend = |steps| {
            spent.set(spent.get() + steps);
            spent.get() > 1_000_000
        };
        let found = find(text.as_bytes(), b".-.-.-.-.-b", 0, true, &spend);
        assert_eq!(found, Err("the callback exceeds its budget"));
        assert!(spent.get() < 1_010_000);
    }
}
