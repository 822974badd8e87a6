//! The tests' own HTTP/1.1: a strict reader, and bodies whose every byte is known in advance. Also a worker
//! ready for tests, and TLS keys from a seed.
//! In: bytes. Out: heads, pieces of bodies, ends.
//! Never: reads HTTP with `wire`: a bug in both readers would stay hidden.

pub mod body;
pub mod harness;
pub mod keys;
pub mod reader;
