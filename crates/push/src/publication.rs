//! A message that was published in a channel. All its receivers share it.
//! In: the data as published. Out: the data, and its encoding for each kind of subscriber.
//! Never: encodes a form twice for the same process (a race of two workers aside); changes after it was published.
//! Invariant: the data is valid JSON without line breaks outside of strings, so that it fits into a line.

use std::sync::{Arc, OnceLock};

use tidegate_wire::websocket::{Kind, encode_message};

use crate::events;
use crate::position::Position;

/// A published message.
#[derive(Debug)]
pub struct Publication {
    /// Index of the hub.
    pub hub: u16,
    /// The channel.
    pub channel: Arc<str>,
    /// The data: JSON in one line.
    pub data: Box<str>,
    /// The place of the publication in the history; `None` if the channel keeps none, or if it skips the history.
    pub position: Option<Position>,
    /// What the publisher adds, as a JSON object of strings; empty if there is nothing.
    pub tags: Box<str>,
    /// The encoded forms, by `Form`.
    frames: [OnceLock<Box<[u8]>>; Form::COUNT],
}

/// How a publication is encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A WebSocket text message with nothing but the data.
    Raw,
    /// An event of a stream of events.
    Event,
}

impl Form {
    const COUNT: usize = 2;
}

impl Publication {
    /// A publication of `data`.
    #[must_use]
    pub fn new(hub: u16, channel: Arc<str>, data: &str, position: Option<Position>) -> Self {
        let tags = Box::default();
        Self { hub, channel, data: in_one_line(data), position, tags, frames: Default::default() }
    }

    /// The offset; 0 if the publication has none.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.position.map_or(0, |position| position.offset)
    }

    /// The encoded publication, shared by all subscribers of this form.
    #[must_use]
    pub fn frame(&self, form: Form) -> &[u8] {
        self.frames[form as usize].get_or_init(|| {
            let mut out = Vec::with_capacity(self.data.len() + 64);
            match form {
                Form::Raw => encode_message(&mut out, Kind::Text, self.data.as_bytes(), None),
                Form::Event => events::encode_publication(&mut out, self),
            }
            out.into_boxed_slice()
        })
    }

    /// The memory that the publication takes, for the bounds of queues and histories.
    #[must_use]
    pub fn cost_bytes(&self) -> usize {
        size_of::<Self>() + self.data.len() + self.tags.len()
    }
}

/// Replaces line breaks between the tokens of a JSON text. Strings of JSON contain no line break.
fn in_one_line(data: &str) -> Box<str> {
    match data.contains(['\n', '\r']) {
        true => data.replace(['\n', '\r'], " ").into_boxed_str(),
        false => data.into(),
    }
}
