//! Messages without a protocol: heads, fields, methods, targets, lengths, and the destination of a response's head.
//! In: the parts of a message from the decoder of a carrier (`http1`, `http2`). Out: `RequestHead`,
//! `ResponseHead`, `Fault`; calls of a `ResponseSink`.
//! Never: reads or writes the bytes of a protocol; knows a connection.
//! Invariant: names, values, targets, hosts and lengths are checked here, by the same rules for all versions.

pub(crate) mod claim;
mod date;
mod fault;
pub(crate) mod field;
pub(crate) mod length;
mod method;
mod overrides;
mod owned;
mod owned_response;
pub(crate) mod request;
mod response;
mod sink;
mod status;
pub(crate) mod syntax;
pub(crate) mod target;
mod trailer;
mod version;

pub use claim::{CERTIFICATE_CLAIM, FORWARDING_CLAIM, fold, is_alike, is_claim};
pub use date::DateField;
pub use fault::{Fault, FaultKind};
pub use field::{Field, FieldName, FieldStorage, Fields, ResponseStorage};
pub use length::{BodyLength, RequestKind};
pub use method::Method;
pub use overrides::{OVERRIDES_BYTES_MAX, OVERRIDES_MAX, Overrides};
pub use owned::{OwnedHead, TARGET_PART_BYTES_MAX};
pub use owned_response::OwnedResponse;
pub use request::RequestHead;
pub use response::ResponseHead;
pub use sink::ResponseSink;
pub use status::reason_phrase;
pub use target::TargetForm;
pub use trailer::is_trailer_forbidden;
pub use version::Version;
