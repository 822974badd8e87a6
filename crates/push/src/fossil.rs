//! Patches between two texts, in the delta format of Fossil, which Centrifugo's client libraries apply.
//! In: the previous and the new text; a patch. Out: a patch; the new text.
//! Never: cuts a character, so that a patch is text, too; reads or writes more than `LENGTH_MAX` allows.
//! Limits: texts of `LENGTH_MAX`; `CANDIDATES_MAX` places of the previous text are compared with each place of the new one.
//! Invariant: a patch is shorter than the new text; applied to the previous text, it results in the new text.

/// The longest text that is patched. A patch of two texts of this length takes less than a millisecond.
pub const LENGTH_MAX: usize = 128 << 10;
/// The bytes that are looked up at once: shorter common parts are not found.
const WINDOW: usize = 8;
/// Every place of a previous text of up to this length is looked up; of a longer text, every `WINDOW`th place.
const DENSE_LENGTH_MAX: usize = 4096;
/// How many places of the previous text are compared with a place of the new text.
const CANDIDATES_MAX: usize = 8;
/// The bytes that a copy must save, because the text after it needs its own length.
const COPY_MARGIN: usize = 2;

/// The digits of numbers, in the order of their values.
const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz~";

/// A patch that makes `new` of `previous`; `None` if it would not be shorter than `new`, or if a text is too long.
#[must_use]
pub fn encode(previous: &str, new: &str) -> Option<String> {
    if previous.len() > LENGTH_MAX || new.len() > LENGTH_MAX || previous.len() < WINDOW {
        return None;
    }
    let places = Places::new(previous.as_bytes());
    let mut patch = Patch { out: String::new(), length_max: new.len() };
    patch.number(new.len());
    patch.out.push('\n');
    // The new text after `written` is not in the patch yet.
    let (mut at, mut written) = (0, 0);
    while let Some(window) = window_at(new.as_bytes(), at) {
        let found = places.longest(window, new, at, written);
        let Some(found) = found.filter(Copy::is_worthwhile) else {
            at += 1;
            continue;
        };
        patch.insert(new.get(written..found.to)?)?;
        patch.copy(&found)?;
        written = found.to + found.length;
        at = written;
    }
    patch.insert(new.get(written..)?)?;
    patch.number(checksum(new.as_bytes()) as usize);
    patch.out.push(';');
    (patch.out.len() < new.len()).then_some(patch.out)
}

/// A patch that is being built.
struct Patch {
    /// The patch so far.
    out: String,
    /// The length at which the patch is given up, because the new text is not longer.
    length_max: usize,
}

impl Patch {
    fn number(&mut self, number: usize) {
        let digits = digits_of(number);
        for place in (0..digits).rev() {
            self.out.push(char::from(DIGITS[number >> (6 * place) & 63]));
        }
    }

    fn insert(&mut self, text: &str) -> Option<()> {
        if !text.is_empty() {
            self.number(text.len());
            self.out.push(':');
            self.out.push_str(text);
        }
        (self.out.len() < self.length_max).then_some(())
    }

    fn copy(&mut self, copy: &Copy) -> Option<()> {
        self.number(copy.length);
        self.out.push('@');
        self.number(copy.from);
        self.out.push(',');
        (self.out.len() < self.length_max).then_some(())
    }
}

/// A part of the new text that is in the previous text, too.
#[derive(Clone, Copy)]
struct Copy {
    /// Its place in the previous text.
    from: usize,
    /// Its place in the new text.
    to: usize,
    /// Its length in bytes.
    length: usize,
}

impl Copy {
    /// Whether the command is shorter than the text.
    fn is_worthwhile(&self) -> bool {
        self.length > digits_of(self.length) + digits_of(self.from) + "@,".len() + COPY_MARGIN
    }

    /// The part without incomplete characters at its ends.
    fn of_whole_characters(mut self, new: &str) -> Self {
        while self.length > 0 && !new.is_char_boundary(self.to) {
            (self.from, self.to, self.length) = (self.from + 1, self.to + 1, self.length - 1);
        }
        while self.length > 0 && !new.is_char_boundary(self.to + self.length) {
            self.length -= 1;
        }
        self
    }
}

/// The places of a text, by a hash of the bytes there.
struct Places<'p> {
    /// The text.
    text: &'p [u8],
    /// The distance between two places.
    step: usize,
    /// By hash: the last place with the hash, counted from 1; 0: there is no such place.
    last: Vec<u32>,
    /// By place: the place before it with the same hash, counted as in `last`.
    before: Vec<u32>,
    /// The number of bits of a hash.
    bits: u32,
}

impl<'p> Places<'p> {
    fn new(text: &'p [u8]) -> Self {
        let step = if text.len() <= DENSE_LENGTH_MAX { 1 } else { WINDOW };
        let count = (text.len() - WINDOW) / step + 1;
        let bits = count.next_power_of_two().trailing_zeros().max(1);
        let mut places =
            Self { text, step, last: vec![0; 1 << bits], before: vec![0; count], bits };
        // Backwards, so that the first places are the first candidates.
        for place in (0..count).rev() {
            let Some(window) = window_at(text, place * step) else { continue };
            let hash = places.hash(window);
            places.before[place] = core::mem::replace(&mut places.last[hash], place as u32 + 1);
        }
        places
    }

    fn hash(&self, window: u64) -> usize {
        (window.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - self.bits)) as usize
    }

    /// The longest part of the text that is in `new` around `at`, not before `written`.
    fn longest(&self, window: u64, new: &str, at: usize, written: usize) -> Option<Copy> {
        let mut longest: Option<Copy> = None;
        let mut next = self.last[self.hash(window)];
        for _ in 0..CANDIDATES_MAX {
            let Some(place) = (next as usize).checked_sub(1) else { break };
            next = self.before[place];
            let from = place * self.step;
            let length = common_start(&self.text[from..], &new.as_bytes()[at..]);
            if length >= WINDOW && longest.is_none_or(|longest| length > longest.length) {
                longest = Some(Copy { from, to: at, length });
            }
        }
        let mut copy = longest?;
        let (before, earlier) = (&self.text[..copy.from], &new.as_bytes()[written..at]);
        let back = before.iter().rev().zip(earlier.iter().rev()).take_while(|(a, b)| a == b);
        let back = back.count();
        (copy.from, copy.to, copy.length) = (copy.from - back, at - back, copy.length + back);
        Some(copy.of_whole_characters(new))
    }
}

/// How many bytes at the start of two texts are the same.
fn common_start(a: &[u8], b: &[u8]) -> usize {
    let (words, others) = (a.chunks_exact(WINDOW), b.chunks_exact(WINDOW));
    let same = WINDOW * words.zip(others).take_while(|(a, b)| a == b).count();
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

fn window_at(text: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*text.get(at..)?.first_chunk()?))
}

fn digits_of(number: usize) -> usize {
    (usize::BITS - number.leading_zeros()).div_ceil(6).max(1) as usize
}

/// The sum of the text's words of four bytes, of which the last one is filled up with zeros.
fn checksum(text: &[u8]) -> u32 {
    let (words, rest) = text.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]);
    words.fold(0, |sum: u32, word| sum.wrapping_add(u32::from_be_bytes(*word)))
}

/// The bytes are not a patch, or not a patch of this text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Applies a patch to the previous text.
///
/// # Errors
/// The patch is malformed, belongs to another text, or results in a text that is longer than `LENGTH_MAX`.
pub fn apply(previous: &[u8], patch: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut rest = patch;
    let (length, b'\n') = take_command(&mut rest)? else { return Err(Malformed) };
    if length > LENGTH_MAX {
        return Err(Malformed);
    }
    let mut new = Vec::new();
    loop {
        let part = match take_command(&mut rest)? {
            (count, b'@') => {
                let (from, b',') = take_command(&mut rest)? else { return Err(Malformed) };
                let end = from.checked_add(count).ok_or(Malformed)?;
                previous.get(from..end).ok_or(Malformed)?
            }
            (count, b':') => {
                let (part, after) = rest.split_at_checked(count).ok_or(Malformed)?;
                rest = after;
                part
            }
            (sum, b';') => {
                let is_right = new.len() == length && sum == checksum(&new) as usize;
                return if is_right && rest.is_empty() { Ok(new) } else { Err(Malformed) };
            }
            _ => return Err(Malformed),
        };
        if part.len() > length - new.len() {
            return Err(Malformed);
        }
        new.extend_from_slice(part);
    }
}

/// Takes a number, and the character after it.
fn take_command(rest: &mut &[u8]) -> Result<(usize, u8), Malformed> {
    let mut number = 0_usize;
    loop {
        let (&byte, after) = rest.split_first().ok_or(Malformed)?;
        *rest = after;
        let Some(digit) = DIGITS.iter().position(|digit| *digit == byte) else {
            return Ok((number, byte));
        };
        if number > usize::from(u16::MAX) << 16 {
            return Err(Malformed);
        }
        number = number << 6 | digit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn patched(previous: &str, new: &str) -> Option<usize> {
        let patch = encode(previous, new)?;
        assert!(patch.len() < new.len());
        let result = apply(previous.as_bytes(), patch.as_bytes());
        assert_eq!(result.as_deref(), Ok(new.as_bytes()), "{patch:?}");
        Some(patch.len())
    }

    #[test]
    fn patch_has_the_format_of_fossil() {
        let previous = "{\"symbol\":\"EURUSD\",\"price\":1.0825,\"venue\":\"somewhere\"}";
        let new = "{\"symbol\":\"EURUSD\",\"price\":1.0826,\"venue\":\"somewhere\"}";
        let patch = encode(previous, new).expect("a patch");
        assert_eq!(patch, "r\nW@0,1:6L@X,1W7FIF;");
        assert_eq!(apply(previous.as_bytes(), patch.as_bytes()).as_deref(), Ok(new.as_bytes()));
    }

    #[test]
    fn patches_are_made_only_where_they_are_shorter() {
        let long = "0123456789abcdef".repeat(100);
        for (previous, new, expected) in [
            ("", "", false),
            ("1", "2", false),
            ("[1,2,3]", "[1,2,3]", false),
            (&long, &long, true),
            (&long, "x", false),
            ("x", &long, false),
            (&"é".repeat(50), &format!("{}è{}", "é".repeat(25), "é".repeat(25)), true),
            (&"a".repeat(LENGTH_MAX + 1), &long, false),
            (&long, &long.repeat(LENGTH_MAX / long.len() + 1), false),
        ] {
            assert_eq!(patched(previous, new).is_some(), expected, "{previous:.20} {new:.20}");
        }
    }

    #[test]
    fn patches_of_long_texts_are_short() {
        let line = |at: usize| format!("{{\"id\":{at},\"price\":{}}},", at * 7919 % 1000);
        let previous: String = (0..4000).map(line).collect();
        for at in [0, previous.len() / 2, previous.len()] {
            let new = format!("{}é!{}", &previous[..at], &previous[at..]);
            assert!(patched(&previous, &new).is_some_and(|length| length < 60), "{at}");
        }
    }

    /// The number of candidates bounds the work, whatever the texts are.
    #[test]
    fn repetitive_texts_take_bounded_work() {
        let zeros = "0".repeat(LENGTH_MAX);
        let nearly: String = (0..LENGTH_MAX / 9).map(|_| "00000000x").collect();
        let waves: String = (0..LENGTH_MAX / 8)
            .map(|at| if at % 3 == 0 { "01010101" } else { "10101010" })
            .collect();
        for previous in [&zeros, &nearly, &waves] {
            for new in [&zeros, &nearly, &waves] {
                patched(previous, new);
            }
        }
    }

    #[test]
    fn malformed_patches_are_refused() {
        for patch in [
            "",
            "5",
            "5\n",
            "5\n5@0,",
            "5\n5@0,0;",
            "5\n6@0,0;",
            "5\n9@0,0;",
            "5\n5:ab",
            "5\n4@2,0;",
            "zzzzzzzzzzzz\n0;",
            "5\n5@zzzzzzzzzzz,0;",
            "0\n0;x",
            "0\n1;",
            "5 5",
            "W~~~\n0;",
        ] {
            assert_eq!(apply(b"abcde", patch.as_bytes()), Err(Malformed), "{patch}");
        }
        assert_eq!(apply(b"abcde", b"0\n0;"), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn patch_of_any_edit_restores_the_new_text(
            words in proptest::collection::vec("[a-f é]{1,12}", 0..200), at in any::<prop::sample::Index>(),
            gone in 0_usize..60, added in "\\PC{0,40}",
        ) {
            let previous = words.concat();
            let characters: Vec<char> = previous.chars().collect();
            let at = at.index(characters.len() + 1);
            let end = (at + gone).min(characters.len());
            let start: String = characters[..at].iter().collect();
            let rest: String = characters[end..].iter().collect();
            patched(&previous, &format!("{start}{added}{rest}"));
            patched(&previous, &format!("{rest}{added}{start}"));
        }

        #[test]
        fn patch_between_any_texts_restores_the_new_text(previous in "\\PC{0,300}", new in "\\PC{0,300}") {
            patched(&previous, &new);
            patched(&format!("{new}{previous}"), &format!("{previous}{new}{previous}"));
        }

        #[test]
        fn any_patch_is_applied_or_refused(
            previous in proptest::collection::vec(any::<u8>(), 0..50),
            patch in "[0-9a-c]{0,3}\n([0-3]@[0-9]{1,2},|[0-3]:[a-c]{0,3}){0,5}[0-9a-z]{1,6};",
        ) {
            let _ = apply(&previous, patch.as_bytes());
        }
    }
}
