//! Health checks: counting of results, times, requests and responses.

use proptest::prelude::*;
use tidegate_base::Span;
use tidegate_config::model::{CheckKind, CheckMethod};
use tidegate_config::model::{HealthCheck, HttpCheck, ProxyVersion, ServerAddress};
use tidegate_gate::health::{Health, Outcome, Stage, connection_span, first_delay};
use tidegate_gate::probe::{ResponseReader, encode_proxy_header, encode_request, keeping};

fn check(rise: u32, fall: u32) -> HealthCheck {
    HealthCheck {
        kind: CheckKind::Tcp,
        every: Span::from_secs(2),
        fast_every: Span::from_millis(500),
        timeout: Span::from_secs(1),
        rise,
        fall,
        port: None,
        is_secured: false,
        keep_alive: None,
    }
}

fn http(method: CheckMethod, status: &[(u16, u16)]) -> HttpCheck {
    let (target, status) = ("/up?x=1".to_owned(), status.to_vec());
    HttpCheck { target, host: None, method, status, body: None }
}

/// The states after each result of `results`, where `+` is a success and `-` a failure.
fn states(rise: u32, fall: u32, results: &str) -> Vec<String> {
    let mut health = Health::new(&check(rise, fall));
    let after = |result| {
        let before = health.is_up();
        let changed = health.note(result == '+');
        assert_eq!(changed, before != health.is_up());
        health.word()
    };
    results.chars().map(after).collect()
}

#[test]
fn results_are_counted_as_in_haproxy() {
    // Before the first success, one failure is enough.
    assert_eq!(states(2, 3, "-"), ["DOWN"]);
    assert_eq!(
        states(2, 3, "+--+---"),
        ["UP", "UP 2/3", "UP 1/3", "UP", "UP 2/3", "UP 1/3", "DOWN"]
    );
    assert_eq!(states(2, 3, "-+-++"), ["DOWN", "DOWN 1/2", "DOWN", "DOWN 1/2", "UP"]);
    assert_eq!(states(1, 1, "+-+-"), ["UP", "DOWN", "UP", "DOWN"]);
}

#[test]
fn other_settings_keep_the_state() {
    let mut health = Health::new(&check(2, 3));
    health.note(true);
    health.note(false);
    health.change(&check(2, 3));
    assert_eq!(health.word(), "UP 2/3", "nothing has changed");
    health.change(&check(5, 1));
    assert!(health.is_up() && health.is_settled());
    assert!(health.note(false) && !health.is_up());
    health.change(&check(1, 9));
    assert_eq!((health.word().as_str(), health.numbers()), ("DOWN", (0, 1, 9)));
}

proptest! {
    /// A server is down exactly if its results since it was last up for sure contain `fall` failures in a row, and up
    /// again after `rise` successes in a row.
    #[test]
    fn state_changes_after_exactly_so_many_results(
        rise in 1_u32..6, fall in 1_u32..6, results in proptest::collection::vec(any::<bool>(), 0..200),
    ) {
        let mut health = Health::new(&check(rise, fall));
        // The reference: the results in a row that contradict the state.
        let (mut is_up, mut against) = (true, fall - 1);
        for passed in results {
            if passed == is_up {
                against = 0;
            } else {
                against += 1;
                if against == (if is_up { fall } else { rise }) {
                    (is_up, against) = (!is_up, 0);
                }
            }
            health.note(passed);
            prop_assert_eq!(health.is_up(), is_up);
            prop_assert_eq!(health.is_settled(), against == 0);
        }
    }

    #[test]
    fn checks_come_up_to_a_tenth_early(random in any::<u64>()) {
        let check = check(2, 3);
        let mut health = Health::new(&check);
        health.note(true);
        let span = health.interval(&check, random);
        prop_assert!(span <= check.every && span > check.every * 9 / 10 - Span::from_nanos(1), "{:?}", span);
        health.note(false);
        let span = health.interval(&check, random);
        prop_assert!(span <= check.fast_every && span >= check.fast_every * 9 / 10, "{:?}", span);
        prop_assert!(first_delay(check.every, random) < check.every);
    }

    #[test]
    fn how_a_response_is_split_does_not_matter(
        cuts in proptest::collection::vec(0_usize..120, 0..6), status in 200_u16..600,
    ) {
        let response = format!(
            "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok"
        );
        let check = http(CheckMethod::Get, &[(200, 299), (401, 401)]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(response.len())).collect();
        cuts.extend([0, response.len()]);
        cuts.sort_unstable();
        let mut reader = ResponseReader::default();
        let mut outcome = None;
        for pair in cuts.windows(2) {
            if outcome.is_none() && pair[0] < pair[1] {
                outcome = reader.read(&check, &response.as_bytes()[pair[0]..pair[1]]);
            }
        }
        let expected = match status {
            200..=299 | 401 => Outcome::Passed(status),
            _ => Outcome::Status(status),
        };
        prop_assert_eq!(outcome, Some(expected));
    }
}

#[test]
fn responses_that_are_no_http_fail_the_check() {
    let check = http(CheckMethod::Head, &[(200, 399)]);
    let outcome = |bytes: &[u8]| ResponseReader::default().read(&check, bytes);
    assert_eq!(outcome(b"SSH-2.0-OpenSSH_9.2\r\n"), Some(Outcome::Malformed));
    assert_eq!(outcome(b"HTTP/1.0 200 OK\r\n\r\n"), Some(Outcome::Passed(200)));
    assert_eq!(outcome(b"HTTP/1.1 204 No Content\r\n"), None);
    assert_eq!(
        outcome(&[b"HTTP/1.1 200 OK\r\nA: ".as_slice(), &[b'a'; 20_000]].concat()),
        Some(Outcome::Malformed)
    );
}

#[test]
fn request_names_the_server_unless_a_host_is_set() {
    let encode = |check: &HttpCheck, server: &ServerAddress| {
        let mut out = Vec::new();
        encode_request(&mut out, check, server);
        String::from_utf8(out).expect("it is ASCII")
    };
    let mut check = http(CheckMethod::Options, &[(200, 200)]);
    let server = ServerAddress::Ip("[::1]:80".parse().expect("an address"));
    assert_eq!(
        encode(&check, &server),
        "OPTIONS /up?x=1 HTTP/1.1\r\nHost: [::1]:80\r\nUser-Agent: tidegate-health\r\nConnection: close\r\n\r\n"
    );
    assert!(
        encode(&check, &ServerAddress::Unix("/run/x".to_owned())).contains("Host: localhost\r\n")
    );
    check.host = Some("app.example".to_owned());
    assert!(encode(&check, &server).contains("Host: app.example\r\n"));
    let mut out = Vec::new();
    encode_proxy_header(&mut out, ProxyVersion::V1);
    assert_eq!(out, b"PROXY UNKNOWN\r\n");
    out.clear();
    encode_proxy_header(&mut out, ProxyVersion::V2);
    assert_eq!((out.len(), out[12]), (16, 0x20), "LOCAL");
}

#[test]
fn outcomes_have_words_of_haproxy() {
    let outcomes = [
        Outcome::Connected { is_secured: false },
        Outcome::Connected { is_secured: true },
        Outcome::Passed(200),
        Outcome::Status(503),
        Outcome::Malformed,
        Outcome::Refused,
        Outcome::Unreachable,
        Outcome::Closed(Stage::Connect),
        Outcome::Closed(Stage::Handshake),
        Outcome::Closed(Stage::Response),
        Outcome::TimedOut(Stage::Connect),
        Outcome::TimedOut(Stage::Handshake),
        Outcome::TimedOut(Stage::Response),
    ];
    for outcome in outcomes {
        assert!(Outcome::CODES.contains(&outcome.code()), "{outcome:?}");
        assert_eq!(outcome.is_success(), outcome.code().ends_with("OK"), "{outcome}");
    }
    assert_eq!(Outcome::Status(503).to_string(), "status 503");
    assert_eq!((Outcome::Status(503).status(), Outcome::Refused.status()), (Some(503), None));
}

#[test]
fn connection_is_used_again_after_the_whole_response_and_nothing_else() {
    let check = http(CheckMethod::Get, &[(200, 399)]);
    let rest = |bytes: &[u8]| {
        let mut reader = ResponseReader::default();
        assert_eq!(reader.read(&check, bytes), Some(Outcome::Passed(200)));
        reader.into_rest()
    };
    for usable in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    ] {
        assert!(rest(usable.as_bytes()).is_some_and(|rest| rest.is_done()), "{usable}");
    }
    for single in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n",
    ] {
        assert!(rest(single.as_bytes()).is_none(), "{single}");
    }
    let slow = || rest(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n1").expect("it goes on");
    let mut body = slow();
    assert!(!body.is_done() && body.read(b"2") && !body.is_done());
    assert!(body.read(b"3") && body.is_done() && !body.read(b"4"));
    assert!(!slow().read(b"234"));
}

#[test]
fn request_that_keeps_its_connection_has_no_connection_field() {
    let check = http(CheckMethod::Get, &[(200, 200)]);
    let mut out = Vec::new();
    encode_request(&mut out, &check, &ServerAddress::Unix("/run/x".to_owned()));
    assert_eq!(
        keeping(&out).concat(),
        b"GET /up?x=1 HTTP/1.1\r\nHost: localhost\r\nUser-Agent: tidegate-health\r\n\r\n"
    );
}

proptest! {
    #[test]
    fn connections_are_kept_for_half_of_their_time_at_least(random: u64) {
        let span = Span::from_secs(30);
        let kept = connection_span(span, random);
        prop_assert!(kept <= span && kept >= span / 2, "{:?}", kept);
    }
}
