//! Reads strings with placeholders, such as `"/internal/{rest}"`.
//! In: a string, where it is placed, and the path pattern of its route. Out: a template, or a complaint with the fix.
//! Never: accepts literal text that is not allowed in its place; the values of placeholders are checked for each request.
//! Limits: `TEMPLATE_BYTES_MAX`, `PLACEHOLDERS_MAX`.
//! Invariant: a name in braces has one meaning: a name that is both that of a segment of the route's path and that of
//! another value, such as {user}, is refused, so that a client cannot choose a value that Tidegate provides.

use crate::model::{PathPattern, Placeholder, Segment, Template, TemplatePiece};
use crate::pattern::{self, ValueError, complain};

/// Maximum length of a string with placeholders.
const TEMPLATE_BYTES_MAX: usize = 4096;
/// Maximum number of placeholders in a string.
const PLACEHOLDERS_MAX: usize = 32;

/// The place for which the text is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The value of a header field.
    Field,
    /// The path of a request.
    Path,
}

/// The path patterns of a route; none if it takes any path.
#[derive(Clone, Copy)]
pub(crate) struct Paths<'a>(pub(crate) &'a [PathPattern]);

impl Paths<'_> {
    /// Whether each path has a segment of this name.
    fn names(self, name: &str) -> bool {
        !self.0.is_empty() && self.0.iter().all(|path| has_segment(path, name))
    }

    /// Whether some path has a segment of this name.
    fn some_names(self, name: &str) -> bool {
        self.0.iter().any(|path| has_segment(path, name))
    }

    /// Whether each path ends with `/*`, so that `{rest}` has a value.
    fn has_rest(self) -> bool {
        self.0.iter().all(|path| match path {
            PathPattern::Below(_) => true,
            PathPattern::Exact(_) => false,
            PathPattern::Segments { open_end, .. } => *open_end,
        })
    }
}

/// Whether the path has a segment of this name.
fn has_segment(path: &PathPattern, name: &str) -> bool {
    matches!(path, PathPattern::Segments { segments, .. }
        if segments.iter().any(|segment| matches!(segment, Segment::Any(own) if own == name)))
}

/// Reads `text`, which is placed at `place` by a route with these `paths`.
pub(crate) fn parse(text: &str, place: Place, paths: Paths<'_>) -> Result<Template, ValueError> {
    if text.len() > TEMPLATE_BYTES_MAX {
        let what = format!("longer than {TEMPLATE_BYTES_MAX} bytes");
        return complain(what, "write a shorter text");
    }
    if let Some(variable) = foreign_variable(text) {
        let help = "write placeholders such as {client}, {host}, {path}, {rest} or {header:x-user}";
        return complain(format!("{variable:?} is a variable of another program"), help);
    }
    match place {
        Place::Field => pattern::check_field_value(text)?,
        Place::Path => check_path(text)?,
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find(['{', '}']) {
        let (literal, tail) = rest.split_at(open);
        push_text(literal, &mut pieces);
        // A doubled brace is a literal one.
        if let Some(after) = tail.strip_prefix("{{").or_else(|| tail.strip_prefix("}}")) {
            push_text(&tail[..1], &mut pieces);
            rest = after;
            continue;
        }
        let Some(close) = tail.find('}').filter(|_| tail.starts_with('{')) else {
            return complain(
                "a brace is not closed",
                "close the placeholder, or write {{ or }} for a literal brace",
            );
        };
        let (name, after) = (&tail[1..close], &tail[close + 1..]);
        pieces.push(TemplatePiece::Value(parse_name(name, paths)?));
        rest = after;
    }
    push_text(rest, &mut pieces);
    let template = Template { pieces };
    match template.placeholders().count() {
        0..=PLACEHOLDERS_MAX => Ok(template),
        _ => complain(format!("more than {PLACEHOLDERS_MAX} placeholders"), "write fewer"),
    }
}

fn push_text(text: &str, pieces: &mut Vec<TemplatePiece>) {
    match pieces.last_mut() {
        _ if text.is_empty() => {}
        Some(TemplatePiece::Text(last)) => last.push_str(text),
        Some(TemplatePiece::Value(_)) | None => pieces.push(TemplatePiece::Text(text.to_owned())),
    }
}

/// The names of placeholders, for messages.
const NAMES: &str = "{client}, {host}, {method}, {scheme}, {path}, {rest}, {query}, {query:NAME}, {header:NAME}, \
                     {cookie:NAME}, {tls:sni}, {user}, {claim:NAME}, {id}, or a {name} of the route's path";

/// The placeholders without a parameter. A segment of this name cannot be used in texts.
const BUILT_IN: [&str; 9] =
    ["client", "host", "method", "scheme", "path", "rest", "query", "user", "id"];

/// Whether the text is the name of a placeholder other than a segment of a path.
pub(crate) fn is_known(name: &str) -> bool {
    parse_name(name, Paths(&[])).is_ok()
}

/// Reads the name of a placeholder, without its braces.
pub(crate) fn parse_name(name: &str, paths: Paths<'_>) -> Result<Placeholder, ValueError> {
    if BUILT_IN.contains(&name) && paths.some_names(name) {
        let meaning = match name {
            "user" => "the user that `auth` has verified",
            "client" => "the client's address",
            "id" => "the id of the request",
            _ => "another value of the request",
        };
        let what = format!("{{{name}}} is both a segment of `path` of this route and {meaning}");
        return complain(what, format!("give the segment another name, such as {{{name}-part}}"));
    }
    if paths.names(name) {
        return Ok(Placeholder::Segment(name.to_owned()));
    }
    Ok(match name.split_once(':') {
        None => match name {
            "client" => Placeholder::Client,
            "host" => Placeholder::Host,
            "method" => Placeholder::Method,
            "scheme" => Placeholder::Scheme,
            "path" => Placeholder::Path,
            "query" => Placeholder::Query,
            "id" => Placeholder::RequestId,
            "user" => Placeholder::User,
            "rest" if paths.has_rest() => Placeholder::Rest,
            "rest" => {
                let what = "{rest} is what /* at the end of `path` matches, and `path` of this route does not end with /*";
                return complain(what, "write {path}, or end `path` of the route with /*");
            }
            _ => return unknown(name),
        },
        Some(("query", parameter)) if !parameter.is_empty() => {
            Placeholder::QueryValue(parameter.to_owned())
        }
        Some(("header", field)) if pattern::is_token(field) => {
            Placeholder::Header(field.to_ascii_lowercase())
        }
        Some(("cookie", cookie)) if pattern::is_token(cookie) => {
            Placeholder::Cookie(cookie.to_owned())
        }
        Some(("tls", "sni")) => Placeholder::ServerName,
        Some(("claim", claim)) if !claim.is_empty() => Placeholder::Claim(claim.to_owned()),
        Some(_) => return unknown(name),
    })
}

fn unknown(name: &str) -> Result<Placeholder, ValueError> {
    let what = format!("unknown placeholder {{{}}}", name.escape_debug());
    complain(what, format!("write {NAMES}; write {{{{ for a literal brace"))
}

fn foreign_variable(text: &str) -> Option<&'static str> {
    const VARIABLES: [&str; 12] = [
        "$remote_addr",
        "$host",
        "$http_",
        "$request_uri",
        "$uri",
        "$scheme",
        "$proxy_",
        "${",
        "$1",
        "%[",
        "{http.",
        "{{ .",
    ];
    VARIABLES.into_iter().find(|variable| text.contains(variable))
}

/// Checks the literal parts of a path. Placeholders are checked where they are used.
fn check_path(text: &str) -> Result<(), ValueError> {
    if !text.starts_with('/') && !text.starts_with("{path}") {
        return complain(
            "a path must begin with a slash",
            format!("write \"/{}\"", text.escape_debug()),
        );
    }
    if text.starts_with("//") || text.starts_with("/{path}") {
        return complain("two slashes at the start can be taken for a host", "write one slash");
    }
    if text.contains(['?', '#']) {
        return complain(
            "the path has no query: the query of the request is kept",
            "remove everything from \"?\" or \"#\"",
        );
    }
    if text.split('/').any(|segment| segment == "." || segment == "..") {
        return complain("servers resolve \".\" and \"..\"", "write the path that they resolve to");
    }
    // The name of a placeholder may contain other characters than a path.
    let mut is_name = false;
    for c in text.chars() {
        is_name = match c {
            '{' => true,
            '}' => false,
            _ => is_name,
        };
        if !is_name && (!c.is_ascii_graphic() || "\"<>\\^`|".contains(c)) {
            let what = format!("{c:?} cannot appear in the path of a request");
            return complain(what, "write it percent-encoded");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::parse_path;
    use TemplatePiece::{Text, Value};

    fn read(text: &str, place: Place, path: &str) -> Result<Template, ValueError> {
        parse(text, place, Paths(&[parse_path(path).expect("a path")]))
    }

    #[test]
    fn texts_and_placeholders_alternate() {
        let template = read("/in/{rest}", Place::Path, "/api/*").expect("a template");
        assert_eq!(template.pieces, [Text("/in/".into()), Value(Placeholder::Rest)]);
        let template =
            read("{{a}} {query:b c}{header:X-A}", Place::Field, "/").expect("a template");
        let query = Value(Placeholder::QueryValue("b c".into()));
        let header = Value(Placeholder::Header("x-a".into()));
        assert_eq!(template.pieces, [Text("{a} ".into()), query, header]);
        assert_eq!(read("", Place::Field, "/").expect("a template").literal(), Some(""));
    }

    #[test]
    fn segment_cannot_take_the_name_of_another_value() {
        let pieces = |path| read("{id}", Place::Field, path).expect("a template").pieces;
        assert_eq!(pieces("/users/*"), [Value(Placeholder::RequestId)]);
        for name in BUILT_IN {
            let text = format!("/a/{{{name}}}");
            let path = parse_path(&format!("/d/{{{name}}}/*")).expect("a path");
            let other = parse_path("/d/{other}/*").expect("a path");
            for place in [Place::Field, Place::Path] {
                let refused = parse(&text, place, Paths(core::slice::from_ref(&path)));
                assert!(refused.is_err_and(|complaint| complaint.what.contains("both")), "{name}");
                // Some paths of the route suffice.
                assert!(parse(&text, place, Paths(&[other.clone(), path.clone()])).is_err());
            }
        }
        let names = NAMES.split(", ").filter_map(|name| name.strip_prefix('{')?.strip_suffix('}'));
        let plain: Vec<&str> = names.filter(|name| !name.contains(':')).collect();
        assert_eq!(plain, BUILT_IN, "every name of the message is checked");
    }

    #[test]
    fn unsuitable_texts_are_refused() {
        for (text, place, path) in [
            ("{rest}", Place::Field, "/exact"),
            ("{rest}", Place::Field, "/a/{b}"),
            ("{nothing}", Place::Field, "/*"),
            ("{header:}", Place::Field, "/*"),
            ("{query:}", Place::Field, "/*"),
            ("{tls:cipher}", Place::Field, "/*"),
            ("{", Place::Field, "/*"),
            ("}", Place::Field, "/*"),
            ("a\r\nb", Place::Field, "/*"),
            (" a", Place::Field, "/*"),
            ("$remote_addr", Place::Field, "/*"),
            ("a/{rest}", Place::Path, "/*"),
            ("{rest}", Place::Path, "/*"),
            ("//{rest}", Place::Path, "/*"),
            ("/{path}", Place::Path, "/*"),
            ("/a?b={rest}", Place::Path, "/*"),
            ("/a/../{rest}", Place::Path, "/*"),
            ("/a b", Place::Path, "/*"),
        ] {
            assert!(read(text, place, path).is_err(), "{text:?}");
        }
        assert!(read(&"a".repeat(TEMPLATE_BYTES_MAX + 1), Place::Field, "/*").is_err());
        assert!(read(&"{id}".repeat(PLACEHOLDERS_MAX), Place::Field, "/*").is_ok());
        assert!(read(&"{id}".repeat(PLACEHOLDERS_MAX + 1), Place::Field, "/*").is_err());
    }
}
