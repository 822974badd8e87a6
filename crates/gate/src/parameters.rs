//! Finds the parameters of a query, and the cookies of a request or response, by name.
//! In: the query of a target, the head of a request, or a Set-Cookie field. Out: the values of a name; the cookie set.
//! Never: allocates. Invariant: a parameter is found in every encoded form of its name, because names are decoded first.

use tidegate_wire::message::{FieldName, RequestHead};

/// The value of the first parameter `name` in `query`, as received; empty for a parameter without `=`.
#[must_use]
pub fn find_parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    parameters(query, name).next()
}

/// The values of all parameters `name` in `query`, as received.
pub fn parameters<'q>(query: &'q str, name: &str) -> impl Iterator<Item = &'q str> {
    query.split('&').filter_map(move |pair| {
        let (own, value) = pair.split_once('=').unwrap_or((pair, ""));
        decoded(own).eq(name.bytes()).then_some(value)
    })
}

/// The bytes of a part of a query, with form decoding: `%41` is `A`, and `+` is a space. A `%` that begins no
/// encoding is taken literally.
pub fn decoded(text: &str) -> impl Iterator<Item = u8> + '_ {
    let mut rest = text.as_bytes();
    core::iter::from_fn(move || {
        let (byte, length) = match *rest {
            [] => return None,
            [b'%', high, low, ..] => match (digit(high), digit(low)) {
                (Some(high), Some(low)) => (high << 4 | low, 3),
                _ => (b'%', 1),
            },
            [b'+', ..] => (b' ', 1),
            [byte, ..] => (byte, 1),
        };
        rest = rest.get(length..).unwrap_or_default();
        Some(byte)
    })
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// The value of the first cookie `name` (RFC 6265 section 4.2.1), as received.
#[must_use]
pub fn find_cookie<'h>(head: &RequestHead<'h>, name: &str) -> Option<&'h [u8]> {
    cookies(head, name).next()
}

/// The values of all cookies `name`, as received.
pub fn cookies<'h>(head: &RequestHead<'h>, name: &str) -> impl Iterator<Item = &'h [u8]> {
    let fields = head.fields().filter(|field| field.id == FieldName::Cookie);
    let pairs = fields.flat_map(|field| field.value.split(|&byte| byte == b';'));
    pairs.filter_map(move |pair| {
        // Servers ignore blanks around the name: RFC 6265 section 5.2 does so for Set-Cookie.
        let pair = pair.trim_ascii();
        let value = pair.strip_prefix(name.as_bytes())?.trim_ascii_start().strip_prefix(b"=")?;
        Some(value.trim_ascii_start())
    })
}

/// The name and the value of the cookie that a Set-Cookie field sets (RFC 6265 section 5.2), without attributes. The
/// value is empty if there is no `=`.
#[must_use]
pub fn set_cookie(field: &[u8]) -> (&[u8], &[u8]) {
    let pair = field.split(|&byte| byte == b';').next().unwrap_or_default();
    let mut parts = pair.splitn(2, |&byte| byte == b'=').map(<[u8]>::trim_ascii);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_in_any_spelling() {
        for (query, expected) in [
            ("a=1", Some("1")),
            ("b=2&a=1&a=3", Some("1")),
            ("%61=1", Some("1")),
            ("a", Some("")),
            ("a=", Some("")),
            ("a=b=c", Some("b=c")),
            ("aa=1", None),
            ("", None),
            ("A=1", None),
        ] {
            assert_eq!(find_parameter(query, "a"), expected, "{query}");
        }
        assert_eq!(find_parameter("a+b=1", "a b"), Some("1"));
    }

    #[test]
    fn encodings_are_decoded_once() {
        for (text, expected) in [
            ("", ""),
            ("a%20b+c", "a b c"),
            ("%2520", "%20"),
            ("%", "%"),
            ("%4", "%4"),
            ("%zz", "%zz"),
            ("%0d%0A", "\r\n"),
        ] {
            assert!(decoded(text).eq(expected.bytes()), "{text}");
        }
    }
}
