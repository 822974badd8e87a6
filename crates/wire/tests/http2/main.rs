//! Tests of an HTTP/2 connection: the rules of RFC 9113, attacks, flow control, two connections that talk to
//! each other, and the `h2` crate as the other side.

mod attacks;
mod bytes;
mod flow;
mod oracle;
mod pair;
mod repeated;
mod rules;
mod stopping;
mod watch;
