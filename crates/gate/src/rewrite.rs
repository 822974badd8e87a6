//! The path of a request as its route sees it: the pattern that matched, the rest of the path after it, its named segments.
//! In: the path as received, the path patterns of the route. Out: parts of the path as received.
//! Never: decodes a part of the path, so that a server reads the part as the client wrote it.
//! Invariant: a path with dot segments is replaced by the path that they resolve to, which the route also matches.

use tidegate_config::model::{PathPattern, Segment};

use crate::path::{Normalized, Reach, normalize_path};
use crate::table::path_matches;

/// A path, and the pattern of its route that matches it.
#[derive(Clone, Copy, Debug)]
pub struct MatchedPath<'a> {
    /// The path as received; if it has dot segments, the path that they resolve to.
    text: &'a str,
    /// The pattern that matches; `None` if the route takes any path.
    pattern: Option<&'a PathPattern>,
}

impl<'a> MatchedPath<'a> {
    /// A path of which no part is needed.
    #[must_use]
    pub const fn whole(path: &'a str) -> Self {
        Self { text: path, pattern: None }
    }

    /// Finds the pattern among `patterns` (in canonical form) that matches `path`. `scratch` is overwritten.
    #[must_use]
    pub fn new(path: &'a str, patterns: &'a [PathPattern], scratch: &'a mut Vec<u8>) -> Self {
        let find = |path: &str| patterns.iter().find(|pattern| path_matches(pattern, path));
        match normalize_path(path, Reach::UNLIMITED, scratch) {
            Normalized::Same => Self { text: path, pattern: find(path) },
            Normalized::Equivalent(canonical) => Self { text: path, pattern: find(canonical) },
            Normalized::Changed { resolved, .. } => {
                Self { text: resolved, pattern: find(resolved) }
            }
            // The route was found by the first reading, which has the same segments.
            Normalized::Ambiguous(mut readings) => {
                Self { text: path, pattern: readings.next().and_then(find) }
            }
            // Such a request has no route.
            Normalized::Refused(_) => Self::whole(path),
        }
    }

    /// The path.
    #[must_use]
    pub const fn text(&self) -> &'a str {
        self.text
    }

    /// The part that `*` at the end of the pattern matches; without a pattern, the path without its first slash.
    #[must_use]
    pub fn rest(&self) -> &'a str {
        let slashes = match self.pattern {
            None => 1,
            Some(PathPattern::Below(prefix)) => prefix.matches('/').count(),
            Some(PathPattern::Segments { segments, open_end: true }) => segments.len() + 1,
            Some(PathPattern::Exact(_) | PathPattern::Segments { open_end: false, .. }) => {
                return "";
            }
        };
        let last = self.text.match_indices('/').nth(slashes.saturating_sub(1));
        last.and_then(|(at, _)| self.text.get(at + 1..)).unwrap_or_default()
    }

    /// The segment that the pattern gives this name.
    #[must_use]
    pub fn segment(&self, name: &str) -> &'a str {
        let found = self.segments().find(|(own, _)| *own == name);
        found.map_or("", |(_, value)| value)
    }

    /// The named segments of the pattern, in order: name, and segment of the path.
    pub fn segments(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let segments: &[Segment] = match self.pattern {
            Some(PathPattern::Segments { segments, .. }) => segments,
            Some(PathPattern::Exact(_) | PathPattern::Below(_)) | None => &[],
        };
        // The first part is empty, before the first slash.
        let parts = self.text.split('/').skip(1);
        segments.iter().zip(parts).filter_map(|(segment, part)| match segment {
            Segment::Any(name) => Some((name.as_str(), part)),
            Segment::Literal(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<PathPattern> {
        let routes = texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ");
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\npath = [{routes}]\nrespond = {{}}\n"
        );
        let config = tidegate_config::parse(&text, "the test").unwrap_or_else(|e| panic!("{e}"));
        config.routes[0].paths.iter().map(crate::router::canonical_path).collect()
    }

    #[test]
    fn rest_is_the_part_that_the_star_matches() {
        for (texts, path, expected) in [
            (&["/api/*"][..], "/api/a/b", "a/b"),
            (&["/api/*"], "/api", ""),
            (&["/api/*"], "/api/", ""),
            (&["/api/*"], "/%61pi/a%2Fb", "a%2Fb"),
            (&["/api/*"], "/api//b", "/b"),
            (&["/api/*"], "/x/../api/b", "b"),
            (&["/v1/*", "/v2/b/*"], "/v2/b/c", "c"),
            (&["/u/{id}/*"], "/u/7/posts/1", "posts/1"),
            (&["/u/{id}/*"], "/u/7", ""),
            (&["/*"], "/a/b", "a/b"),
            (&["/a"], "/a", ""),
        ] {
            let (patterns, mut scratch) = (patterns(texts), Vec::new());
            let matched = MatchedPath::new(path, &patterns, &mut scratch);
            assert_eq!(matched.rest(), expected, "{texts:?} {path}");
        }
        assert_eq!(MatchedPath::whole("/a/b").rest(), "a/b");
    }

    #[test]
    fn segments_are_found_by_name() {
        let (patterns, mut scratch) = (patterns(&["/u/{id}/{what}/*"]), Vec::new());
        let matched = MatchedPath::new("/u/a%20b/posts/x", &patterns, &mut scratch);
        assert_eq!((matched.segment("id"), matched.segment("what")), ("a%20b", "posts"));
        assert_eq!(matched.segment("nothing"), "");
    }
}
