//! Harmless violations of HTTP by clients: their requests are served; too many violations end the connection gracefully.
//! In: requests and frames with such violations. Out: what each test's name says.

use tidegate_base::limits::HTTP1_GLITCHES_MAX;
use tidegate_wire::http2::ErrorCode;
use tidegate_wire::http2::flood::GLITCHES_GRACEFUL;
use tidegate_wire::http2::frame::encode_settings_ack;

use crate::speaker::Speaker;
use crate::stage::{OK, assert_status, scene};

#[test]
fn connection_with_too_many_harmless_violations_is_closed_after_a_response() {
    let max = u64::from(HTTP1_GLITCHES_MAX);
    for (request, each) in [
        ("\r\n\r\nGET /hello HTTP/1.1\r\nHost: a\r\n\r\n", 2),
        ("GET http://b/hello HTTP/1.1\r\nHost: a\r\n\r\n", 1),
    ] {
        scene().with_client(|stage, client| {
            let mut answered = 0;
            while !client.is_finished_by_other() {
                answered += 1;
                assert!(answered <= max / each, "{request:?}");
                client.send(request.as_bytes());
                let response = stage.receive_until(&client, "hello");
                assert_status(200, &response);
                stage.turn();
            }
            assert!(answered >= max / each, "closed after {answered} requests {request:?}");
            assert!(stage.counters().glitches.load() >= max);
            assert_eq!(stage.counters().glitch_closes.load(), 1);
            assert_eq!(stage.counters().requests_refused.load(), 0);
        });
    }
}

#[test]
fn connection_with_too_many_glitches_gets_goaway_and_finishes_its_streams() {
    scene().listener("h2c = true").run(|stage| {
        let mut client = Speaker::new(stage);
        client.hello(stage);
        let open = client.request("POST", "/p", false, |_| {});
        client.pump(stage.net.now());
        let origin = stage.accept();
        for _ in 0..GLITCHES_GRACEFUL {
            encode_settings_ack(&mut client.out);
        }
        stage.until(|stage| {
            client.pump(stage.net.now());
            client.goaway.is_some().then_some(())
        });
        assert_eq!(client.goaway, Some(ErrorCode::NO_ERROR));
        assert_eq!(stage.counters().glitches.load(), u64::from(GLITCHES_GRACEFUL));
        assert_eq!(stage.counters().glitch_closes.load(), 1);
        client.data(stage.net.now(), open, b"rest", true);
        origin.send(OK);
        assert_eq!(client.wait(stage, open).body, b"ok");
        stage.until(|stage| {
            client.pump(stage.net.now());
            client.is_over().then_some(())
        });
    });
}
