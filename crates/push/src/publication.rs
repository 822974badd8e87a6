//! A message that was published in a channel. All its receivers share it.
//! In: the data as published, compressors. Out: the data, and its encoding for each kind of subscriber.
//! Never: encodes or compresses a form twice in the same process; changes after it was published.
//! Invariant: the data is valid JSON without line breaks outside of strings, so that it fits into a line.

use std::sync::{Arc, OnceLock};

use tidegate_wire::websocket::{Kind, encode_message};

use crate::audience::Audience;
use crate::client::codec::{Body, Codec, Push};
use crate::deflated::{COMPRESSION_BYTES_MIN, COMPRESSION_COST, DeflatedFrames};
use crate::delta::Lineage;
use crate::events;
use crate::filter::Tags;
use crate::node::NodeId;
use crate::position::Position;

/// A published message.
#[derive(Debug)]
pub struct Publication {
    /// Index of the hub.
    pub hub: u16,
    /// The process to which the publisher has sent it; `position` names the process that keeps the history.
    pub origin: NodeId,
    /// The channel.
    pub channel: Arc<str>,
    /// The kind of publication.
    pub content: Content,
    /// The data: JSON in one line; empty unless it is a message.
    pub data: Arc<str>,
    /// The place of the publication in the history; `None` if the channel keeps none, or if it skips the history.
    pub position: Option<Position>,
    /// The client that published it, or that has joined or left: JSON; empty if it was not a client.
    pub info: Box<str>,
    /// The name of the client that has joined or left; `None` if it is a message.
    pub subject: Option<Arc<str>>,
    /// Its name in streams of events; empty: none.
    pub event: Arc<str>,
    /// The tags of the publisher, as a JSON object of strings; empty: no tags.
    pub tags: Box<str>,
    /// The previous message, to which patches refer; `None` in a namespace without deltas.
    pub lineage: Option<Box<Lineage>>,
    /// Which subscribers get it; `None`: all of them.
    pub audience: Option<Box<Audience>>,
    /// The encoded forms, by `Form`.
    frames: [OnceLock<Box<[u8]>>; Form::COUNT],
    /// The compressed forms; empty until a connection needs one.
    deflated: OnceLock<Box<DeflatedFrames>>,
}

/// The kind of a publication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// A message.
    Message,
    /// A client has subscribed.
    Join,
    /// A client has left.
    Leave,
}

/// How a publication is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A WebSocket text message with nothing but the data.
    Raw,
    /// An event of a stream of events.
    Event,
    /// A push of the client protocol as JSON, in a WebSocket text message.
    Json,
    /// A push of the client protocol as Protocol Buffers, in a WebSocket binary message.
    Protobuf,
    /// As `Json`, with the data as a string of JSON, for subscriptions with deltas.
    JsonText,
    /// As `JsonText`, with a patch of the previous message in place of the data.
    JsonPatch,
    /// As `Protobuf`, with a patch of the previous message in place of the data.
    ProtobufPatch,
}

impl Form {
    /// How many forms are usual: the others are those of `Lineage`.
    const COUNT: usize = 4;
    /// How many forms there are.
    pub(crate) const ALL: usize = 7;

    /// The kind of the WebSocket message.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Raw | Self::Event | Self::Json | Self::JsonText | Self::JsonPatch => Kind::Text,
            Self::Protobuf | Self::ProtobufPatch => Kind::Binary,
        }
    }
}

/// The cost of the delivery of a message in addition to its bytes, expressed in bytes: the kernel copies this much in the time of
/// a system call.
pub const DELIVERY_COST_BYTES: usize = 4096;

/// The maximum cost of a filter that tests the tags of a message, in bytes as above.
const FILTER_COST_BYTES: usize = 2 * DELIVERY_COST_BYTES;

/// How deeply lists and objects of a message may be nested. Usual parsers allow at least 512 levels; the push around the
/// data has a few, too.
pub const NESTING_MAX: usize = 100;

impl Publication {
    /// A publication of `data`.
    #[must_use]
    pub fn new(hub: u16, channel: Arc<str>, data: &str, position: Option<Position>) -> Self {
        Self {
            hub,
            origin: NodeId::OWN,
            channel,
            content: Content::Message,
            data: match has_line_breaks(data) {
                true => in_one_line(data).into(),
                false => data.into(),
            },
            position,
            info: Box::default(),
            subject: None,
            event: Arc::default(),
            tags: Box::default(),
            lineage: None,
            audience: None,
            frames: Default::default(),
            deflated: OnceLock::new(),
        }
    }

    /// The report that a client has joined or left.
    #[must_use]
    pub fn visit(
        hub: u16,
        channel: Arc<str>,
        content: Content,
        client: Arc<str>,
        info: &str,
    ) -> Self {
        let report = Self::new(hub, channel, "", None);
        Self { content, info: info.into(), subject: Some(client), ..report }
    }

    /// The same publication without its encoded forms, for the history: these are needed only while it is delivered, and
    /// each is as large as the data.
    #[must_use]
    pub fn unencoded(&self) -> Self {
        Self {
            hub: self.hub,
            origin: self.origin,
            channel: Arc::clone(&self.channel),
            content: self.content,
            data: Arc::clone(&self.data),
            position: self.position,
            info: self.info.clone(),
            subject: self.subject.clone(),
            event: Arc::clone(&self.event),
            tags: self.tags.clone(),
            lineage: None,
            audience: self.audience.clone(),
            frames: Default::default(),
            deflated: OnceLock::new(),
        }
    }

    /// The same publication with another lineage.
    #[must_use]
    pub fn with_lineage(&self, lineage: Lineage) -> Self {
        Self { lineage: Some(Box::new(lineage)), ..self.unencoded() }
    }

    /// The same publication, with older ones for subscribers that do not get it, the newest first.
    #[must_use]
    pub fn with_older(&self, older: Vec<Arc<Self>>) -> Self {
        let audience = self.audience.as_deref().map(|audience| {
            let Audience { tags, sender, .. } = audience.clone();
            Box::new(Audience { tags, sender, older })
        });
        let lineage = self.lineage.as_ref().map(|lineage| Box::new(lineage.after(0, None)));
        Self { audience, lineage, ..self.unencoded() }
    }

    /// Older publications for subscribers that do not get this one, the newest first.
    #[must_use]
    pub fn older(&self) -> &[Arc<Self>] {
        self.audience.as_ref().map_or(&[], |audience| &audience.older)
    }

    /// The tags that filters compare; none in a namespace without filters.
    #[must_use]
    pub fn tags_of_audience(&self) -> &Tags {
        self.audience.as_ref().map_or(&[], |audience| &audience.tags)
    }

    /// The client that does not get it, because it has published it; empty: there is none.
    #[must_use]
    pub fn sender(&self) -> &str {
        self.audience.as_ref().map_or("", |audience| &audience.sender)
    }

    /// What a subscriber gets of this publication and the older ones with it: the newest that it accepts.
    #[must_use]
    pub fn chosen(self: &Arc<Self>, accepts: impl Fn(&Self) -> bool) -> Option<&Arc<Self>> {
        core::iter::once(self).chain(self.older()).find(|one| accepts(one))
    }

    /// The offset; 0 if the publication has none.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.position.map_or(0, |position| position.offset)
    }

    /// Whether it reports that a client has joined or left.
    #[must_use]
    pub const fn is_visit(&self) -> bool {
        matches!(self.content, Content::Join | Content::Leave)
    }

    /// The encoded publication, shared by all subscribers of this form.
    #[must_use]
    pub fn frame(&self, form: Form) -> &[u8] {
        let of_lineage = self.lineage.as_ref().and_then(|lineage| lineage.frame(form, self));
        if let Some(frame) = of_lineage {
            return frame;
        }
        let (form, codec) = match form {
            Form::Raw | Form::Event | Form::Json => (form, Codec::Json),
            Form::Protobuf => (form, Codec::Protobuf),
            // Without a lineage there are no patches.
            Form::JsonText | Form::JsonPatch => (Form::Json, Codec::Json),
            Form::ProtobufPatch => (Form::Protobuf, Codec::Protobuf),
        };
        self.frames[form as usize].get_or_init(|| {
            let mut out = Vec::with_capacity(self.data.len() + 64);
            match form {
                Form::Raw => encode_message(&mut out, Kind::Text, self.data.as_bytes(), None),
                Form::Event => events::encode_publication(&mut out, self),
                _ => return self.encode_push(codec, Body::Plain),
            }
            out.into_boxed_slice()
        })
    }

    /// The publication as a compressed frame, shared by all subscribers of this form whose connections keep no context and
    /// have a window of `window_bits`; `None` if the message is short, or compression does not shorten it. `deflate`
    /// compresses it: called at most once in the process for each form and window.
    #[must_use]
    pub fn deflated_frame(
        &self,
        form: Form,
        window_bits: u8,
        deflate: impl FnOnce(Kind, &[u8]) -> Option<Box<[u8]>>,
    ) -> Option<&[u8]> {
        let message = self.message(form);
        if message.len() < COMPRESSION_BYTES_MIN {
            return None;
        }
        let frames = self.deflated.get_or_init(Box::default);
        frames.get(form, window_bits, || deflate(form.kind(), message))
    }

    /// The publication in one of the forms of a client, without the frame of a WebSocket.
    #[must_use]
    pub fn message(&self, form: Form) -> &[u8] {
        let frame = self.frame(form);
        // The head of an unmasked frame (RFC 6455 section 5.2).
        let head_bytes = match frame.get(1) {
            Some(126) => 4,
            Some(127) => 10,
            Some(_) | None => 2,
        };
        frame.get(head_bytes..).unwrap_or_default()
    }

    /// The push in a WebSocket message.
    pub(crate) fn encode_push(&self, codec: Codec, body: Body<'_>) -> Box<[u8]> {
        let kind = match codec {
            Codec::Json => Kind::Text,
            Codec::Protobuf => Kind::Binary,
        };
        let mut push = Vec::with_capacity(self.data.len() + 64);
        codec.encode_push(&mut push, &Push::Publication(self, body));
        let mut out = Vec::with_capacity(push.len() + 16);
        encode_message(&mut out, kind, &push, None);
        out.into_boxed_slice()
    }

    /// The cost of the delivery to one subscriber, in bytes.
    #[must_use]
    pub fn delivery_cost_bytes(&self) -> usize {
        let has_tags = self.audience.as_ref().is_some_and(|audience| !audience.tags.is_empty());
        let filter_cost = if has_tags { FILTER_COST_BYTES } else { 0 };
        DELIVERY_COST_BYTES + self.data.len() + filter_cost * (1 + self.older().len())
    }

    /// The additional cost in bytes of a delivery to a subscriber whose connection compresses its own messages.
    #[must_use]
    pub fn compression_cost_bytes(&self) -> usize {
        COMPRESSION_COST * self.data.len()
    }

    /// The additional cost in bytes of the first delivery to a subscriber with deltas.
    #[must_use]
    pub fn patch_cost_bytes(&self) -> usize {
        self.lineage.as_ref().map_or(0, |lineage| lineage.patch_cost_bytes(&self.data))
    }

    /// The memory that the publication takes with its encoded forms, for the bounds of queues. It grows when a form is made.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let frames = self.frames.iter().filter_map(OnceLock::get).map(|frame| frame.len());
        let deflated = self.deflated.get().map_or(0, |frames| frames.cost_bytes());
        let of_lineage = self.lineage.as_ref().map_or(0, |lineage| lineage.frames_bytes());
        self.cost_bytes() + frames.sum::<usize>() + deflated + of_lineage
    }

    /// The memory that the publication takes without its encoded forms, for the bounds of histories.
    #[must_use]
    pub fn cost_bytes(&self) -> usize {
        let audience = self.audience.as_ref().map_or(0, |audience| audience.cost_bytes());
        let lineage = self.lineage.as_ref().map_or(0, |_| size_of::<Lineage>());
        let texts = self.data.len() + self.info.len() + self.tags.len() + self.event.len();
        size_of::<Self>() + texts + audience + lineage
    }
}

/// How many of `publications` take no more than `bytes_max` together.
#[must_use]
pub fn count_within(publications: &[Arc<Publication>], bytes_max: usize) -> usize {
    let mut left = bytes_max;
    let fits = |publication: &&Arc<Publication>| {
        let rest = left.checked_sub(publication.cost_bytes());
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    publications.iter().take_while(fits).count()
}

/// Whether lists and objects in a JSON text are nested so deeply that parsers of clients would refuse the message.
pub(crate) fn is_too_deep(data: &str) -> bool {
    // Each level has two brackets.
    if data.len() <= 2 * NESTING_MAX {
        return false;
    }
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for byte in data.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => depth += 1,
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > NESTING_MAX {
            return true;
        }
    }
    false
}

fn has_line_breaks(data: &str) -> bool {
    data.contains(['\n', '\r'])
}

/// Replaces line breaks between the tokens of a JSON text. Strings of JSON contain no line break.
pub(crate) fn in_one_line(data: &str) -> Box<str> {
    match has_line_breaks(data) {
        true => data.replace(['\n', '\r'], " ").into_boxed_str(),
        false => data.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publication_of_the_history_shares_its_data_and_has_no_encoded_form() {
        let publication = Publication::new(0, "a".into(), "[1,\n2]", None);
        assert!(!publication.frame(Form::Json).is_empty());
        let kept = publication.unencoded();
        assert!(Arc::ptr_eq(&publication.data, &kept.data));
        assert_eq!(&*kept.data, "[1, 2]");
        assert!(kept.frames.iter().all(|frame| frame.get().is_none()));
    }

    #[test]
    fn nesting_is_counted_outside_of_texts() {
        let nested =
            |open: &str, close: &str, count| open.repeat(count) + "1" + &close.repeat(count);
        for (data, expected) in [
            (nested("[", "]", NESTING_MAX), false),
            (nested("[", "]", NESTING_MAX + 1), true),
            (nested("{\"a\":", "}", NESTING_MAX), false),
            (nested("{\"a\":[", "]}", NESTING_MAX / 2 + 1), true),
            (format!("\"{}\"", "[".repeat(500)), false),
            (format!("\"\\\"{}\"", "[".repeat(500)), false),
            (format!("[{}]", "[[1],{}],".repeat(500)), false),
            (format!("[\"\\\\\",{}]", nested("[", "]", NESTING_MAX)), true),
        ] {
            assert_eq!(is_too_deep(&data), expected, "{data:.40}");
        }
    }
}
