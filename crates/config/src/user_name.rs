//! The names that users with passwords may have: names that header fields and paths can contain unchanged.
//! In: a name. Out: what is wrong with it.
//! Invariant: `{user}` of an accepted name can be placed wherever a route may name it.

/// What is wrong with a name, if anything is.
#[must_use]
pub fn fault_of(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("the name of the user is missing");
    }
    if name.chars().any(char::is_control) {
        return Some("the name of the user has a control character");
    }
    if name.trim_ascii().len() < name.len() {
        // The receiver of a field would remove it, and read the name of another user.
        return Some("the name of the user begins or ends with whitespace");
    }
    if name.split(['/', '\\']).any(is_dot_segment) {
        return Some("the name of the user contains the path segment `.` or `..`");
    }
    None
}

/// Whether a server could take the part for `.` or `..`.
fn is_dot_segment(part: &str) -> bool {
    let part = part.split([';', '?', '#']).next().unwrap_or_default();
    let dots = part.replace(' ', "");
    let is_short = dots.len() <= 2 || dots.len() < part.len();
    !dots.is_empty() && is_short && dots.bytes().all(|byte| byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_message_would_change_are_refused() {
        for name in ["bob", "bob smith", "a.b@example.org", "j\u{fc}rgen", "a..b", "...", "a/b"] {
            assert_eq!(fault_of(name), None, "{name:?}");
        }
        for name in
            ["", " ", " bob", "bob ", "bob\t", "b\0b", "b\nb", ".", "..", "a/..", "..\\a", "..;a"]
        {
            assert!(fault_of(name).is_some(), "{name:?}");
        }
    }
}
