//! Parameters of a path: the segments of a request's path that stand for `{name}` in the pattern of its route.
//! In: the pattern of a route that matches, the path as the client sent it. Out: names and decoded values.
//! Never: decides whether the path matches.

use tidegate_config::model::{PathPattern, Segment};

use crate::path::canonical_pattern;

/// The parameters of `path` in the first of `patterns` that matches it. Values are percent-decoded once; invalid UTF-8
/// is replaced.
#[must_use]
pub fn path_parameters(patterns: &[PathPattern], path: &str) -> Vec<(String, String)> {
    let is_segments = |pattern: &PathPattern| matches!(pattern, PathPattern::Segments { .. });
    if !patterns.iter().any(is_segments) {
        return Vec::new();
    }
    // The router compares normalised paths.
    let path = canonical_pattern(path);
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    patterns.iter().find_map(|pattern| of_pattern(pattern, &parts)).unwrap_or_default()
}

/// The parameters, if the pattern matches.
fn of_pattern(pattern: &PathPattern, parts: &[&str]) -> Option<Vec<(String, String)>> {
    let PathPattern::Segments { segments, open_end } = pattern else { return None };
    if parts.len() < segments.len() || (parts.len() > segments.len() && !open_end) {
        return None;
    }
    let mut found = Vec::new();
    for (segment, part) in segments.iter().zip(parts) {
        match segment {
            Segment::Any(name) if !part.is_empty() => found.push((name.clone(), decoded(part))),
            Segment::Literal(literal) if canonical_pattern(literal) == *part => {}
            Segment::Any(_) | Segment::Literal(_) => return None,
        }
    }
    Some(found)
}

fn decoded(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let digit = |at: usize| tail.get(at).and_then(|digit| (*digit as char).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_the_segments_in_place_of_names() {
        let any = |name: &str| Segment::Any(name.to_owned());
        let segments = vec![any("user"), Segment::Literal("posts".to_owned()), any("post")];
        let pattern = PathPattern::Segments { segments, open_end: true };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let single = PathPattern::Segments { segments: vec![any("only")], open_end: false };
        let patterns = [PathPattern::Exact("/a".to_owned()), pattern, single];
        let found = |path| path_parameters(&patterns, path);
        assert_eq!(found("/./a%20b/x/../posts/%7/more"), [pair("user", "a b"), pair("post", "%7")]);
        assert_eq!(found("/one"), [pair("only", "one")]);
        assert_eq!(found("/one/two"), []);
        assert_eq!(path_parameters(&patterns[..1], "/a"), []);
    }
}
