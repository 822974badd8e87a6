//! Parameters of a path: the segments of a request's path that stand for `{name}` in the pattern of its route.
//! In: the pattern of a route that matches, the path as the client sent it. Out: names and decoded values.
//! Never: decides whether the path matches.

use tidegate_config::model::{PathPattern, Segment};

use crate::path::canonical_pattern;

/// The parameters of `path`, which `pattern` matches. Values are percent-decoded once; invalid UTF-8 is replaced.
#[must_use]
pub fn of(pattern: Option<&PathPattern>, path: &str) -> Vec<(String, String)> {
    let Some(PathPattern::Segments { segments, .. }) = pattern else { return Vec::new() };
    // The router compares normalised paths.
    let path = canonical_pattern(path);
    let parts = path.split('/').skip(1);
    let pairs = segments.iter().zip(parts).filter_map(|(segment, part)| match segment {
        Segment::Any(name) => Some((name.clone(), decoded(part))),
        Segment::Literal(_) => None,
    });
    pairs.collect()
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
        assert_eq!(
            of(Some(&pattern), "/./a%20b/x/../posts/%7/more"),
            [pair("user", "a b"), pair("post", "%7")]
        );
        assert_eq!(of(Some(&PathPattern::Exact("/a".to_owned())), "/a"), []);
        assert_eq!(of(None, "/a"), []);
    }
}
