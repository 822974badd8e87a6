//! The probe: conformance and smuggling vectors against the binary, watching both of its sides.
//! In: the tables. Out: agreement, or a line for each vector that failed.
//! Never: depends on timing; answers are waited for, ends are waited for.

mod attacks;
mod gate;
mod message;
mod origin;
mod run;
mod tables;
mod vector;

use run::Probe;
use vector::{Check, End, Routes, Vector, answer, refuse, take};

fn probe(vectors: &[Vector]) {
    let mut probe = Probe::start();
    probe.play(vectors);
    eprintln!("{} vectors of {}", vectors.len(), std::thread::current().name().unwrap_or("main"));
    probe.finish();
}

#[test]
fn the_probe_is_awake() {
    let wrong = [
        take("status", "canary", tables::get("")).statuses(&[201]),
        take("persistence", "canary", tables::get("Connection: close\r\n")),
        take("close", "canary", tables::get("")).closes(),
        take("origin's field", "canary", tables::get("")).origin(&[Check::Has("x", "y")]),
        take("client's body", "canary", tables::get("")).client(&[Check::Body("other")]),
        take("count", "canary", tables::get("")).to(Routes::Proxy).seen(2),
        take("refusal", "canary", tables::get("X : y\r\n")).to(Routes::Proxy),
        refuse("taken", "canary", &[400], tables::get("")),
        answer("a whole answer", "canary", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na")
            .ends(End::Cut),
    ];
    for vector in wrong {
        let mut probe = Probe::start();
        probe.play(std::slice::from_ref(&vector));
        assert!(!probe.failures().is_empty(), "nobody noticed: {}", vector.name);
    }
}

#[test]
fn start_lines_are_read_as_rfc_9112_section_3_says() {
    probe(&tables::start_line::vectors());
}

#[test]
fn targets_and_hosts_mean_one_thing() {
    probe(&tables::target::vectors());
}

#[test]
fn field_lines_are_read_in_one_way_or_refused() {
    probe(&tables::fields::vectors());
}

#[test]
fn a_request_has_one_length_or_is_refused() {
    probe(&tables::framing::vectors());
}

#[test]
fn chunks_of_requests_are_read_in_one_way_or_refused() {
    probe(&tables::chunked::vectors());
}

#[test]
fn connections_live_as_long_as_both_sides_were_told() {
    probe(&tables::connection::vectors());
}

#[test]
fn requests_are_passed_on_as_an_intermediary_must() {
    probe(&tables::forwarding::vectors());
}

#[test]
fn expectations_interim_answers_and_upgrades_reach_the_right_side() {
    probe(&tables::switching::vectors());
}

#[test]
fn answers_made_here_are_those_of_an_origin_server() {
    probe(&tables::local::vectors());
}

#[test]
fn what_is_too_large_is_refused_by_its_name() {
    probe(&tables::limits::vectors());
}

#[test]
fn heads_of_answers_are_passed_on_canonical_or_not_at_all() {
    probe(&tables::response_head::vectors());
}

#[test]
fn bodies_of_answers_are_whole_or_look_cut() {
    probe(&tables::response_body::vectors());
}
