//! Finds the known name that a misspelt word most likely means, by bounded edit distance.
//! In: a word and the known names. Out: the nearest name, if it is near enough to be a useful suggestion.
//! Limits: words longer than `WORD_CHARS_MAX` have no nearest name.

/// Maximum number of characters of a word that is compared.
const WORD_CHARS_MAX: usize = 64;

/// The name in `known` with the fewest edits: up to a third of the word's letters, but at least two.
pub(crate) fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let letters = word.chars().count();
    if letters > WORD_CHARS_MAX {
        return None;
    }
    let reach = (letters / 3).max(2).min(letters.saturating_sub(1));
    known
        .into_iter()
        .map(|name| (distance(word, name), name))
        .filter(|&(edits, _)| edits <= reach)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, name)| name)
}

/// Number of insertions, deletions and replacements that turn `from` into `to`. Case is ignored, and `_`
/// equals `-`.
fn distance(from: &str, to: &str) -> usize {
    let fold = |c: char| {
        if c == '_' { '-' } else { c.to_ascii_lowercase() }
    };
    let to: Vec<char> = to.chars().map(fold).collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().map(fold).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_name_is_found_and_far_name_is_not() {
        let known = ["shutdown-grace", "workers", "via"];
        assert_eq!(nearest("worker", known), Some("workers"));
        assert_eq!(nearest("Shutdown_Grace", known), Some("shutdown-grace"));
        assert_eq!(nearest("vai", known), Some("via"));
        assert_eq!(nearest("x", known), None, "a single letter has no nearest name");
        assert_eq!(nearest("listener", known), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
