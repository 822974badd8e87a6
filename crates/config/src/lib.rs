//! The configuration file: parser, validation, typed model, JSON Schema and reference. Data only.
//! In: text. Out: a checked `model::Config`, or errors with line, column and a suggested fix.
//! Never: resolves a name, opens a file or a socket.
//! Limits: `FILE_BYTES_MAX`, `report::MISTAKES_MAX`; `keys` defines the range of every setting.
#![forbid(unsafe_code)]

mod admin;
mod agent;
mod answers;
pub mod arrange;
mod ask;
mod auth;
mod bandwidth;
mod choice;
mod client_cert;
mod conditions;
mod count_tables;
mod edits;
mod eject;
mod embedded;
mod field_test;
mod file;
mod file_contents;
pub mod findings;
mod foreign;
mod foreign_file;
mod hazards;
mod health;
mod hooks;
pub mod http2;
mod https;
mod identity;
pub mod include;
mod jwt;
pub mod keys;
mod listeners;
mod log;
mod loops;
mod lua;
mod map_gaps;
mod maps;
mod mirror;
pub mod model;
mod nearest;
pub mod password_hash;
mod pattern;
mod pools;
mod push;
mod push_backend;
mod rates;
mod rebind;
mod reference;
pub mod references;
mod remote_keys;
pub mod report;
mod retry_on;
mod routes;
mod schema;
mod sets;
mod sticky;
mod table;
mod tcp;
mod template;
pub mod text;
mod text_test;
mod tls;
mod units;
mod unreachable_routes;
mod websocket;
mod words;

pub use embedded::{embedded, embedded_at, embedded_text};
pub use file::{FILE_BYTES_MAX, Loaded, parse, parse_in_folder, parse_text, parse_with_warnings};
pub use file_contents::{SUPPLIED_BYTES_MAX, supply};
pub use rebind::rebind;
pub use reference::reference;
pub use report::{Errors, Warnings};
pub use schema::schema;
pub use words::Keyword;
