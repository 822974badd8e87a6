//! Messages of HTTP, and sans-IO codecs for HTTP/1.1, HTTP/2, WebSocket, TLS, the PROXY protocol, JSON Web Tokens and DNS.
//! In: received bytes. Out: views that borrow from them, encoded bytes, or a `Fault`.
//! Never: opens a socket, reads a clock, starts a thread, or draws randomness outside `tls`; accepts two
//! statements of one length.
//! Limits: those in `base::limits`; a decoder holds no more than they allow.
#![forbid(unsafe_code)]

pub mod base64;
pub mod dns;
pub mod fuzz;
pub mod http1;
pub mod http2;
pub mod jwt;
pub mod message;
pub mod proxy_protocol;
pub mod tls;
pub mod websocket;
