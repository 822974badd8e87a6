//! Sans-IO codecs: what bytes on a connection mean, and how answers become bytes.
//! In: bytes as they came. Out: borrowed views of them, or the `Fault` to answer with.
//! Never: a socket, a clock, a thread, randomness; never believes a length twice.
//! Limits: `base::limits` names them; a decoder holds no more than they say.
#![forbid(unsafe_code)]

pub mod fuzz;
pub mod http1;
pub mod proxy_protocol;
pub mod tls;
