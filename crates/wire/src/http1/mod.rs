//! HTTP/1.1 for both roles: heads, bodies, and their canonical re-emission (RFC 9110, RFC 9112).
//! In: a message's bytes from its first on. Out: `RequestHead`, `ResponseHead`, `BodyStep`, `Fault`.
//! Never: guesses. What two readers could read in two ways is refused, and the connection with it.
//! Limits: `HeadLimits`; chunk extensions and trailers by `base::limits`.
//! Invariant: the split of the input into pieces changes neither the result nor the fault.

mod body;
mod claim;
mod date;
mod encode;
mod fault;
mod field;
mod framing;
mod head;
mod method;
mod request;
mod response;
mod scan;
mod target;
mod trailer;

pub use body::{BodyDecoder, BodyStep};
pub use claim::{CERTIFICATE_CLAIM, FORWARDING_CLAIM, is_claim};
pub use date::DateField;
pub use encode::{
    encode_chunk_head, encode_chunk_tail, encode_field, encode_field_u64, encode_last_chunk,
    encode_request_line, encode_status_line, reason_phrase,
};
pub use fault::{Fault, FaultKind};
pub use field::{Field, FieldName, FieldStorage, Fields};
pub use framing::{BodyLength, RequestKind};
pub use head::{HeadDecoder, HeadLimits};
pub use method::{Method, Version};
pub use request::RequestHead;
pub use response::ResponseHead;
pub use target::TargetForm;
