//! Decisions about requests: routing, responses of our own, forwarding, balancing, retries.
//! In: decoded heads, configuration, time and random numbers as arguments. Out: values, calls of the sink
//! of a carrier, and bytes appended to the caller's buffer. Never: uses a socket, a clock, a file or the system's randomness.
//! Invariant: a message is forwarded only in canonical form, never as the bytes that were received.
#![forbid(unsafe_code)]

pub mod access;
pub mod agent;
pub mod allowance;
pub mod ask;
pub mod balance;
pub mod basic;
pub mod chain;
pub mod changes;
pub mod choice;
pub mod client_fields;
pub mod client_places;
mod conditions;
pub mod connection_auth;
pub mod cors;
pub mod denial;
pub mod edits;
pub mod eject;
pub mod elastic;
pub mod filter;
pub mod forward;
pub mod grpc;
pub mod handling;
pub mod health;
pub mod hsts;
pub mod identity;
pub mod idle;
pub mod inventory;
pub mod jwt;
pub mod live_map;
pub mod live_set;
pub mod mirror;
pub mod name_set;
pub mod own;
pub mod parameters;
pub mod path;
pub mod path_parameters;
pub mod permits;
pub mod places;
pub mod probe;
pub mod process_state;
pub mod published;
pub mod push;
pub mod queue;
pub mod rate;
mod rate_key;
pub mod respond;
pub mod retry;
pub mod rewrite;
pub mod router;
pub mod scheme;
pub mod scripted;
pub mod shared;
pub mod stay;
pub mod sticky;
pub mod switching;
pub mod synthetic;
mod table;
pub mod tcp;
pub mod template;
pub mod websocket;
