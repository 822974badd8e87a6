//! Responses to long polls.
//! In: publications, positions. Out: JSON, and the position for the next poll.

use std::sync::Arc;

use crate::api::{encode_members, encode_text};
use crate::client::codec::Body;
use crate::position::Position;
use crate::publication::Publication;

/// Appends the body of a response: the publications, and the position where the next poll continues.
pub fn encode(
    out: &mut Vec<u8>,
    publications: &[Arc<Publication>],
    position: Option<Position>,
    is_lost: bool,
) {
    out.push(b'{');
    if is_lost {
        out.extend_from_slice(b"\"lost\":true,");
    }
    out.extend_from_slice(b"\"publications\":[");
    for (index, publication) in publications.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        encode_members(out, publication, Body::Plain);
        if !publication.event.is_empty() {
            out.extend_from_slice(b",\"event\":");
            encode_text(out, &publication.event);
        }
        out.push(b'}');
    }
    out.push(b']');
    if let Some(position) = position {
        out.extend_from_slice(b",\"since\":");
        let mut id = Vec::new();
        position.encode_id(&mut id);
        encode_text(out, core::str::from_utf8(&id).unwrap_or_default());
    }
    out.push(b'}');
}
