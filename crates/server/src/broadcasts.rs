//! Broadcasts of Lua applications: messages for the subscribers of a channel, in all VMs of a process.
//! In: broadcasts of this worker and of others. Out: for each VM, one after the other, in the order in which the worker got them.
//! Never: lets a broadcast overtake an earlier one in a VM; copies a message for each VM.
//! Limits: `WAITING_MAX` broadcasts and `BYTES_MAX` bytes of them wait for each VM; more are dropped, and the worker counts them.
//! Invariant: a VM delivers one broadcast at a time. If that one fails or its VM is discarded, the next one follows.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_lua::{Handler, Vm};

use crate::apps::{App, Apps};

/// Broadcasts that wait for a VM.
pub(crate) const WAITING_MAX: usize = 4096;
/// Bytes of broadcasts that wait for a VM before another one is dropped.
pub(crate) const BYTES_MAX: usize = 16 * 1024 * 1024;

/// A message for the subscribers of a channel.
#[derive(Debug)]
pub struct Broadcast {
    /// The channel.
    pub(crate) channel: String,
    /// The message.
    pub(crate) data: Vec<u8>,
}

/// The broadcasts that wait for a VM.
#[derive(Clone, Default, Debug)]
pub(crate) struct Broadcasts {
    waiting: VecDeque<Arc<Broadcast>>,
    /// The bytes of all of them.
    bytes: usize,
}

impl Broadcasts {
    /// Adds one. Returns false if there is no room for it.
    pub(crate) fn add(&mut self, broadcast: &Arc<Broadcast>) -> bool {
        if self.waiting.len() >= WAITING_MAX || self.bytes > BYTES_MAX {
            return false;
        }
        self.bytes += broadcast.data.len();
        self.waiting.push_back(Arc::clone(broadcast));
        true
    }

    fn take(&mut self) -> Option<Arc<Broadcast>> {
        let broadcast = self.waiting.pop_front()?;
        self.bytes -= broadcast.data.len();
        Some(broadcast)
    }
}

impl App {
    /// Whether the next broadcast can be delivered.
    fn is_ready_for_broadcast(&self) -> bool {
        !self.broadcasts.waiting.is_empty()
            && self.running_vm().is_none_or(|vm| !vm.is_broadcasting())
    }

    /// How many broadcasts the VM has not delivered completely.
    fn undelivered(&self) -> usize {
        let is_delivering = self.running_vm().is_some_and(Vm::is_broadcasting);
        self.broadcasts.waiting.len() + usize::from(is_delivering)
    }
}

impl Apps {
    /// Adds a broadcast for every VM that takes broadcasts. Returns how many of them have no room for it.
    pub(crate) fn add_broadcast(&mut self, broadcast: &Arc<Broadcast>) -> u64 {
        let retired = self.retired.iter_mut().map(|old| &mut old.app);
        let mut drops = 0;
        for app in self.apps.iter_mut().chain(retired) {
            if app.running_vm().is_some_and(|vm| vm.has(Handler::Broadcast)) {
                drops += u64::from(!app.broadcasts.add(broadcast));
            }
        }
        drops
    }

    /// Whether a VM can deliver a broadcast that waits.
    pub(crate) fn has_broadcasts(&self) -> bool {
        let retired = self.retired.iter().map(|old| &old.app);
        self.apps.iter().chain(retired).any(App::is_ready_for_broadcast)
    }

    /// Takes the next broadcast of a VM, unless the VM still delivers the previous one.
    pub(crate) fn take_broadcast(&mut self, app: usize) -> Option<Arc<Broadcast>> {
        let app = self.app_mut(app)?;
        if !app.is_ready_for_broadcast() {
            return None;
        }
        app.broadcasts.take()
    }

    /// Checks the counts of waiting messages. For tests.
    pub(crate) fn check_broadcasts(&self) {
        let retired = self.retired.iter().map(|old| &old.app);
        for Broadcasts { waiting, bytes } in
            self.apps.iter().chain(retired).map(|app| &app.broadcasts)
        {
            let sum: usize = waiting.iter().map(|broadcast| broadcast.data.len()).sum();
            assert!(waiting.len() <= WAITING_MAX && sum == *bytes, "broadcasts that wait");
        }
    }

    /// Whether a VM of earlier code and its application have delivered the same broadcasts, all of them completely: a client
    /// that is handed over now gets each broadcast once.
    pub(crate) fn are_in_step(&self, old: &App, of: usize) -> bool {
        self.apps.get(of).is_none_or(|new| {
            let is_delivering = |app: &App| app.running_vm().is_some_and(Vm::is_broadcasting);
            !is_delivering(old) && !is_delivering(new) && old.undelivered() == new.undelivered()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_bytes_that_wait_are_limited_and_the_order_is_kept() {
        let broadcast = |channel: usize, bytes| {
            Arc::new(Broadcast { channel: channel.to_string(), data: vec![0; bytes] })
        };
        let mut waiting = Broadcasts::default();
        assert!((0..WAITING_MAX).all(|number| waiting.add(&broadcast(number, 1))));
        assert!(!waiting.add(&broadcast(0, 1)));
        for number in 0..WAITING_MAX {
            assert_eq!(waiting.take().expect("it waits").channel, number.to_string());
        }
        assert!(waiting.take().is_none() && waiting.bytes == 0);
        assert!(waiting.add(&broadcast(0, BYTES_MAX)) && waiting.add(&broadcast(1, 1)));
        assert!(!waiting.add(&broadcast(2, 0)));
        assert!(waiting.take().is_some() && waiting.add(&broadcast(2, 0)));
    }
}
