//! Plays each scene file on the simulator, with several seeds, and on real sockets, except for one. Both must pass.
//! In: the `*.scene` files in this directory; `scene.rs` defines their format. Out: a test for each of them.
//! Invariant: every scene file of the directory is listed below.

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
    a_server_is_asked_about_each_request
    a_server_is_asked_before_other_actions
    ambiguous_paths_cannot_bypass_a_route
    authenticated_connection_serves_its_client_only
    body_timeout_is_408
    bytes_after_a_closing_request_are_dropped
    client_address_fields_are_removed
    client_reset_is_passed_to_the_server
    complete_chunked_body_is_sent_with_its_length
    conditions_read_every_cookie_and_parameter
    close_delimited_body_is_cut_by_a_reset
    connection_field_drops_the_trailers
    connection_is_not_reused_after_a_chunked_body
    counts_of_tables_select_routes
    declined_upgrade_is_an_ordinary_response
    early_response_closes_the_connection
    early_response_does_not_cut_the_request
    early_response_of_a_server_that_closes_keeps_the_client
    early_response_streams_beside_the_request_body
    echo_sends_messages_back
    edits_apply_to_every_response_of_a_route
    expect_continue_is_answered_by_the_server
    expect_continue_with_a_local_response_closes
    fields_with_underscores_are_passed_unless_a_route_edits_them
    final_response_instead_of_100_continue_closes_both_sides
    full_queue_is_503
    get_on_a_lost_reused_connection_is_retried
    get_on_a_reset_fresh_connection_is_retried_once
    half_closed_client_gets_all_pipelined_responses
    half_closed_client_gets_its_response
    head_timeout_is_408
    http_1_0_clients_may_keep_alive
    https_uri_from_a_trusted_proxy_is_accepted
    https_uri_on_a_plain_connection_is_421
    idle_timeout_closes_without_a_response
    interim_responses_are_relayed
    interim_responses_of_a_broken_server_are_withheld
    large_bodies_flow_both_ways
    lapps_services_run_unchanged
    openresty_scripts_run_unchanged
    lua_answers_requests
    lua_handlers_wait
    lua_hooks_change_bodies
    lua_hooks_change_responses
    lua_hooks_decide_about_requests
    lua_log_hooks_wait
    lua_sees_the_client_behind_a_trusted_proxy
    lua_sends_files
    lua_sends_requests
    lua_serves_websockets
    lost_server_cuts_a_body_with_a_length
    lost_server_cuts_a_chunked_body
    malformed_responses_are_502
    malformed_responses_are_retried
    max_forwards_is_decremented
    no_reachable_server_is_502
    oversized_body_is_413
    pipelined_requests_keep_their_order
    pool_is_chosen_by_maps
    post_does_not_use_an_unproven_connection
    post_on_a_lost_reused_connection_is_502
    post_on_a_reset_fresh_connection_is_502
    post_uses_the_connection_that_is_authenticated_for_its_client
    proxy_header_ends_where_it_states
    queue_timeout_is_503
    queued_body_above_the_buffer_arrives_complete
    queued_request_is_sent_when_a_server_is_free
    rewritten_paths_keep_the_query_and_the_host
    refused_connect_is_retried_on_another_server
    refused_head_requests_have_no_content
    request_trailers_are_dropped
    requests_have_ids
    requests_per_connection_are_limited
    requests_without_a_websocket_are_refused
    retries_stay_within_their_budget
    response_body_timeout_cuts_the_response
    response_timeout_is_504
    statuses_and_timeouts_are_retried
    timeouts_of_a_route_replace_those_of_its_pool
    responses_without_a_body
    routes_refuse_requests_by_themselves
    silent_websockets_are_closed
    session_cookies_reach_servers_and_no_shared_cache
    sloppy_requests_are_accepted
    sloppy_responses_are_forwarded_in_canonical_form
    smuggled_request_reaches_no_server
    stop_answers_requests_in_flight
    stop_closes_websockets_with_1001
    stop_resets_exchanges_after_the_grace_period
    strict_pool_rejects_sloppy_responses
    synthetic_response_sends_100_if_it_needs_the_body
    targets_have_the_form_of_their_method
    tcp_client_that_closes_leaves_the_queue
    tcp_connection_without_a_server_is_closed
    tcp_connections_of_an_address_are_limited
    tcp_default_pool_takes_other_names
    tcp_end_before_the_connect_is_passed_on
    tcp_ends_each_direction_by_itself
    tcp_full_queue_closes_the_connection
    tcp_header_of_a_proxy_states_the_client
    tcp_large_streams_flow_both_ways
    tcp_refused_connect_is_retried_on_another_server
    tcp_reset_is_passed_on
    tcp_server_may_speak_and_end_first
    tcp_server_name_chooses_the_pool
    tcp_silent_connection_is_reset
    tcp_stop_ends_tunnels_after_the_grace_period
    trailers_are_forwarded_both_ways
    trailers_cannot_forge_client_fields
    unexpected_body_closes_its_connection
    unrequested_101_is_502
    unsolicited_bytes_close_the_connection
    upgrade_opens_a_tunnel_both_ways
    user_agent_selects_a_route
    websocket_faults_close_with_their_code
}

/// The simulator's clients act only between two turns of a worker without work, and an application of this scene always has work.
const ON_SOCKETS_ONLY: &str = "lua_applications_take_turns";

#[test]
fn lua_applications_take_turns() {
    pass(ON_SOCKETS_ONLY, sockets::play(read(ON_SOCKETS_ONLY)));
}

#[test]
fn every_scene_file_is_listed() {
    let directory = format!("{}/tests/scenarios", env!("CARGO_MANIFEST_DIR"));
    let mut found: Vec<String> = std::fs::read_dir(directory)
        .expect("this directory")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".scene").map(str::to_owned))
        .collect();
    found.sort();
    let mut listed = SCENES.to_vec();
    listed.push(ON_SOCKETS_ONLY);
    listed.sort_unstable();
    assert_eq!(found, listed);
}
