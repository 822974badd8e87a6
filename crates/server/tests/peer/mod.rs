//! What tests know of HTTP/1.1, on their own: a strict reader and bodies whose every byte is known.
//! In: bytes. Out: heads, body pieces, ends; and a worker to try them on, with keys from a seed.
//! Never: reads HTTP with `wire`: a fault both shared would be invisible.

pub mod body;
pub mod keys;
pub mod reader;
pub mod seat;
