//! The two formats in which the kernel writes a set of CPUs: lists (`0-3,8`) and masks (`00000000,0000010f`).
//! In: their text. Out: sorted CPU numbers, and back.
//! Limits: `CPUS_MAX`; a string that names a higher CPU number is refused, so that no input creates a huge list.

/// Maximum number of CPUs in a set (Linux supports up to 8192).
pub const CPUS_MAX: u32 = 8192;

/// CPU numbers from a list such as `0-3,8`; `None` if the text is not a list.
#[must_use]
pub fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (first.trim().parse().ok()?, last.trim().parse().ok()?),
            None => {
                let only: u32 = part.trim().parse().ok()?;
                (only, only)
            }
        };
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// CPU numbers from a mask such as `00000000,0000000f`; `None` if the text is not a mask.
#[must_use]
pub fn parse_mask(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    let mut bit = 0;
    for digit in text.trim().chars().rev().filter(|c| *c != ',') {
        let value = digit.to_digit(16)?;
        cpus.extend((0..4).filter(|shift| value >> shift & 1 == 1).map(|shift| bit + shift));
        bit += 4;
        if bit > CPUS_MAX {
            return None;
        }
    }
    Some(cpus)
}

/// A list such as `0-3,8` from sorted CPU numbers.
#[must_use]
pub fn list_text(cpus: &[u32]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = cpus.iter().copied().peekable();
    while let Some(first) = rest.next() {
        let mut last = first;
        while rest.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        parts.push(if first == last { first.to_string() } else { format!("{first}-{last}") });
    }
    parts.join(",")
}

/// A mask such as `f` or `1,00000000` (groups of 32 bits) from CPU numbers.
#[must_use]
pub fn mask_text(cpus: &[u32]) -> String {
    let groups = cpus.iter().max().map_or(1, |last| last / 32 + 1);
    let mut words = vec![0u32; groups as usize];
    for cpu in cpus {
        if let Some(word) = words.get_mut((cpu / 32) as usize) {
            *word |= 1 << (cpu % 32);
        }
    }
    let mut text = String::new();
    for (position, word) in words.iter().rev().enumerate() {
        text.push_str(&if position == 0 { format!("{word:x}") } else { format!(",{word:08x}") });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_masks_round_trip() {
        for list in ["0", "0-3,8", "1,3,5-7", "0-63,95"] {
            let cpus = parse_list(list).unwrap();
            assert_eq!(list_text(&cpus), list);
            assert_eq!(parse_mask(&mask_text(&cpus)).unwrap(), cpus);
        }
        assert_eq!(mask_text(&[32]), "1,00000000");
        assert_eq!(parse_mask("00000000,0000000f"), Some(vec![0, 1, 2, 3]));
    }

    #[test]
    fn invalid_text_is_refused() {
        for text in ["3-1", "x", "0-", "0-9999999", "4294967295"] {
            assert_eq!(parse_list(text), None, "{text}");
        }
        assert_eq!(parse_mask("zz"), None);
        assert_eq!(parse_list(""), Some(vec![]));
    }
}
