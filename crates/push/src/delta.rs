//! Deltas: messages as patches of the previous message in the channel.
//! In: a message, and the previous message. Out: the message as a patch, or as a whole, for subscriptions with deltas.
//! Never: makes a patch twice in the same process, or a patch that no subscriber needs.
//! Limits: those of `fossil.rs`; the newest messages of channels take up to `1 / BASES_PART` of the hub's
//! `history-memory-max`. A message that is not kept is followed by a whole one.
//! Invariant: a subscriber gets a patch only if the previous message of the channel is the last one that the subscriber got,
//! whatever was dropped or left out meanwhile. Only channels with subscribers have a newest message.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::client::codec::{Body, Codec};
use crate::fossil;
use crate::publication::{Form, Publication};

/// The place of a message among those of its channel.
#[derive(Debug)]
pub struct Lineage {
    /// The number of the message; 0 until it is sent to workers.
    serial: u64,
    /// The message may be sent as a patch.
    is_patchable: bool,
    /// The message that subscribers got before it; `None` if that is not known, or a patch is not wanted.
    base: Option<Base>,
    /// The patch; `None` if it would not be shorter than the data.
    patch: OnceLock<Option<Box<str>>>,
    /// The encoded forms: those of `Form` after the usual ones.
    frames: [OnceLock<Box<[u8]>>; 3],
}

/// A message that was sent to subscribers.
#[derive(Clone, Debug)]
pub struct Base {
    /// Its number; never 0. The messages of a channel have ascending numbers.
    pub serial: u64,
    /// Its data.
    pub data: Arc<str>,
}

impl Lineage {
    /// That of a message that was not sent yet.
    #[must_use]
    pub fn new(is_patchable: bool) -> Self {
        Self {
            serial: 0,
            is_patchable,
            base: None,
            patch: OnceLock::new(),
            frames: Default::default(),
        }
    }

    /// That of a message with this number, which is sent after `base`.
    #[must_use]
    pub fn after(&self, serial: u64, base: Option<Base>) -> Self {
        let base = base.filter(|_| self.is_patchable);
        Self { serial, base, ..Self::new(self.is_patchable) }
    }

    /// The number of the message.
    #[must_use]
    pub const fn serial(&self) -> u64 {
        self.serial
    }

    /// The cost of making the patch, in bytes that the kernel copies in the same time; 0 if there is none.
    #[must_use]
    pub fn patch_cost_bytes(&self, data: &str) -> usize {
        self.base.as_ref().map_or(0, |base| PATCH_COST * (base.data.len() + data.len()))
    }

    /// The form for a subscription whose last message has the number `before`; 0: there is none.
    #[must_use]
    pub fn form(&self, codec: Codec, data: &str, before: u64) -> Form {
        let is_base = self.base.as_ref().is_some_and(|base| base.serial == before);
        match (is_base && self.patch(data).is_some(), codec) {
            (true, Codec::Json) => Form::JsonPatch,
            (true, Codec::Protobuf) => Form::ProtobufPatch,
            (false, Codec::Json) => Form::JsonText,
            (false, Codec::Protobuf) => Form::Protobuf,
        }
    }

    fn patch(&self, data: &str) -> Option<&str> {
        let make = || fossil::encode(&self.base.as_ref()?.data, data).map(Into::into);
        self.patch.get_or_init(make).as_deref()
    }

    /// The memory of the patch and the encoded forms.
    pub(crate) fn frames_bytes(&self) -> usize {
        let frames = self.frames.iter().filter_map(OnceLock::get).map(|frame| frame.len());
        let patch = self.patch.get().and_then(Option::as_ref).map_or(0, |patch| patch.len());
        frames.sum::<usize>() + patch
    }

    /// The encoded message; `None` if the form is one of the usual ones.
    pub(crate) fn frame(&self, form: Form, publication: &Publication) -> Option<&[u8]> {
        let (frame, codec, body) = match form {
            Form::JsonText => (&self.frames[0], Codec::Json, Body::Text),
            Form::JsonPatch | Form::ProtobufPatch => {
                let body = self.patch(&publication.data).map_or(Body::Text, Body::Patch);
                match form {
                    Form::ProtobufPatch => (&self.frames[2], Codec::Protobuf, body),
                    _ => (&self.frames[1], Codec::Json, body),
                }
            }
            Form::Raw | Form::Event | Form::Json | Form::Protobuf => return None,
        };
        Some(frame.get_or_init(|| publication.encode_push(codec, body)))
    }
}

/// The newest messages of the channels that a worker owns.
#[derive(Debug)]
pub struct Bases {
    /// By channel.
    newest: BTreeMap<Arc<str>, Base>,
    /// Their total cost.
    bytes: usize,
    /// The maximum that they may cost.
    bytes_max: usize,
    /// The number of the newest message of all channels.
    serial: u64,
    /// How many messages were not kept since the last call of `take_unkept`.
    unkept: u64,
}

/// The share of `history-memory-max` that the newest messages of channels may take in addition to the histories.
pub const BASES_PART: usize = 4;
/// The memory of a newest message in addition to its data and the name of its channel.
const BASE_COST_BYTES: usize = 128;

impl Bases {
    /// No messages; the histories may keep this many bytes.
    #[must_use]
    pub const fn beside(history_bytes_max: usize) -> Self {
        let bytes_max = history_bytes_max / BASES_PART;
        Self { newest: BTreeMap::new(), bytes: 0, bytes_max, serial: 0, unkept: 0 }
    }

    /// A message is sent to the subscribers of its channel now: it follows the newest one, and is the newest.
    pub fn link(&mut self, publication: Arc<Publication>) -> Arc<Publication> {
        let Some(lineage) = &publication.lineage else { return publication };
        self.serial += 1;
        let (name, data) = (&publication.channel, &publication.data);
        let base = self.forget(name);
        let cost = cost_bytes(name, data);
        if data.len() > fossil::LENGTH_MAX || self.bytes + cost > self.bytes_max {
            self.unkept += 1;
        } else {
            self.bytes += cost;
            let base = Base { serial: self.serial, data: Arc::clone(data) };
            self.newest.insert(Arc::clone(name), base);
        }
        let lineage = lineage.after(self.serial, base);
        Arc::new(publication.with_lineage(lineage))
    }

    /// The channel has no subscribers any more. Returns its newest message.
    pub fn forget(&mut self, name: &str) -> Option<Base> {
        let base = self.newest.remove(name)?;
        self.bytes -= cost_bytes(name, &base.data);
        Some(base)
    }

    /// How many messages were not kept since the last call, because they were too long or there was no memory.
    pub fn take_unkept(&mut self) -> u64 {
        core::mem::take(&mut self.unkept)
    }

    /// The number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.newest.len()
    }

    /// Whether there is no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }
}

const fn cost_bytes(name: &str, data: &str) -> usize {
    BASE_COST_BYTES + name.len() + data.len()
}

/// How many bytes the kernel copies while one byte of a patch is made.
const PATCH_COST: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(channel: &str, data: &str, is_patchable: bool) -> Arc<Publication> {
        let publication = Publication::new(0, channel.into(), data, None);
        Arc::new(publication.with_lineage(Lineage::new(is_patchable)))
    }

    fn text(number: u32) -> String {
        format!("{{\"number\":{number},\"text\":\"{}\"}}", "a text that stays ".repeat(5))
    }

    fn form(publication: &Publication, codec: Codec, before: u64) -> Form {
        let lineage = publication.lineage.as_ref().expect("a lineage");
        lineage.form(codec, &publication.data, before)
    }

    #[test]
    fn patch_is_sent_to_subscribers_that_got_the_message_before() {
        let mut bases = Bases::beside(1 << 20);
        let first = bases.link(message("a", &text(1), true));
        let second = bases.link(message("a", &text(2), true));
        let unmarked = bases.link(message("a", &text(3), false));
        let fourth = bases.link(message("a", &text(4), true));
        let other = bases.link(message("b", &text(5), true));
        let serial = |one: &Publication| one.lineage.as_ref().map_or(0, |one| one.serial());
        for (what, publication, before, expected) in [
            ("no message before", &first, 0, Form::JsonText),
            ("the message before", &second, serial(&first), Form::JsonPatch),
            ("nothing", &second, 0, Form::JsonText),
            ("not marked", &unmarked, serial(&second), Form::JsonText),
            ("an unmarked message is a base", &fourth, serial(&unmarked), Form::JsonPatch),
            ("a gap", &fourth, serial(&second), Form::JsonText),
            ("another channel", &other, serial(&fourth), Form::JsonText),
        ] {
            assert_eq!(form(publication, Codec::Json, before), expected, "{what}");
        }
        assert_eq!(form(&second, Codec::Protobuf, serial(&first)), Form::ProtobufPatch);
        assert_eq!(form(&second, Codec::Protobuf, 0), Form::Protobuf);
        let frame = core::str::from_utf8(&second.frame(Form::JsonPatch)[2..]).unwrap_or_default();
        assert!(frame.contains("\"delta\":true") && frame.len() < text(2).len(), "{frame}");
        let shared = core::ptr::from_ref(second.frame(Form::JsonPatch));
        assert_eq!(shared, core::ptr::from_ref(second.frame(Form::JsonPatch)), "encoded once");
    }

    #[test]
    fn patch_that_is_not_shorter_is_not_sent() {
        let mut bases = Bases::beside(1 << 20);
        let first = bases.link(message("a", "{\"b\":1}", true));
        let second = bases.link(message("a", "[1,2,3,4,5,6]", true));
        let before = first.lineage.as_ref().map_or(0, |one| one.serial());
        assert_eq!(form(&second, Codec::Json, before), Form::JsonText);
        assert_eq!(
            &second.frame(Form::JsonText)[2..],
            b"{\"push\":{\"channel\":\"a\",\"pub\":{\"data\":\"[1,2,3,4,5,6]\"}}}"
        );
    }

    #[test]
    fn memory_of_newest_messages_is_bounded_and_given_back() {
        let mut bases = Bases::beside(BASES_PART * 1000);
        for number in 0..100 {
            bases.link(message(&format!("channel{number}"), &text(number), true));
            assert!(bases.bytes <= 1000);
        }
        assert!(bases.len() == 4 && bases.take_unkept() == 96, "{}", bases.len());
        // Channels whose message is kept continue.
        let again = bases.link(message("channel0", &text(101), true));
        assert_eq!(form(&again, Codec::Json, 1), Form::JsonPatch);
        for number in 0..100 {
            bases.forget(&format!("channel{number}"));
        }
        assert!(bases.is_empty() && bases.bytes == 0);
        let long = format!("\"{}\"", "x".repeat(fossil::LENGTH_MAX));
        let mut bases = Bases::beside(1 << 30);
        bases.link(message("a", &long, true));
        assert!(bases.is_empty() && bases.take_unkept() == 1);
    }
}
