//! The chain of clients and proxies that a request has passed, as X-Forwarded-For and Forwarded state it.
//! In: a head from a trusted proxy. Out: the nodes of the chain; the client's address; which field counts.
//! Source: RFC 7239 sections 4 to 6 and 7.4, and the practice for X-Forwarded-For.
//! Never: trusts a field by itself: the caller says whether its sender is trusted.
//!
//! If both fields are present and differ, X-Forwarded-For counts: nearly every proxy manages it, and a proxy that manages only
//! one of the two forwards the other one as the client wrote it.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::str::from_utf8;

use tidegate_config::model::Network;
use tidegate_wire::message::{FieldName, RequestHead};

/// A client or proxy in the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node {
    /// Its address, without a port.
    Address(IpAddr),
    /// Unknown, obfuscated, or not readable.
    Unknown,
}

/// The chain as a trusted proxy reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stated {
    /// Nothing.
    Nothing,
    /// X-Forwarded-For counts: Forwarded is absent or malformed, or contradicts it.
    XForwardedForOnly,
    /// Forwarded only.
    ForwardedOnly,
    /// Both fields, which state the same chain.
    Both,
}

impl Stated {
    /// The fields of `head`, which a trusted proxy sent, that carry the chain.
    pub(crate) fn of(head: &RequestHead<'_>) -> Self {
        if !head.has(FieldName::XForwardedFor) && !head.has(FieldName::Forwarded) {
            return Self::Nothing;
        }
        let has_list = head.has(FieldName::XForwardedFor) && list_nodes(head).next().is_some();
        let has_forwarded = head.has(FieldName::Forwarded) && is_well_formed(head);
        match (has_list, has_forwarded) {
            (false, false) => Self::Nothing,
            (false, true) => Self::ForwardedOnly,
            (true, true) if forwarded_nodes(head).eq(list_nodes(head)) && !protos_differ(head) => {
                Self::Both
            }
            (true, _) => Self::XForwardedForOnly,
        }
    }
}

/// The address of the client of `head`, received from `peer`: `peer` itself, unless it is in `trusted`. Then it
/// is the last address of the chain that is not in `trusted`, or the first one if all are. Nodes before an
/// unknown node do not count.
#[must_use]
pub fn client_address(
    head: &RequestHead<'_>,
    peer: Option<IpAddr>,
    trusted: &[Network],
) -> Option<IpAddr> {
    last_client(head, peer, trusted).map(|(client, _)| client)
}

/// As [`client_address`], but `None` if the chain does not name the client: a trusted proxy reports `unknown`, or a value that
/// cannot be read. A rule that admits the address of the proxy must not admit such a client.
#[must_use]
pub fn named_client_address(
    head: &RequestHead<'_>,
    peer: Option<IpAddr>,
    trusted: &[Network],
) -> Option<IpAddr> {
    last_client(head, peer, trusted).filter(|(_, is_named)| *is_named).map(|(client, _)| client)
}

/// The address of the client, and whether the chain names the client itself.
fn last_client(
    head: &RequestHead<'_>,
    peer: Option<IpAddr>,
    trusted: &[Network],
) -> Option<(IpAddr, bool)> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let peer = peer?.to_canonical();
    if !is_trusted(peer) {
        return Some((peer, true));
    }
    let (mut client, mut is_named) = (None, true);
    let mut see = |node: Node| {
        is_named = match node {
            Node::Unknown => false,
            Node::Address(address) => is_named || !is_trusted(address),
        };
        client = match (node, client) {
            (Node::Unknown, _) => None,
            (Node::Address(address), Some(earlier)) if is_trusted(address) => Some(earlier),
            (Node::Address(address), _) => Some(address),
        };
    };
    match Stated::of(head) {
        // A field without a readable node.
        Stated::Nothing => {
            let has_field = |id| values(head, id).any(|value| !value.trim_ascii().is_empty());
            is_named = !has_field(FieldName::XForwardedFor) && !has_field(FieldName::Forwarded);
        }
        Stated::XForwardedForOnly | Stated::Both => list_nodes(head).for_each(&mut see),
        Stated::ForwardedOnly => forwarded_nodes(head).for_each(&mut see),
    }
    Some((client.unwrap_or(peer), is_named))
}

/// The nodes in X-Forwarded-For.
pub fn list_nodes<'a>(head: &RequestHead<'a>) -> impl Iterator<Item = Node> + use<'a> {
    values(head, FieldName::XForwardedFor)
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|text| !text.is_empty())
        .map(read_node)
}

/// The nodes in Forwarded: one node for each element, `Unknown` for an element without a node.
pub fn forwarded_nodes<'a>(head: &RequestHead<'a>) -> impl Iterator<Item = Node> + use<'a> {
    elements(head).map(|element| parameter(element, b"for").map_or(Node::Unknown, read_node))
}

/// The value of the first parameter `name` in Forwarded, without quotes.
pub(crate) fn first_parameter<'a>(head: &RequestHead<'a>, name: &'static [u8]) -> Option<&'a [u8]> {
    elements(head).find_map(|element| parameter(element, name))
}

/// The value of the first parameter `name` in Forwarded, if that field counts.
pub(crate) fn trusted_parameter<'a>(
    head: &RequestHead<'a>,
    name: &'static [u8],
) -> Option<&'a [u8]> {
    match Stated::of(head) {
        Stated::ForwardedOnly | Stated::Both => first_parameter(head, name),
        Stated::Nothing | Stated::XForwardedForOnly => None,
    }
}

/// Whether X-Forwarded-Proto and Forwarded state different schemes.
fn protos_differ(head: &RequestHead<'_>) -> bool {
    let first = values(head, FieldName::XForwardedProto).find(|value| !value.is_empty());
    let first = first.and_then(|value| value.split(|&byte| byte == b',').next());
    match (first, first_parameter(head, b"proto")) {
        (Some(one), Some(other)) => !one.trim_ascii().eq_ignore_ascii_case(other),
        (_, None) | (None, _) => false,
    }
}

fn values<'a>(head: &RequestHead<'a>, id: FieldName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    head.fields().filter(move |field| field.id == id).map(|field| field.value)
}

/// The elements of all lines of Forwarded. The lines must be well-formed.
fn elements<'a>(head: &RequestHead<'a>) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    values(head, FieldName::Forwarded)
        .flat_map(|value| Parts { rest: Some(value), separator: b',' })
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// The value of the first parameter `name` of an element, without quotes.
fn parameter<'a>(element: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    Parts { rest: Some(element), separator: b';' }.find_map(|pair| {
        let pair = pair.trim_ascii();
        let at = pair.iter().position(|&byte| byte == b'=')?;
        let (found, value) = (pair.get(..at)?, pair.get(at + 1..)?);
        found.eq_ignore_ascii_case(name).then_some(match value {
            [b'"', text @ .., b'"'] => text,
            text => text,
        })
    })
}

/// Splits a string at a separator outside quotes.
struct Parts<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let (mut is_quoted, mut is_escaped) = (false, false);
        let end = rest.iter().position(|&byte| {
            let ends = byte == self.separator && !is_quoted;
            is_quoted ^= byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && is_quoted && !is_escaped;
            ends
        });
        let (part, rest) = match end {
            Some(end) => (rest.get(..end)?, rest.get(end + 1..)),
            None => (rest, None),
        };
        self.rest = rest;
        Some(part)
    }
}

/// Whether each line of Forwarded has elements only of `name=value` pairs, a value being a token or quoted text, and at least one
/// line has an element. Quotes that do not end would swallow the appended text. Tokens may contain `:`, `[` and `]`: several
/// proxies do not quote IPv6 addresses and ports.
fn is_well_formed(head: &RequestHead<'_>) -> bool {
    let is_pair = |pair: &[u8]| {
        let pair = pair.trim_ascii();
        let Some(at) = pair.iter().position(|&byte| byte == b'=') else { return pair.is_empty() };
        let (name, value) = pair.split_at(at);
        let is_name = !name.is_empty() && name.iter().all(|&byte| is_name_byte(byte));
        is_name
            && match value {
                [b'=', b'"', text @ .., b'"'] => is_quoted_text(text),
                [b'=', text @ ..] => {
                    text.iter().all(|&byte| is_name_byte(byte) || b":[]/".contains(&byte))
                }
                _ => false,
            }
    };
    let is_element = |element: &[u8]| Parts { rest: Some(element), separator: b';' }.all(is_pair);
    elements(head).next().is_some() && elements(head).all(is_element)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Whether the text between two quotes contains no other quote, unless it is escaped.
fn is_quoted_text(text: &[u8]) -> bool {
    let mut is_escaped = false;
    let is_sound = text.iter().all(|&byte| {
        let is_sound = is_escaped || byte != b'"';
        is_escaped = byte == b'\\' && !is_escaped;
        is_sound
    });
    is_sound && !is_escaped
}

/// A node of either field: an address, perhaps with a port, IPv6 with or without brackets.
fn read_node(text: &[u8]) -> Node {
    let Ok(text) = from_utf8(text) else { return Node::Unknown };
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = text
        .parse::<IpAddr>()
        .ok()
        .or_else(|| bracketed.and_then(|text| text.parse::<Ipv6Addr>().ok()).map(IpAddr::V6))
        .or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map_or(Node::Unknown, |address| Node::Address(address.to_canonical()))
}
