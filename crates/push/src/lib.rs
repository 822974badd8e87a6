//! Decisions about push: channels, subscribers, publications, history and permissions.
//! In: the configuration; subscriptions and publications; mail of other workers; time and random numbers as arguments.
//! Out: publications for subscribers, mail for other workers, encoded messages and responses. Never: uses a socket, a
//! clock, a file or the system's randomness; knows how a subscriber is connected.
//!
//! Each worker has a [`Hub`](hub::Hub). A channel is *owned* by one of them, chosen by the hash of its name: the owner
//! gives each publication its offset, keeps the history, and mails the publication to the workers with subscribers.
//! Mail between two workers is delivered in order, so every worker sees the publications of a channel in the order
//! of their offsets, and the owner's reply to a subscription divides them exactly: publications before it are in
//! the history, and publications after it are delivered.
#![forbid(unsafe_code)]

pub mod ages;
pub mod api;
pub mod audience;
pub mod backend;
mod chunked_list;
pub mod client;
pub mod client_name;
pub mod conflation;
pub mod deflated;
pub mod delta;
pub mod effort;
pub mod emulation;
pub mod events;
pub mod fan_out;
pub mod filter;
pub mod fossil;
pub mod fuzz;
pub mod hub;
pub mod instruction;
pub mod local;
pub mod mail;
pub mod newest;
pub mod node;
pub mod owner;
pub mod pace;
pub mod poll;
pub mod position;
mod postponed;
pub mod protobuf;
pub mod publication;
pub mod queue;
pub mod roster;
pub mod server_subscription;
pub mod settings;
pub mod stream;
pub mod token;
mod visitors;
