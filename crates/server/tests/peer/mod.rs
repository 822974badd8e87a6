//! What tests know of HTTP/1.1, on their own: a strict reader and bodies whose every byte is known.
//! In: bytes. Out: heads, body pieces, ends. Never: uses `wire`: a fault both shared would be invisible.

pub mod body;
pub mod reader;
