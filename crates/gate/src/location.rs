//! The Location of redirects that routes configure.
//! In: the target in pieces, a request. Out: the target, percent-encoded.
//! Never: lets a request choose the host: only {host} can be a part of it, which is a plain name; a value that would make
//! the target begin with two slashes is refused.
//! Limits: `RENDERED_BYTES_MAX` for a target with placeholders other than {host}, {path} and {query}; without them, the
//! target is at most as long as the configured one and three times one request line together.

use tidegate_config::model::{Placeholder, Redirect, RedirectPiece};
use tidegate_wire::message::RequestHead;

use crate::respond::{encode_uri, plain_host};
use crate::scheme::Scheme;
use crate::template::{
    PlaceFault, RENDERED_BYTES_MAX, Values, has_control, has_dot_segment, push_plain,
};

/// Bytes that a value may have in a path (RFC 3986 section 3.3), in addition to letters and digits.
const IN_PATH: &[u8] = b"-._~!$&'()*+,;=:@";
/// Bytes that a part of the received path may have in a path: its slashes and encodings stay.
const PART_IN_PATH: &[u8] = b"-._~!$&'()*+,;=:@/%";
/// Bytes that a value may have in a query: none that separates parameters.
const IN_QUERY: &[u8] = b"-._~";
/// Bytes that a part of the received path may have in a query.
const PART_IN_QUERY: &[u8] = b"-._~!$'()*,:@/%";

/// Whether the target depends on more than host, path and query.
#[must_use]
pub fn has_values(redirect: &Redirect) -> bool {
    values_of(redirect).next().is_some()
}

/// The placeholders of the target other than {host}, {path} and {query}.
pub(crate) fn values_of(redirect: &Redirect) -> impl Iterator<Item = &Placeholder> {
    redirect.to.iter().filter_map(|piece| match piece {
        RedirectPiece::Value(placeholder) => Some(placeholder),
        RedirectPiece::Text(_)
        | RedirectPiece::Host
        | RedirectPiece::Path
        | RedirectPiece::Query => None,
    })
}

/// The parts of a target in addition to the method and the URI of the request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Origins {
    /// The fields, as in Vary; empty if there are none.
    pub(crate) fields: String,
    /// The connection of the client, or the request alone.
    pub(crate) is_own: bool,
}

/// The parts of a redirect's target in addition to the method and the URI of the request.
pub(crate) fn origins(redirect: &Redirect) -> Origins {
    let mut origins = Origins::default();
    for placeholder in values_of(redirect) {
        let name = match placeholder {
            Placeholder::Header(name) => name,
            Placeholder::Cookie(_) => "cookie",
            Placeholder::AllowedOrigin | Placeholder::CredentialsIfAllowed => "origin",
            Placeholder::Client
            | Placeholder::ServerName
            | Placeholder::User
            | Placeholder::Claim(_)
            | Placeholder::RequestId => {
                origins.is_own = true;
                continue;
            }
            // Caches keep responses by method and URI (RFC 9111 section 2).
            Placeholder::Method
            | Placeholder::Host
            | Placeholder::Scheme
            | Placeholder::Path
            | Placeholder::Rest
            | Placeholder::Query
            | Placeholder::QueryValue(_)
            | Placeholder::Segment(_) => continue,
        };
        if !origins.fields.split(", ").any(|known| known == name) {
            let comma = if origins.fields.is_empty() { "" } else { ", " };
            origins.fields.push_str(comma);
            origins.fields.push_str(name);
        }
    }
    origins
}

/// Whether the target needs a host, and the request has none that is a plain name.
pub(crate) fn lacks_host(redirect: &Redirect, head: &RequestHead<'_>) -> bool {
    redirect.to.contains(&RedirectPiece::Host) && head.host.and_then(plain_host).is_none()
}

/// Appends the target for a request with these values, whose host is known if the target needs it.
///
/// # Errors
/// A value cannot be placed. `out` is then incomplete.
pub(crate) fn render(
    out: &mut Vec<u8>,
    redirect: &Redirect,
    values: &Values<'_>,
) -> Result<(), PlaceFault> {
    let start = out.len();
    let (mut scratch, mut is_query) = (Vec::new(), false);
    for (index, piece) in redirect.to.iter().enumerate() {
        match piece {
            RedirectPiece::Value(placeholder) => {
                scratch.clear();
                push_plain(&mut scratch, placeholder, values);
                push_part(out, placeholder, &scratch, is_query)?;
            }
            RedirectPiece::Text(text) => {
                is_query |= text.contains(['?', '#']);
                push_piece(out, piece, index == 0, values.head, values.scheme);
            }
            RedirectPiece::Query => {
                is_query |= values.head.query.is_some();
                push_piece(out, piece, index == 0, values.head, values.scheme);
            }
            RedirectPiece::Host | RedirectPiece::Path => {
                push_piece(out, piece, index == 0, values.head, values.scheme);
            }
        }
    }
    check(redirect, out.get(start..).unwrap_or_default())
}

/// Appends the value of a placeholder. `is_query`: behind the path.
fn push_part(
    out: &mut Vec<u8>,
    placeholder: &Placeholder,
    value: &[u8],
    is_query: bool,
) -> Result<(), PlaceFault> {
    let is_part = matches!(placeholder, Placeholder::Rest | Placeholder::Segment(_));
    let is_control = match is_part {
        true => has_control(value),
        false => value.iter().any(u8::is_ascii_control),
    };
    if is_control {
        return Err(PlaceFault::Unplaceable);
    }
    let allowed = match (is_part, is_query) {
        (true, false) => PART_IN_PATH,
        (false, false) => IN_PATH,
        (true, true) => PART_IN_QUERY,
        (false, true) => IN_QUERY,
    };
    for &byte in value {
        match byte.is_ascii_alphanumeric() || allowed.contains(&byte) {
            true => out.push(byte),
            false => push_encoded(out, byte),
        }
    }
    Ok(())
}

/// Appends a byte, percent-encoded.
pub(crate) fn push_encoded(out: &mut Vec<u8>, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let (high, low) = (usize::from(byte >> 4), usize::from(byte & 15));
    out.extend_from_slice(&[b'%', HEX[high], HEX[low]]);
}

/// Checks a target with values.
fn check(redirect: &Redirect, target: &[u8]) -> Result<(), PlaceFault> {
    if target.len() > RENDERED_BYTES_MAX {
        return Err(PlaceFault::TooLong);
    }
    let names_host =
        matches!(redirect.to.first(), Some(RedirectPiece::Text(text)) if text.starts_with("//"));
    // A target that begins with "//other.example/" names another host (RFC 3986 section 4.2).
    if target.starts_with(b"//") && !names_host {
        return Err(PlaceFault::Unplaceable);
    }
    let end = target.iter().position(|byte| b"?#".contains(byte)).unwrap_or(target.len());
    let path = target.get(..end).unwrap_or_default();
    match has_dot_segment(path) {
        true => Err(PlaceFault::Unplaceable),
        false => Ok(()),
    }
}

/// Appends the target of a redirect without values; see [`has_values`].
pub(crate) fn encode(
    out: &mut Vec<u8>,
    redirect: &Redirect,
    head: &RequestHead<'_>,
    scheme: Scheme,
) {
    for (index, piece) in redirect.to.iter().enumerate() {
        push_piece(out, piece, index == 0, head, scheme);
    }
}

/// Appends a piece other than a value.
fn push_piece(
    out: &mut Vec<u8>,
    piece: &RedirectPiece,
    is_first: bool,
    head: &RequestHead<'_>,
    scheme: Scheme,
) {
    match piece {
        RedirectPiece::Text(text) => encode_uri(out, text),
        RedirectPiece::Host => {
            if is_first {
                encode_uri(out, scheme.as_str());
                out.extend_from_slice(b"://");
            }
            encode_uri(out, head.host.unwrap_or_default());
        }
        RedirectPiece::Path => {
            // A target that begins with "//other.example/" names another host (RFC 3986 section 4.2).
            let path = if head.path == "*" { "/" } else { head.path };
            if is_first {
                out.push(b'/');
                encode_uri(out, path.trim_start_matches(['/', '\\']));
            } else {
                encode_uri(out, path);
            }
        }
        RedirectPiece::Query => {
            if let Some(query) = head.query {
                out.push(b'?');
                encode_uri(out, query);
            }
        }
        // Only `render` has the values.
        RedirectPiece::Value(_) => {}
    }
}
