//! HTTP/1.1 for both roles: decodes heads and bodies, encodes them in canonical form (RFC 9110, RFC 9112).
//! In: the bytes of a message from its first on. Out: `RequestHead`, `ResponseHead`, `BodyStep`, `Fault`.
//! Never: guesses. A message that two implementations could read differently is rejected, and its connection
//! must be closed.
//! Limits: `HeadLimits`, `ResponseLimits`; `base::limits` for chunk extensions and trailers.
//! Invariant: how the input is split into pieces changes neither the result nor the fault.

mod body;
mod claim;
mod date;
mod encode;
mod fault;
pub(crate) mod field;
pub(crate) mod framing;
mod head;
mod method;
pub(crate) mod request;
mod response;
mod scan;
pub(crate) mod target;
pub(crate) mod trailer;

pub use body::{BodyDecoder, BodyStep};
pub use claim::{CERTIFICATE_CLAIM, FORWARDING_CLAIM, fold, is_alike, is_claim};
pub use date::DateField;
pub use encode::{
    encode_chunk_head, encode_chunk_tail, encode_field, encode_field_u64, encode_last_chunk,
    encode_request_line, encode_status_line, reason_phrase,
};
pub use fault::{Fault, FaultKind};
pub use field::{Field, FieldName, FieldStorage, Fields, ResponseStorage};
pub use framing::{BodyLength, RequestKind};
pub use head::{HeadDecoder, HeadLimits, ResponseLimits};
pub use method::{Method, Version};
pub use request::RequestHead;
pub use response::ResponseHead;
pub use target::TargetForm;
