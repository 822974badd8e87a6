//! Streams of events (`text/event-stream`, WHATWG HTML section 9.2).
//! In: publications, positions. Out: events. Never: emits a line break within a field.

use crate::position::Position;
use crate::publication::Publication;

/// A comment that keeps a stream open.
pub const HEARTBEAT: &[u8] = b":\n\n";

/// The event that reports that messages since the client's last event are lost.
pub const LOST: &[u8] = b"event: lost\ndata: {}\n\n";

/// Appends the beginning of a stream: how long the browser waits before it connects again.
pub fn encode_start(out: &mut Vec<u8>, retry_ms: u64) {
    out.extend_from_slice(b"retry: ");
    out.extend_from_slice(itoa::Buffer::new().format(retry_ms).as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Appends the id of the current position without an event, so that a browser that has received none can state it.
pub fn encode_position(out: &mut Vec<u8>, position: &Position) {
    encode_id(out, position);
    out.push(b'\n');
}

/// Appends a publication.
pub fn encode_publication(out: &mut Vec<u8>, publication: &Publication) {
    if let Some(position) = &publication.position {
        encode_id(out, position);
    }
    if !publication.event.is_empty() {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(publication.event.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(publication.data.as_bytes());
    out.extend_from_slice(b"\n\n");
}

fn encode_id(out: &mut Vec<u8>, position: &Position) {
    out.extend_from_slice(b"id: ");
    position.encode_id(out);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::Epoch;

    #[test]
    fn events_are_single_lines() {
        let position = Position { epoch: Epoch::from_random(0), offset: 7 };
        let data = "{\"a\":\n[1,\r\n2]}";
        let publication = Publication::new(0, "a".into(), data, Some(position));
        let mut out = Vec::new();
        encode_publication(&mut out, &publication);
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text, "id: aaaaaaaa:7\ndata: {\"a\": [1,  2]}\n\n");
        let mut named = publication.unencoded();
        named.event = "price".into();
        let mut out = Vec::new();
        encode_publication(&mut out, &named);
        let text = String::from_utf8(out).expect("text");
        assert_eq!(text, "id: aaaaaaaa:7\nevent: price\ndata: {\"a\": [1,  2]}\n\n");
    }
}
