//! The compression of WebSocket messages (permessage-deflate): compressors of connections, and shared compressors.
//! In: negotiated parameters, messages. Out: compressed messages in the output of a connection; compressed frames for many
//! connections.
//! Never: refers to a message that the receiver's window does not contain.
//! Limits: a worker has as many contexts as slots (`keepers`), and one shared compressor for each size of a window.
//! Invariant: between two messages, the contents of shared compressors are meaningless.

use std::rc::Rc;

use tidegate_reactor::Reactor;
use tidegate_wire::websocket::{
    COMPRESSOR_BITS_MIN, DeflateParameters, Deflater, Effort, Inflater, Kind, Role,
    WINDOW_BITS_MAX, deflated_frame, encode_deflated,
};

use crate::requester::Requester;
use crate::worker::Worker;

/// The number of window sizes that compressors can have.
const WINDOWS: usize = (WINDOW_BITS_MAX - COMPRESSOR_BITS_MIN) as usize + 1;

/// The compression of a connection.
pub(super) struct Compression {
    /// Decompresses the client's messages; `None` if the worker's shared decompressor does.
    pub(super) inflater: Option<Inflater>,
    /// Compresses the messages for the client.
    pub(super) compressor: Compressor,
    /// A reference that `SharedCodecs::keepers` counts, if the connection keeps a context between messages.
    _keeper: Option<Rc<()>>,
}

/// Compresses the messages for a client.
pub(super) struct Compressor {
    /// The negotiated parameters of permessage-deflate.
    parameters: DeflateParameters,
    /// `None` if the worker's shared compressors are used.
    deflater: Option<Deflater>,
}

/// How a connection gets a message that several connections get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::action) enum Packing {
    /// Uncompressed.
    Plain,
    /// Compressed for all connections of this kind: with a window of these bits, and without earlier messages.
    Shared {
        /// Bits of the window.
        window_bits: u8,
    },
    /// Compressed by the compressor of the connection, which keeps its context.
    Own,
}

/// The compressors of all connections that keep no context. Created when the first connection uses them.
#[derive(Default)]
pub(crate) struct SharedCodecs {
    /// Decompresses messages. Its contents are meaningless between two messages.
    pub(super) inflater: Option<Box<Inflater>>,
    /// The compressors, by bits of the window.
    deflaters: [Option<Box<Deflater>>; WINDOWS],
    /// Has one more reference for each connection that keeps a context of its own.
    keepers: Rc<()>,
}

impl SharedCodecs {
    /// The number of connections that keep a context of their own between messages.
    pub(in crate::action) fn keepers(&self) -> usize {
        Rc::strong_count(&self.keepers) - 1
    }

    /// The place of the compressor with a window of these bits.
    fn place(&mut self, window_bits: u8) -> Option<&mut Option<Box<Deflater>>> {
        let at = window_bits.checked_sub(COMPRESSOR_BITS_MIN)?;
        self.deflaters.get_mut(usize::from(at))
    }

    /// Takes the compressor with a window of these bits.
    fn take(&mut self, window_bits: u8) -> Option<Box<Deflater>> {
        let kept = self.place(window_bits)?.take();
        kept.or_else(|| {
            Deflater::shared(window_bits, Effort::for_window(window_bits)).map(Box::new)
        })
    }

    /// Puts back a compressor.
    fn put_back(&mut self, deflater: Box<Deflater>) {
        if let Some(place) = self.place(deflater.window_bits()) {
            *place = Some(deflater);
        }
    }

    /// A message as a compressed frame for many connections; `None` if compression does not shorten it.
    pub(in crate::action) fn deflated_frame(
        &mut self,
        kind: Kind,
        data: &[u8],
        window_bits: u8,
    ) -> Option<Box<[u8]>> {
        let mut deflater = self.take(window_bits)?;
        let frame = deflated_frame(kind, data, &mut deflater);
        self.put_back(deflater);
        debug_assert!(frame.is_ok(), "a whole message can be compressed");
        frame.ok().flatten()
    }
}

impl Worker {
    /// Compresses a message and sends it. Returns false if that is not possible; then nothing was sent.
    pub(super) fn send_deflated<R: Reactor>(
        &mut self,
        reactor: &mut R,
        to: Requester,
        compressor: &mut Compressor,
        kind: Kind,
        data: &[u8],
    ) -> bool {
        let mut shared = None;
        let deflater = match &mut compressor.deflater {
            Some(own) => own,
            None => {
                let bits = compressor.parameters.shared_window_bits(Role::Server, data.len());
                let Some(codec) = bits.and_then(|bits| self.websockets.codecs.take(bits)) else {
                    return false;
                };
                &mut **shared.insert(codec)
            }
        };
        let mut is_sent = false;
        self.encode_switched(reactor, to, |out| {
            is_sent = encode_deflated(out, kind, data, deflater, None).is_ok();
        });
        if !is_sent {
            // The message was not sent, so later messages must not refer to it.
            deflater.forget();
        }
        if let Some(codec) = shared {
            self.websockets.codecs.put_back(codec);
        }
        is_sent
    }
}

impl Compression {
    pub(super) fn new(parameters: DeflateParameters, codecs: &SharedCodecs) -> Self {
        let own = |role| parameters.keeps_context(role).then(|| parameters.window_bits(role));
        let inflater = own(Role::Client).map(Inflater::for_connection);
        let deflater = own(Role::Server)
            .and_then(|bits| Deflater::for_connection(bits, Effort::for_window(bits)));
        let keeper = keeps_any_context(parameters).then(|| Rc::clone(&codecs.keepers));
        Self { inflater, compressor: Compressor { parameters, deflater }, _keeper: keeper }
    }

    /// How the connection gets a message of this many bytes that several connections get.
    pub(super) fn packing_for(&self, message_bytes: usize) -> Packing {
        let Compressor { parameters, deflater } = &self.compressor;
        if deflater.is_some() {
            return Packing::Own;
        }
        let window_bits = parameters.shared_window_bits(Role::Server, message_bytes);
        window_bits.map_or(Packing::Plain, |window_bits| Packing::Shared { window_bits })
    }
}

/// Whether either side keeps its window from one message to the next.
pub(super) fn keeps_any_context(parameters: DeflateParameters) -> bool {
    parameters.keeps_context(Role::Client) || parameters.keeps_context(Role::Server)
}
