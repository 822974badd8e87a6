//! The probe: plays conformance and smuggling vectors against the binary, and checks what the client and
//! the origin see.
//! In: the tables of vectors. Out: one line for each vector that failed.
//! Never: depends on timing: it waits for each response and for the end of each connection.

mod attacks;
mod gate;
mod message;
mod origin;
mod run;
mod tables;
mod vector;

use run::Probe;
use vector::{Check, End, Routes, Vector, accept, answer, refuse};

fn probe(vectors: &[Vector]) {
    let mut probe = Probe::start();
    probe.play(vectors);
    let thread = std::thread::current();
    eprintln!("{}: {} vectors", thread.name().unwrap_or("main"), vectors.len());
    probe.finish();
}

#[test]
fn wrong_expectations_are_detected() {
    let wrong = [
        accept("status", "canary", tables::get("")).statuses(&[201]),
        accept("persistence", "canary", tables::get("Connection: close\r\n")),
        accept("close", "canary", tables::get("")).closes(),
        accept("origin's field", "canary", tables::get("")).origin(&[Check::Has("x", "y")]),
        accept("client's body", "canary", tables::get("")).client(&[Check::Body("other")]),
        accept("count", "canary", tables::get("")).to(Routes::Proxy).seen(2),
        accept("refusal", "canary", tables::get("X : y\r\n")).to(Routes::Proxy),
        refuse("accepted", "canary", &[400], tables::get("")),
        answer("a complete response", "canary", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")
            .ends(End::Cut),
    ];
    for vector in wrong {
        let mut probe = Probe::start();
        probe.play(std::slice::from_ref(&vector));
        assert!(
            !probe.failures().is_empty(),
            "a wrong expectation went unnoticed: {}",
            vector.name
        );
    }
}

#[test]
fn start_lines_follow_rfc_9112_section_3() {
    probe(&tables::start_line::vectors());
}

#[test]
fn targets_and_hosts_are_unambiguous() {
    probe(&tables::target::vectors());
}

#[test]
fn ambiguous_field_lines_are_refused() {
    probe(&tables::fields::vectors());
}

#[test]
fn ambiguous_request_lengths_are_refused() {
    probe(&tables::framing::vectors());
}

#[test]
fn ambiguous_request_chunks_are_refused() {
    probe(&tables::chunked::vectors());
}

#[test]
fn connections_persist_and_close_as_announced() {
    probe(&tables::connection::vectors());
}

#[test]
fn requests_are_forwarded_as_an_intermediary_must() {
    probe(&tables::forwarding::vectors());
}

#[test]
fn expectations_interim_responses_and_upgrades_are_relayed() {
    probe(&tables::switching::vectors());
}

#[test]
fn local_responses_follow_the_rules_for_origin_servers() {
    probe(&tables::local::vectors());
}

#[test]
fn oversized_requests_get_the_matching_status() {
    probe(&tables::limits::vectors());
}

#[test]
fn response_heads_are_relayed_in_canonical_form_or_refused() {
    probe(&tables::response_head::vectors());
}

#[test]
fn response_bodies_are_complete_or_visibly_truncated() {
    probe(&tables::response_body::vectors());
}
