//! How a body is framed on an HTTP/1 connection (RFC 9112 section 6).
//! In: the framing in a head, pieces of the body. Out: framed pieces in the connection's output.

use tidegate_reactor::{Reactor, SockId};
use tidegate_wire::http1;

pub(crate) use tidegate_wire::http1::BodyFraming as Framing;

/// Appends `data` to the output of `to` in the given framing.
pub(super) fn send_framed<R: Reactor>(reactor: &mut R, to: SockId, framing: Framing, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    match framing {
        Framing::None => {}
        Framing::Length | Framing::UntilClose => reactor.send(to, data),
        Framing::Chunked => {
            if let Some(out) = reactor.output(to) {
                http1::encode_chunk_head(out, data.len());
            }
            reactor.send(to, data);
            if let Some(out) = reactor.output(to) {
                http1::encode_chunk_tail(out);
            }
        }
    }
}
