//! HTTP/2 (RFC 9113): header compression.
//! In: header blocks and fields. Out: fields and header blocks, or a `Fault`.
//! Never: allocates per field, or trusts a length that the peer states.
//! Limits: those of each codec, stated in its module.

pub mod hpack;
