//! Checks response heads of HTTP/1: body length, persistence, upgrades (RFC 9112 sections 4, 6 and 9).
//! In: syntactically valid tokens and the kind of the request. Out: `ResponseHead`, or a fault.
//! Never: accepts a 101 that the request did not ask for, or a 101 that names no protocol.

use super::framing::{ConnectionOptions, stated_length};
use super::scan::StatusLine;
use crate::message::field::FieldTable;
use crate::message::length::response_length;
use crate::message::{BodyLength, FaultKind, FieldName, RequestKind, ResponseHead, Version};

/// Validates a response whose syntax is valid.
#[inline]
pub(super) fn validate_response<'a>(
    version: Version,
    line: &StatusLine<'a>,
    fields: FieldTable<'a>,
    request: RequestKind,
    is_lenient: bool,
) -> Result<ResponseHead<'a>, FaultKind> {
    let StatusLine { status, reason, .. } = *line;
    if status == 101 && !request.upgrade_asked {
        return Err(FaultKind::SwitchNotRequested);
    }
    if status == 101 && !fields.has(FieldName::Upgrade) {
        return Err(FaultKind::SwitchProtocolMissing);
    }
    let stated = stated_length(&fields, version, is_lenient)?;
    let content_length = if let BodyLength::Length(bytes) = stated { Some(bytes) } else { None };
    let (length, is_delimited) = response_length(stated, status, request);
    let options = ConnectionOptions::new(&fields);
    Ok(ResponseHead {
        version,
        status,
        reason,
        length,
        content_length,
        persistent: is_delimited && options.is_persistent(version),
        upgrade: status == 101 || (request.is_connect && matches!(status, 200..=299)),
        fields,
    })
}
