//! Events of push hubs about which a script decides (`on_push`).
//! In: events, as JSON. Out: decisions, as JSON (`Effect::Decide`).
//! Never: decides about an event twice, or after its deadline.
//! Limits: `EVENTS_MAX` events and lists at once; the deadline of each event, in a list too.
//! Invariant: an event names its coroutine exactly while it waits.

use tidegate_base::{Id, Moment, Span};

use crate::engine::{Argument, Entry};
use crate::host::{Effect, Host, OUTPUT_BYTES_MAX, TOO_MUCH};
use crate::schedule::{Owner, TaskId};
use crate::vm::{CallbackEnd, Vm, numbers};

/// Maximum number of events that wait for a script.
pub(crate) const EVENTS_MAX: usize = 65_536;
/// The name of the handler in messages.
pub(crate) const ON_PUSH: &str = "on_push";

/// An event about which a script decides.
#[derive(Debug)]
pub struct HubEvent {
    /// The worker's tag of the event.
    pub(crate) tag: u64,
    /// When its handler is stopped at the latest.
    pub(crate) by: Moment,
    /// How long the handler may take for each event of a list.
    span: Span,
    /// The place of the last event of a list that the handler has got, from 1; 0 if there is none.
    pub(crate) place: usize,
    /// The coroutine of its handler, while it waits.
    pub(crate) task: TaskId,
}

/// Names an event of a VM.
pub type HubEventId = Id<HubEvent>;

/// What `on_push` gets. All texts are those of the hub's HTTP protocol.
#[derive(Clone, Copy, Debug)]
pub struct HubEventParts<'a> {
    /// The name of the hub.
    pub hub: &'a str,
    /// The kind of event.
    pub kind: &'a str,
    /// Fields of the client's first request: `name: value`, each followed by a line feed.
    pub fields: &'a [u8],
    /// The event, or a list of events: JSON.
    pub body: &'a [u8],
    /// The place of the first event of the list that the script gets, from 1.
    pub first: usize,
}

impl Host {
    /// The script gets the event at this place of a list.
    pub(crate) fn begin_event(&mut self, id: HubEventId, place: usize) {
        let now = self.now();
        if let Some(event) = self.events.get_mut(id) {
            (event.place, event.by) = (place, now.after(event.span));
        }
    }

    /// The script has decided about an event.
    pub(crate) fn decide(&mut self, id: HubEventId, decision: &[u8]) -> Result<(), &'static str> {
        if self.outbox.bytes.len() + decision.len() > OUTPUT_BYTES_MAX {
            return Err(TOO_MUCH);
        }
        let event = self.events.remove(id).ok_or("the event has ended")?;
        let decision = self.outbox.push(decision);
        self.outbox.effects.push(Effect::Decide { tag: event.tag, decision });
        Ok(())
    }
}

impl Vm {
    /// Takes over an event; `tag` is the worker's tag, `by` the deadline. `None` if the VM serves too many.
    pub fn open_event(&mut self, tag: u64, by: Moment) -> Option<HubEventId> {
        let host = self.engine.host();
        let span = by.since(host.now());
        let event = HubEvent { tag, by, span, place: 0, task: Id::NONE };
        host.events.insert(event).ok()
    }

    /// Runs `on_push`. Unless it fails, `Effect::Decide` follows, now or later.
    pub fn hub_event(&mut self, id: HubEventId, parts: &HubEventParts<'_>) -> CallbackEnd {
        let [index, generation] = numbers(id);
        let arguments = [
            index,
            generation,
            Argument::Bytes(parts.hub.as_bytes()),
            Argument::Bytes(parts.kind.as_bytes()),
            Argument::Bytes(parts.fields),
            Argument::Bytes(parts.body),
            Argument::Number(parts.first as f64),
        ];
        self.run(Entry::Push, (Owner::Event(id), ON_PUSH), &arguments)
    }

    /// The place in its list of the event whose handler has failed last, from 1; 0 if it was in no list.
    #[must_use]
    pub fn failed_place(&self) -> usize {
        self.engine.peek().failed_place
    }

    /// Forgets an event whose decision is not wanted any more.
    pub fn close_event(&mut self, id: HubEventId) {
        let host = self.engine.host();
        if let Some(event) = host.events.remove(id) {
            host.schedule.cancel(event.task);
        }
        self.forget_dropped();
    }

    /// The number of events that wait for the script.
    #[must_use]
    pub fn hub_events(&self) -> usize {
        self.engine.peek().events.len()
    }
}
