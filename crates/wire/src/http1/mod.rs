//! HTTP/1.1 for both roles: decodes heads and bodies, encodes them in canonical form (RFC 9110, RFC 9112).
//! In: the bytes of a message from its first on. Out: `RequestHead`, `ResponseHead`, `BodyStep`, `Fault`; the
//! bytes of messages. Whatever does not depend on the version is in `message`.
//! Never: guesses. A message that two implementations could read differently is rejected, and its connection
//! must be closed.
//! Limits: `HeadLimits`, `ResponseLimits`; `base::limits` for chunk extensions and trailers.
//! Invariant: how the input is split into pieces changes neither the result nor the fault.

mod body;
mod encode;
mod framing;
mod head;
mod locate;
mod request;
mod response;
mod response_encoder;
mod scan;
mod stored;
mod trailer;

pub use body::{BodyDecoder, BodyStep};
pub use encode::{
    encode_chunk_head, encode_chunk_tail, encode_field, encode_field_u64, encode_last_chunk,
    encode_request_line, encode_status_line,
};
pub use head::{HeadDecoder, HeadLimits, ResponseLimits};
pub use locate::locate;
pub use response_encoder::{BodyFraming, ResponseEncoder};
pub use stored::StoredHead;
