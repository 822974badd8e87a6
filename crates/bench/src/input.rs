//! Receives for the WebSocket connections of one thread, and keeps incomplete input.
//! In: the readiness of a socket. Out: the bytes of each connection, in order; the ends of connections.
//! Never: waits for a socket; copies a head or a frame that arrives whole.
//! Limits: `READ_BYTES` of one receive call; `kept_max` bytes of a head or frame that arrives in pieces.
//! Invariant: bytes are kept only of connections that have a socket.

use crate::socket::{self, READ_BYTES, Received};
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::io;

/// The receive buffer of a thread's connections, and the starts of heads and frames that arrived in pieces.
pub(crate) struct Input {
    /// The buffer of receive calls, which all connections share.
    buffer: Vec<u8>,
    /// Incomplete heads and frames, by connection.
    kept: HashMap<u32, Vec<u8>>,
    /// Largest number of bytes that are kept of a connection.
    kept_max: usize,
}

/// The connections of a thread, each identified by its number.
pub(crate) trait Connections {
    /// The socket of a connection; `None` before the connection begins and after it has ended.
    fn socket(&self, number: u32) -> Option<&OwnedFd>;

    /// The input of all connections.
    fn input(&mut self) -> &mut Input;

    /// Handles the complete units at the start of `bytes`, and returns their length. An error ends the connection.
    fn handle_bytes(&mut self, number: u32, bytes: &[u8]) -> Result<usize, String>;

    /// Ends a connection, with the reason for the report. It has no socket afterwards.
    fn end(&mut self, number: u32, reason: &str);
}

impl Input {
    pub(crate) fn new(kept_max: usize) -> Self {
        Self { buffer: vec![0; READ_BYTES], kept: HashMap::new(), kept_max }
    }

    /// Forgets the bytes of a connection that ends.
    pub(crate) fn forget(&mut self, number: u32) {
        self.kept.remove(&number);
    }
}

/// Receives if an event announces bytes or the end of a connection.
pub(crate) fn receive_if_ready<C: Connections>(all: &mut C, number: u32, flags: EventFlags) {
    let is_readable = EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
    if flags.intersects(is_readable) {
        receive(all, number, flags.intersects(EventFlags::RDHUP | EventFlags::HUP));
    }
}

/// Receives until the socket is empty.
fn receive<C: Connections>(all: &mut C, number: u32, is_ending: bool) {
    let mut buffer = core::mem::take(&mut all.input().buffer);
    while let Some(socket) = all.socket(number) {
        let ended = match socket::receive(socket, &mut buffer) {
            Received::Bytes(count) => {
                let handled = handle(all, number, &buffer[..count]);
                if handled.is_ok() && count < buffer.len() && !is_ending {
                    break;
                }
                handled
            }
            Received::Nothing => break,
            Received::End => Err("the server closed the connection".to_owned()),
            Received::Broken(error) => Err(format!("receive: {}", io::Error::from(error))),
        };
        if let Err(reason) = ended {
            all.end(number, &reason);
        }
    }
    all.input().buffer = buffer;
}

/// Handles received bytes after those that were kept, and keeps incomplete input.
fn handle<C: Connections>(all: &mut C, number: u32, bytes: &[u8]) -> Result<(), String> {
    let Some(mut kept) = all.input().kept.remove(&number) else {
        let used = all.handle_bytes(number, bytes)?;
        if used < bytes.len() {
            all.input().kept.insert(number, bytes[used..].to_vec());
        }
        return Ok(());
    };
    kept.extend_from_slice(bytes);
    let used = all.handle_bytes(number, &kept)?;
    kept.drain(..used);
    if kept.len() > all.input().kept_max {
        return Err("the server sent a head or a frame that is too long".to_owned());
    }
    if !kept.is_empty() {
        all.input().kept.insert(number, kept);
    }
    Ok(())
}
