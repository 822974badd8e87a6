//! Queues that all VMs of a process share (`tide.queue.NAME`).
//! In: values; the workers whose coroutines wait for values. Out: values, oldest first; the worker that learns of a value.
//! Never: runs code; holds the lock for longer than the move of one value; wakes a coroutine itself: its worker does.
//! Limits: the configured size, of which each value uses its bytes and `ELEMENT_COST_BYTES`; one entry of `waiting` for each
//! worker.
//! Invariant: `bytes` is the size of the values. A worker whose coroutine has found no value is in `waiting` until it leaves.
//! If the word to a worker is lost, its coroutines look again after `LOOK_SPAN`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_base::{Moment, Span};

use crate::host::{Effect, Host};
use crate::schedule::{TaskId, Wake};
use crate::shared::{ELEMENT_COST_BYTES, Value};
use crate::vm::Vm;

/// How long a coroutine waits at most before it looks again. The word of a new value usually comes at once; it is lost if the
/// mailbox of a worker is full, or if the coroutine that got it was cancelled.
const LOOK_SPAN: Span = Span::from_secs(1);

const FULL: &str = "the queue is full";
const TOO_LARGE: &str = "the value is too large for this queue";

/// A queue; see the module header.
pub struct Queue {
    state: Mutex<State>,
    /// The size that the values may have.
    bytes_max: usize,
}

/// The part of a queue under its lock.
#[derive(Default)]
struct State {
    values: VecDeque<Value>,
    bytes: usize,
    /// The workers that have coroutines that wait, in the order in which they learn of values.
    waiting: VecDeque<u32>,
}

impl core::fmt::Debug for Queue {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Queue({} bytes)", self.bytes_max)
    }
}

impl Queue {
    /// Creates an empty queue of this size.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { state: Mutex::default(), bytes_max }
    }

    /// A panic under the lock is a bug of this module; the values remain usable.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a value. Returns the worker that has to learn of it, if one waits.
    pub(crate) fn push(&self, value: Value) -> Result<Option<u32>, &'static str> {
        let cost = value.cost() + ELEMENT_COST_BYTES;
        if cost > self.bytes_max {
            return Err(TOO_LARGE);
        }
        let mut state = self.lock();
        if state.bytes + cost > self.bytes_max {
            return Err(FULL);
        }
        state.bytes += cost;
        state.values.push_back(value);
        Ok(state.next_waiting())
    }

    /// Takes the oldest value.
    pub(crate) fn pop(&self) -> Option<Value> {
        self.lock().take()
    }

    /// Takes the oldest value. Without one, a coroutine of this worker is about to wait.
    pub(crate) fn pop_or_wait(&self, worker: u32) -> Option<Value> {
        let mut state = self.lock();
        let value = state.take();
        if value.is_none() && !state.waiting.contains(&worker) {
            state.waiting.push_back(worker);
        }
        value
    }

    /// No coroutine of this worker waits any more. Returns the worker that has to learn of a value instead, if there is one.
    #[must_use]
    pub fn leave(&self, worker: u32) -> Option<u32> {
        let mut state = self.lock();
        state.waiting.retain(|other| *other != worker);
        if state.values.is_empty() { None } else { state.next_waiting() }
    }

    /// The number of values.
    pub(crate) fn length(&self) -> usize {
        self.lock().values.len()
    }
}

impl State {
    fn take(&mut self) -> Option<Value> {
        let value = self.values.pop_front()?;
        self.bytes -= value.cost() + ELEMENT_COST_BYTES;
        // A queue that was full once releases its memory.
        if self.values.is_empty() && self.values.capacity() > 1024 {
            self.values = VecDeque::new();
        }
        Some(value)
    }

    /// The worker whose turn it is, which may have several coroutines that wait.
    fn next_waiting(&mut self) -> Option<u32> {
        let worker = self.waiting.pop_front()?;
        self.waiting.push_back(worker);
        Some(worker)
    }
}

impl Host {
    /// Adds a value to the queue with this number.
    pub(crate) fn push_to_queue(&mut self, at: usize, value: Value) -> Result<(), &'static str> {
        let (_, queue) = self.facts.queues.get(at).ok_or("there is no such queue")?;
        if let Some(worker) = queue.push(value)? {
            self.outbox.effects.push(Effect::QueueFilled { worker, queue: at });
        }
        Ok(())
    }

    /// When a coroutine that waits for a value until `by` looks again.
    pub(crate) fn next_look(&self, by: Moment) -> Moment {
        by.min(self.now().after(LOOK_SPAN))
    }

    /// A coroutine waits for a value of the queue with this number.
    pub(crate) fn await_queue(&mut self, at: usize, task: TaskId) {
        if self.queue_waiters.len() <= at {
            self.queue_waiters.resize_with(at + 1, VecDeque::new);
        }
        let waiters = &mut self.queue_waiters[at];
        if waiters.len() == waiters.capacity() {
            waiters.retain(|id| self.schedule.has_task(*id));
        }
        waiters.push_back(task);
    }
}

impl Vm {
    /// The queue of an effect.
    #[must_use]
    pub fn queue(&self, at: usize) -> Option<&std::sync::Arc<Queue>> {
        self.engine.peek().facts.queues.get(at).map(|(_, queue)| queue)
    }

    /// A value was added to a queue. Returns false if no coroutine of this VM waits for one.
    pub fn note_queue(&mut self, queue: &std::sync::Arc<Queue>) -> bool {
        let host = self.engine.host();
        let mut queues = host.facts.queues.iter();
        let at = queues.position(|(_, own)| std::sync::Arc::ptr_eq(own, queue));
        let Some(waiters) = at.and_then(|at| host.queue_waiters.get_mut(at)) else { return false };
        while let Some(task) = waiters.pop_front() {
            if host.schedule.is_asleep(task) {
                host.schedule.wake(task, Wake::Done);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: usize) -> Value {
        Value::Bytes(vec![7; bytes])
    }

    #[test]
    fn values_leave_in_the_order_in_which_they_came() {
        let queue = Queue::new(1024);
        for number in 0..5 {
            assert_eq!(queue.push(Value::Number(f64::from(number))), Ok(None));
        }
        assert_eq!(queue.length(), 5);
        for number in 0..5 {
            assert_eq!(queue.pop(), Some(Value::Number(f64::from(number))));
        }
        assert_eq!((queue.pop(), queue.lock().bytes), (None, 0));
    }

    #[test]
    fn size_limits_the_values() {
        let queue = Queue::new(3 * (ELEMENT_COST_BYTES + 10));
        assert_eq!(queue.push(value(3 * (ELEMENT_COST_BYTES + 10))), Err(TOO_LARGE));
        for _ in 0..3 {
            assert_eq!(queue.push(value(10)), Ok(None));
        }
        assert_eq!(queue.push(value(0)), Err(FULL));
        assert_eq!(queue.pop(), Some(value(10)));
        assert_eq!(queue.push(value(10)), Ok(None));
    }

    #[test]
    fn workers_that_wait_learn_of_values_in_turn() {
        let queue = Queue::new(1024);
        for worker in [3, 5, 3] {
            assert_eq!(queue.pop_or_wait(worker), None);
        }
        for worker in [3, 5, 3, 5] {
            assert_eq!(queue.push(value(1)), Ok(Some(worker)));
        }
        assert_eq!(queue.leave(3), Some(5));
        assert_eq!(queue.leave(5), None);
        assert_eq!(queue.push(value(1)), Ok(None));
        assert_eq!(queue.pop_or_wait(3), Some(value(1)));
        assert_eq!(queue.push(value(1)), Ok(None), "a worker that has found a value does not wait");
    }
}
