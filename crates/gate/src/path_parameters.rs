//! Parameters of a path: the segments of a request's path that `{name}` in the pattern of its route matches.
//! In: the pattern of a route that matches, the path as the client sent it. Out: names and decoded values.
//! Never: decides whether the path matches.

use tidegate_config::model::PathPattern;

use crate::rewrite::MatchedPath;
use crate::router::canonical_path;

/// The parameters of `path` in the first of `patterns` that matches it. Values are percent-decoded once; invalid UTF-8
/// is replaced.
#[must_use]
pub fn path_parameters(patterns: &[PathPattern], path: &str) -> Vec<(String, String)> {
    let is_segments = |pattern: &PathPattern| matches!(pattern, PathPattern::Segments { .. });
    if !patterns.iter().any(is_segments) {
        return Vec::new();
    }
    let patterns: Vec<PathPattern> = patterns.iter().map(canonical_path).collect();
    let mut scratch = Vec::new();
    let matched = MatchedPath::new(path, &patterns, &mut scratch);
    matched.segments().map(|(name, value)| (name.to_owned(), decoded(value))).collect()
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
    use tidegate_config::model::Segment;

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
