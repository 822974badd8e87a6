//! Scene files, each played on the simulator (on several seeds) and on real sockets: both must pass.
//! In: `*.scene` beside this file; `scene.rs` says what may stand in them.
//! Invariant: every scene of the directory is a named test on both.

mod actor;
#[allow(dead_code, reason = "shared by several tests, each of which uses a part")]
#[path = "../peer/mod.rs"]
mod peer;
mod scene;
mod simulated;
mod sockets;

fn read(name: &str) -> scene::Scene {
    let path = format!("{}/tests/scenarios/{name}.scene", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    scene::parse(&text).unwrap_or_else(|why| panic!("{path}: {why}"))
}

fn pass(name: &str, outcome: Result<(), String>) {
    if let Err(why) = outcome {
        panic!("{name}.scene {why}");
    }
}

macro_rules! scenes {
    ($($name:ident)*) => {
        const SCENES: &[&str] = &[$(stringify!($name)),*];

        mod on_the_simulator {
            $(#[test]
            fn $name() {
                let name = stringify!($name);
                crate::pass(name, crate::simulated::play(|| crate::read(name)));
            })*
        }

        mod on_sockets {
            $(#[test]
            fn $name() {
                let name = stringify!($name);
                crate::pass(name, crate::sockets::play(crate::read(name)));
            })*
        }
    };
}

scenes! {
    answers_without_a_body
    body_of_an_answer_stands_still
    body_timeout_is_408
    client_leaves_while_the_server_works
    early_answer_closes_after_it
    early_answer_while_the_body_flows
    expect_continue_waits_for_the_server
    expect_with_a_local_answer
    full_queue_is_503
    half_closed_client_gets_its_answer
    half_closed_client_with_pipeline
    head_timeout_is_408
    https_uri_of_a_trusted_peer_is_answered
    https_uri_on_a_plain_connection_is_421
    idle_timeout_closes_in_silence
    interim_answers_are_relayed
    large_bodies_flow_both_ways
    malformed_answers_are_502
    max_forwards_is_counted_down
    no_server_listens
    odd_paths_dodge_no_route
    old_clients_may_keep_alive
    pipelined_requests_keep_their_order
    queue_timeout_is_503
    queued_body_beyond_what_is_kept_arrives_whole
    queued_request_is_served_when_room_comes
    refused_connect_goes_to_another_server
    refused_heads_have_no_content
    request_trailers_are_dropped
    requests_per_connection_are_counted
    response_timeout_is_504
    reused_connection_lost_get
    reused_connection_lost_post
    server_gone_in_a_body_until_close
    server_gone_in_a_chunked_body
    server_gone_in_a_counted_body
    smuggling_reaches_no_server
    stop_answers_what_is_in_flight
    stop_resets_what_outlasts_its_grace
    switching_unasked_is_refused
    synthetic_says_continue_when_it_wants_the_body
    too_large_a_body_is_413
    trailers_make_no_claims
    trailers_named_by_connection_stay_here
    trailers_pass_both_ways
    unexpected_body_ends_its_connection
    unsolicited_bytes_end_the_connection
    upgrade_declined_is_an_ordinary_answer
    upgrade_tunnels_both_ways
}

#[test]
fn every_scene_file_is_played() {
    let directory = format!("{}/tests/scenarios", env!("CARGO_MANIFEST_DIR"));
    let mut found: Vec<String> = std::fs::read_dir(directory)
        .expect("this directory")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".scene").map(str::to_owned))
        .collect();
    found.sort();
    let mut listed = SCENES.to_vec();
    listed.sort_unstable();
    assert_eq!(found, listed);
}
