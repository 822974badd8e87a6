//! Repository jobs.
fn main() {}
