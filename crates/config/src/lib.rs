//! The typed model of the TOML file: parsing, validation, schema; data only.
//! In: text. Out: a checked `model::Config`, or errors with line, column and the mend.
//! Never: resolves a name, opens a file or a socket.
#![forbid(unsafe_code)]

pub mod model;
