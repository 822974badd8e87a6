//! Renders strings with placeholders for a request.
//! In: a template, the values of a request, where the text is placed. Out: the text, appended to a buffer.
//! Never: appends a byte that could end a field or split a request line; decodes a part of the path.
//! Limits: `RENDERED_BYTES_MAX` for all strings of one message.
//! Invariant: the rendered value of a field has no control character and no whitespace around it.

use core::net::IpAddr;
use std::io::Write as _;

use tidegate_base::limits::HEAD_BYTES_MAX;
use tidegate_config::model::{Network, Placeholder, Template, TemplatePiece};
use tidegate_wire::jwt::Claims;
use tidegate_wire::message::RequestHead;

use crate::chain::{client_address, named_client_address};
use crate::identity::Identity;
use crate::parameters::{decoded, find_cookie, find_parameter};
use crate::rewrite::MatchedPath;
use crate::scheme::Scheme;

/// Maximum number of bytes that the edits of a route may add to a message.
pub const RENDERED_BYTES_MAX: usize = HEAD_BYTES_MAX;

/// The values of placeholders.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// The head of the request.
    pub head: &'a RequestHead<'a>,
    /// The path of the request, and the parts of it that the route names.
    pub path: &'a MatchedPath<'a>,
    /// The address of the connection's client; `None` for a unix socket.
    pub peer: Option<IpAddr>,
    /// Proxies whose statements about the client are trusted.
    pub trusted: &'a [Network],
    /// The scheme by which the client sent the request.
    pub scheme: Scheme,
    /// The server name of the TLS handshake.
    pub server_name: Option<&'a [u8]>,
    /// The origin of the page that sent the request, if `cors` of the route allows it.
    pub allowed_origin: Option<&'a [u8]>,
    /// The name of the user, if it was or will be verified before the request is served.
    pub user: Option<&'a str>,
    /// The claims of the token, once it is verified.
    pub claims: Option<&'a Claims>,
    /// The id of the request, and its trace.
    pub identity: Identity<'a>,
}

impl Values<'_> {
    /// The client's address, behind trusted proxies.
    #[must_use]
    pub fn client(&self) -> Option<IpAddr> {
        client_address(self.head, self.peer, self.trusted)
    }

    /// The address of the client, if it is known: a trusted proxy may have received the request from a client that it
    /// does not name.
    #[must_use]
    pub fn named_client(&self) -> Option<IpAddr> {
        named_client_address(self.head, self.peer, self.trusted)
    }
}

/// Why a string cannot be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceFault {
    /// A value of the request is not allowed there.
    Unplaceable,
    /// The strings of the message exceed [`RENDERED_BYTES_MAX`].
    TooLong,
}

impl PlaceFault {
    /// The status of the response.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::Unplaceable => 400,
            Self::TooLong => 431,
        }
    }

    /// The text of the response.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unplaceable => {
                "a value of the request is not allowed in the field or path that this route writes"
            }
            Self::TooLong => "values of the request are too long to be passed on by this route",
        }
    }
}

/// The place of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Field,
    Path,
}

/// Appends the value of a field, without whitespace around it. It may be empty.
///
/// # Errors
/// A value contains a control character, or a user or a claim would lose whitespace around it and become the name of
/// another one. Nothing has been appended then.
pub fn render_field(
    out: &mut Vec<u8>,
    template: &Template,
    values: &Values<'_>,
) -> Result<(), PlaceFault> {
    let start = out.len();
    render(out, template, values, Place::Field);
    let rendered = out.get(start..).unwrap_or_default();
    if rendered.iter().any(|&byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
        out.truncate(start);
        return Err(PlaceFault::Unplaceable);
    }
    let trimmed = rendered.trim_ascii();
    let length = trimmed.len();
    if length < rendered.len() {
        if template.pieces.iter().any(|piece| is_trimmed_identity(piece, values)) {
            out.truncate(start);
            return Err(PlaceFault::Unplaceable);
        }
        let before = rendered.len() - rendered.trim_ascii_start().len();
        out.drain(start..start + before);
        out.truncate(start + length);
    }
    Ok(())
}

/// Whether a piece is a user or a claim with whitespace around it.
fn is_trimmed_identity(piece: &TemplatePiece, values: &Values<'_>) -> bool {
    let TemplatePiece::Value(placeholder) = piece else { return false };
    if !matches!(placeholder, Placeholder::User | Placeholder::Claim(_)) {
        return false;
    }
    let mut text = Vec::new();
    push_plain(&mut text, placeholder, values);
    text.trim_ascii().len() < text.len()
}

/// Appends the path of a request.
///
/// # Errors
/// The path would have a control character, even an encoded one, or a dot segment, or begin with two slashes, or is too
/// long. Nothing has been appended then.
pub fn render_path(
    out: &mut Vec<u8>,
    template: &Template,
    values: &Values<'_>,
) -> Result<(), PlaceFault> {
    let start = out.len();
    render(out, template, values, Place::Path);
    let checked = check_rendered(out.get(start..).unwrap_or_default());
    if checked.is_err() {
        out.truncate(start);
    }
    checked
}

/// Checks a path that a script has made.
///
/// # Errors
/// A server could read the path in another way.
pub(crate) fn check_path(path: &str) -> Result<(), PlaceFault> {
    check_rendered(path.as_bytes())
}

fn check_rendered(path: &[u8]) -> Result<(), PlaceFault> {
    match path {
        _ if path.len() > RENDERED_BYTES_MAX => Err(PlaceFault::TooLong),
        [b'/', b'/', ..] => Err(PlaceFault::Unplaceable),
        [b'/', ..] if !has_control(path) && !has_dot_segment(path) => Ok(()),
        _ => Err(PlaceFault::Unplaceable),
    }
}

/// Whether the path has a control character, also an encoded one. Servers written in C end a path at NUL.
pub(crate) fn has_control(path: &[u8]) -> bool {
    core::str::from_utf8(path).is_ok_and(|path| decoded(path).any(|byte| byte.is_ascii_control()))
}

/// Whether some server could take a segment of the path for "." or "..": one that decodes the path, splits it at
/// backslashes, strips parameters, decodes once more what follows "?" or "#", or trims spaces (Windows).
pub(crate) fn has_dot_segment(path: &[u8]) -> bool {
    let Ok(path) = core::str::from_utf8(path) else { return true };
    // The number of dots at the start of the segment, and whether it has ended or has other characters.
    let (mut dots, mut is_plain, mut is_parameter) = (0_u32, true, false);
    // Servers that trim spaces trim the dots between them, too.
    let mut has_space = false;
    // `+` is itself in a path; a segment of dots and `+` is refused with those of dots and spaces.
    for byte in decoded(path).chain([b'/']) {
        match byte {
            b'/' | b'\\' => {
                if is_plain && ((1..=2).contains(&dots) || has_space && dots > 0) {
                    return true;
                }
                (dots, is_plain, is_parameter, has_space) = (0, true, false, false);
            }
            b';' | b'?' | b'#' => is_parameter = true,
            _ if is_parameter => {}
            b'.' => dots += 1,
            b' ' => has_space = true,
            _ => is_plain = false,
        }
    }
    false
}

/// Appends the value of a placeholder as it is in the request.
pub(crate) fn push_plain(out: &mut Vec<u8>, placeholder: &Placeholder, values: &Values<'_>) {
    push_value(out, placeholder, values, Place::Field);
}

fn render(out: &mut Vec<u8>, template: &Template, values: &Values<'_>, place: Place) {
    for piece in &template.pieces {
        match piece {
            TemplatePiece::Text(text) => out.extend_from_slice(text.as_bytes()),
            TemplatePiece::Value(placeholder) => push_value(out, placeholder, values, place),
        }
    }
}

fn push_value(out: &mut Vec<u8>, placeholder: &Placeholder, values: &Values<'_>, place: Place) {
    let head = values.head;
    // A part of a path is copied as it is, except for characters that no path may have.
    let part = |out: &mut Vec<u8>, text: &str| match place {
        Place::Field => out.extend_from_slice(text.as_bytes()),
        Place::Path => text.bytes().for_each(|byte| push_path_byte(out, byte, true)),
    };
    let plain = |out: &mut Vec<u8>, text: &[u8]| match place {
        Place::Field => out.extend_from_slice(text),
        Place::Path => text.iter().for_each(|&byte| push_path_byte(out, byte, false)),
    };
    match placeholder {
        Placeholder::Client => {
            if let Some(client) = values.client() {
                // Writing into a vector cannot fail.
                let _ = write!(out, "{client}");
            }
        }
        Placeholder::Host => plain(out, head.host.unwrap_or_default().as_bytes()),
        Placeholder::Method => plain(out, head.method.as_str().as_bytes()),
        Placeholder::Scheme => out.extend_from_slice(values.scheme.as_str().as_bytes()),
        Placeholder::Path => match place {
            Place::Field => out.extend_from_slice(head.path.as_bytes()),
            Place::Path => part(out, values.path.text()),
        },
        Placeholder::Rest => part(out, values.path.rest()),
        Placeholder::Segment(name) => part(out, values.path.segment(name)),
        Placeholder::Query => {
            if let Some(query) = head.query {
                plain(out, b"?");
                plain(out, query.as_bytes());
            }
        }
        Placeholder::QueryValue(name) => {
            let value = head.query.and_then(|query| find_parameter(query, name));
            decoded(value.unwrap_or_default()).for_each(|byte| match place {
                Place::Field => out.push(byte),
                Place::Path => push_path_byte(out, byte, false),
            });
        }
        Placeholder::Header(name) => {
            // Not a name with `_` for `-`: a proxy in front may remove or set only the exact one, and pass on the client's other
            // form. Conditions ignore the other form for the same reason.
            let field = head.fields().find(|own| own.name.eq_ignore_ascii_case(name));
            plain(out, field.map_or(b"", |field| field.value));
        }
        Placeholder::Cookie(name) => plain(out, find_cookie(head, name).unwrap_or_default()),
        Placeholder::ServerName => plain(out, values.server_name.unwrap_or_default()),
        Placeholder::AllowedOrigin => plain(out, values.allowed_origin.unwrap_or_default()),
        Placeholder::CredentialsIfAllowed => {
            plain(out, values.allowed_origin.map_or(&b""[..], |_| b"true"));
        }
        Placeholder::User => plain(out, values.user.unwrap_or_default().as_bytes()),
        Placeholder::Claim(name) => {
            let start = out.len();
            values.claims.iter().for_each(|claims| claims.append(name, out));
            if place == Place::Path {
                let value = out.split_off(start);
                value.iter().for_each(|&byte| push_path_byte(out, byte, false));
            }
        }
        Placeholder::RequestId => {
            let _ = write!(out, "{}", values.identity);
        }
    }
}

/// Appends a byte of a path, percent-encoded if it is not allowed in a segment (RFC 3986 section 3.3). `is_part`: the
/// byte belongs to a path already, so that its slashes and encodings stay.
fn push_path_byte(out: &mut Vec<u8>, byte: u8, is_part: bool) {
    let is_allowed = byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte);
    // Clients send other visible characters in paths, too; a part of a path is copied as it was received.
    if is_allowed || (is_part && (0x21..0x7f).contains(&byte)) {
        return out.push(byte);
    }
    let digit = |value: u8| b"0123456789ABCDEF"[usize::from(value & 15)];
    out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
}
