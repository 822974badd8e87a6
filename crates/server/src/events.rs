//! The recent events of the process, kept for the admin interface: each change, its time and its reason.
//! In: events from any thread. Out: the last ones, oldest first.
//! Never: waits: a thread that notes an event takes no lock. The lock of `recent` is that of the threads that show events.
//! Limits: `EVENTS_MAX` events of up to `TEXT_BYTES_MAX` bytes; older ones are dropped. Events are rare: callers note changes of
//! the process and of servers, never the actions of one client.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

use crossbeam_queue::ArrayQueue;

/// The events that are kept.
pub(crate) const EVENTS_MAX: usize = 1000;
/// Events that no thread has processed yet. If there are more, the oldest is dropped.
const WAITING_MAX: usize = EVENTS_MAX;
/// Bytes of a string; the rest is cut.
const TEXT_BYTES_MAX: usize = 480;

/// The kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventKind {
    /// The configuration or a file was reloaded, or was refused.
    Reload,
    /// A server went up or down, or its agent reports something else.
    Server,
    /// A worker avoids a server because of failed requests.
    Ejection,
    /// An operator's change.
    Admin,
    /// The process started, stops, or gives its sockets to another one.
    Process,
}

impl EventKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 5] =
        [Self::Reload, Self::Server, Self::Ejection, Self::Admin, Self::Process];

    /// The name in lists.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Reload => "reload",
            Self::Server => "server",
            Self::Ejection => "ejection",
            Self::Admin => "admin",
            Self::Process => "process",
        }
    }
}

/// Something that has happened.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// When it happened.
    pub(crate) time: SystemTime,
    /// The kind of the event.
    pub(crate) kind: EventKind,
    /// The text of the event.
    pub(crate) text: String,
}

/// Keeps the last events.
pub(crate) struct Events {
    /// Events that are not in `recent` yet.
    waiting: ArrayQueue<Event>,
    /// The events that a thread has shown before.
    recent: Mutex<VecDeque<Event>>,
}

/// The events of this process.
static EVENTS: LazyLock<Events> = LazyLock::new(Events::new);

/// Notes an event of this process.
pub(crate) fn note(kind: EventKind, text: fmt::Arguments<'_>) {
    EVENTS.note(kind, text);
}

/// The last events of this process, oldest first.
pub(crate) fn recent() -> Vec<Event> {
    EVENTS.recent()
}

impl Events {
    fn new() -> Self {
        Self { waiting: ArrayQueue::new(WAITING_MAX), recent: Mutex::default() }
    }

    fn note(&self, kind: EventKind, text: fmt::Arguments<'_>) {
        let mut text = text.to_string();
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        }
        drop(self.waiting.force_push(Event { time: SystemTime::now(), kind, text }));
    }

    fn recent(&self) -> Vec<Event> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..WAITING_MAX {
            let Some(event) = self.waiting.pop() else { break };
            if recent.len() >= EVENTS_MAX {
                recent.pop_front();
            }
            recent.push_back(event);
        }
        recent.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_events_are_kept_in_order() {
        let events = Events::new();
        let texts = || events.recent().into_iter().map(|event| event.text).collect::<Vec<_>>();
        events.note(EventKind::Admin, format_args!("first"));
        assert_eq!(texts(), ["first"]);
        for number in 0..EVENTS_MAX + 5 {
            events.note(EventKind::Server, format_args!("{number}"));
        }
        let kept = texts();
        assert_eq!((kept.len(), kept[0].as_str()), (EVENTS_MAX, "5"));
        assert_eq!(kept.last().map(String::as_str), Some("1004"));
        events.note(EventKind::Reload, format_args!("{}", "ä".repeat(TEXT_BYTES_MAX)));
        assert_eq!(texts().last().map(String::len), Some(TEXT_BYTES_MAX));
    }
}
