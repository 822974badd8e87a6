//! The limits of a listener, applied to requests over HTTP/2.
//! In: `limits` of the listener; the head of a request. Out: bounds for the decoder; the status of a rejection.
//! Invariant: a head is admitted over HTTP/2 if HTTP/1.1 would admit it: its size is that of the same head in
//! HTTP/1.1, not that of its frames.

use tidegate_base::limits::{HEAD_BYTES_CEILING, HEADER_FIELDS_MAX};
use tidegate_config::model::RequestLimits;
use tidegate_wire::http2;
use tidegate_wire::http2::bounds::{CONTINUATIONS_MAX, COOKIE_CRUMBS_MAX, FRAME_BYTES_MAX};
use tidegate_wire::message::{FieldName, RequestHead};

/// Pseudo-header fields that a request may have: RFC 9113 section 8.3.1, and `:protocol` of RFC 8441.
const PSEUDO_FIELDS_MAX: usize = 5;
/// How much larger a field is in SETTINGS_MAX_HEADER_LIST_SIZE (32 bytes added) than in HTTP/1.1 (": ", CR LF).
const FIELD_EXTRA_BYTES: usize = 32 - 4;
/// The maximum by which the size of a header list exceeds the size of the same head in HTTP/1.1. Clients split
/// cookies into several fields.
const LIST_EXTRA_BYTES_MAX: usize =
    FIELD_EXTRA_BYTES * (HEADER_FIELDS_MAX + PSEUDO_FIELDS_MAX + COOKIE_CRUMBS_MAX);
/// Maximum size in bytes of the table that encodes the fields of responses. Responses of one site repeat about a dozen fields; each
/// of them then takes one byte, and less time than its Huffman code. The memory is released while a connection is idle.
const ENCODER_TABLE_BYTES: u32 = 2048;
const _: () = assert!(
    CONTINUATIONS_MAX as usize * FRAME_BYTES_MAX as usize
        > HEAD_BYTES_CEILING + LIST_EXTRA_BYTES_MAX,
    "a head of the largest size must fit into one block"
);

/// The configuration of a client connection whose listener has `limits`, and which may have `streams_max` streams.
pub(super) fn connection_config(limits: &RequestLimits, streams_max: u32) -> http2::Config {
    let fields = limits.header_fields_max + PSEUDO_FIELDS_MAX;
    let list_bytes = limits.head_bytes_max + FIELD_EXTRA_BYTES * (fields + COOKIE_CRUMBS_MAX);
    http2::Config {
        streams_max,
        header_fields_max: fields as u16,
        header_list_bytes_max: list_bytes as u32,
        connect_protocol: true,
        encoder_table_bytes: ENCODER_TABLE_BYTES,
        // `response.rs` watches the output.
        output_pause_bytes: u32::MAX,
        ..http2::Config::server()
    }
}

/// The status that rejects a head which exceeds the limits of its listener; `None` to admit the head.
pub(super) fn reject_status(limits: &RequestLimits, head: &RequestHead<'_>) -> Option<u16> {
    let line = head.method.as_str().len() + head.target.len() + "  HTTP/1.1".len();
    if line > limits.request_line_bytes_max {
        return Some(414);
    }
    // A Host field next to `:authority` has the same value, and is counted once.
    let host = head.host.filter(|_| head.find(FieldName::Host).is_none());
    let host = host.map(|host| ("host".len(), host.len()));
    let fields = head.fields().map(|field| (field.name.len(), field.value.len()));
    let ends_of_lines = 2 * "\r\n".len();
    let (mut count, mut bytes) = (0, line + ends_of_lines);
    for (name, value) in fields.chain(host) {
        count += 1;
        bytes += name + value + ": \r\n".len();
    }
    (count > limits.header_fields_max || bytes > limits.head_bytes_max).then_some(431)
}
