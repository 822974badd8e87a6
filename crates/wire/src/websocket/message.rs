//! Whole messages: collects the pieces of a message and inflates it.
//! In: received bytes, a buffer for a message in several pieces, an inflater if compression was negotiated.
//! Out: [`Incoming`] messages and control frames.
//! Never: copies a message that is uncompressed and arrives in one piece; uses the buffer between messages.
//! Limits: those in `Limits`; the buffer holds at most one message, and its excess capacity is the caller's.
//! Invariant: how the input is split changes neither the messages nor the fault of an uncompressed message.

use super::close::Close;
use super::decoder::{Data, Decoder, Event, Kind, Limits, Piece, Step};
use super::fault::{Fault, FaultKind};
use super::inflate::Inflater;
use super::utf8::text_of;

/// The result of one call of [`Decoder::decode_message`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageStep<'b> {
    /// Bytes of the input that were consumed.
    pub consumed: usize,
    /// The message or frame that they complete, if any.
    pub incoming: Option<Incoming<'b>>,
}

/// A message or control frame of the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incoming<'b> {
    /// A whole message.
    Message(Message<'b>),
    /// As [`Event::Ping`].
    Ping(&'b [u8]),
    /// As [`Event::Pong`].
    Pong(&'b [u8]),
    /// As [`Event::Close`].
    Close(Option<Close<'b>>),
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'b> {
    /// UTF-8 text.
    Text(&'b str),
    /// Any bytes.
    Binary(&'b [u8]),
}

impl<'b> Message<'b> {
    /// The data, whatever its type.
    #[must_use]
    pub const fn bytes(&self) -> &'b [u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }

    /// The type.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Binary(_) => Kind::Binary,
        }
    }

    fn new(kind: Kind, bytes: &'b [u8]) -> Result<Self, FaultKind> {
        match kind {
            Kind::Text => text_of(bytes).map(Self::Text),
            Kind::Binary => Ok(Self::Binary(bytes)),
        }
    }
}

impl Decoder {
    /// As [`Decoder::decode`], but returns whole messages. `buffer` collects a message that does not arrive in one
    /// piece; return it to its pool whenever [`Decoder::is_in_message`] is false, and pass an empty one then.
    ///
    /// # Errors
    /// As `decode`; also compressed data that is invalid or too large. After a fault call [`Decoder::fail`] and
    /// close the connection.
    #[inline]
    pub fn decode_message<'b>(
        &'b mut self,
        input: &'b mut [u8],
        limits: &Limits,
        buffer: &'b mut Vec<u8>,
        inflater: Option<&'b mut Inflater>,
    ) -> Result<MessageStep<'b>, Fault> {
        let Step { consumed, event } = self.decode(input, limits)?;
        let incoming = match event {
            None => None,
            Some(Event::Data(data)) => collect(data, limits, buffer, inflater)?,
            Some(Event::Ping(payload)) => Some(Incoming::Ping(payload)),
            Some(Event::Pong(payload)) => Some(Incoming::Pong(payload)),
            Some(Event::Close(close)) => Some(Incoming::Close(close)),
        };
        Ok(MessageStep { consumed, incoming })
    }
}

/// Adds a piece to its message. Returns the message if the piece is its last.
#[inline]
fn collect<'b>(
    data: Data<'b>,
    limits: &Limits,
    buffer: &'b mut Vec<u8>,
    inflater: Option<&'b mut Inflater>,
) -> Result<Option<Incoming<'b>>, FaultKind> {
    let Data { kind, is_first, is_last, piece } = data;
    if is_first {
        buffer.clear();
    }
    let message = match piece {
        Piece::Deflated(deflated) => {
            let inflater = inflater.ok_or(FaultKind::InflaterMissing)?;
            if is_first {
                inflater.begin_message();
            }
            if inflater.keeps_context() {
                inflater.inflate_piece(deflated, kind, is_last, buffer, limits)?;
            } else if !(is_first && is_last) {
                buffer.extend_from_slice(deflated);
            }
            match (is_last, inflater.keeps_context()) {
                (false, _) => return Ok(None),
                (true, true) => Message::new(kind, buffer)?,
                (true, false) if is_first => {
                    Message::new(kind, inflater.inflate_message(deflated, limits)?)?
                }
                (true, false) => Message::new(kind, inflater.inflate_message(buffer, limits)?)?,
            }
        }
        Piece::Text(text) if is_first && is_last => Message::Text(text),
        Piece::Binary(bytes) if is_first && is_last => Message::Binary(bytes),
        piece => {
            buffer.extend_from_slice(piece.bytes());
            if !is_last {
                return Ok(None);
            }
            Message::new(kind, buffer)?
        }
    };
    Ok(Some(Incoming::Message(message)))
}
