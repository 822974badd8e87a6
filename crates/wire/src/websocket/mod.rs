//! WebSocket for both roles: handshake, frames, messages and compression (RFC 6455, RFC 7692, RFC 8441).
//! In: heads of HTTP messages, received bytes, messages to send, random bytes for keys. Out: messages, control
//! frames, encoded bytes, or a `Fault` with its close code.
//! Never: tolerates a violation of a MUST: the connection fails at the first wrong byte.
//! Limits: `Limits`, whose defaults are in `base::limits`; a connection between messages holds 32 bytes, and its own windows only
//! if context takeover was negotiated.
//! Invariant: how the input is split into pieces changes neither the result nor the fault.
//!
//! A server calls [`Policy::check`] with the request, then [`Decoder::decode`] (pieces) or
//! [`Decoder::decode_message`] (whole messages) with what it receives, and the `encode_` functions to send.

mod close;
mod decoder;
mod deflate;
mod encoder;
mod extension;
mod fault;
mod field;
mod frame;
pub(crate) mod fuzz;
mod handshake;
mod inflate;
mod mask;
mod message;
mod origin;
mod utf8;
mod walker;

pub use close::{Close, CloseCode, REASON_BYTES_MAX};
pub use decoder::{Closing, Data, Decoder, Event, Kind, Limits, Piece, Step};
pub use deflate::{Deflater, Effort};
pub use encoder::{
    ControlTooLong, Fragment, deflated_frame, encode_close, encode_close_reply, encode_deflated,
    encode_fragment, encode_message, encode_ping, encode_pong,
};
pub use extension::{
    COMPRESSOR_BITS_MIN, DeflateParameters, DeflateSettings, WINDOW_BITS_MAX, WINDOW_BITS_MIN,
};
pub use fault::{Blame, Fault, FaultKind};
pub use field::Malformed;
pub use frame::{CONTROL_BYTES_MAX, FRAME_HEAD_BYTES_MAX, FrameHead, FrameRules, Opcode, Role};
pub use handshake::{
    ACCEPT_BYTES, Accept, Agreed, BadResponse, ClientKey, Offer, Policy, Refusal,
    WEBSOCKET_VERSION, accept_key_of, is_key_accepted,
};
pub use inflate::Inflater;
pub use mask::{MaskKey, apply_mask};
pub use message::{Incoming, Message, MessageStep};
pub use origin::{OriginInvalid, Origins};
pub use walker::FrameWalker;
