//! Handshakes of TLS: what `on_certificate` gets, the choices that its results mean, and when it is stopped.
//! In: handshakes, scripts. Out: choices.

mod harness;

use harness::{App, TIMED};
use tidegate_base::{Moment, Span};
use tidegate_lua::{CallbackEnd, CallbackOwner, Excess, Handler, TlsHelloId, TlsHelloParts};
use tidegate_wire::tls::CertificateFacts;

const TAG: u64 = 5;

/// An application whose `on_certificate` runs `body`.
fn app(body: &str) -> App {
    let app =
        App::load(&format!("return {{ on_certificate = function(hello) {body} end }}"), &TIMED);
    assert!(app.vm.has(Handler::Certificate));
    app
}

/// Hands a handshake to the application.
fn begin(app: &mut App, name: &str) -> (TlsHelloId, CallbackEnd) {
    let by = Moment::from_nanos(app.now_nanos).after(Span::from_secs(1));
    let facts = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        CertificateFacts { names, not_after: None }
    };
    let parts = TlsHelloParts {
        name: name.to_owned(),
        listener: "front".to_owned(),
        client: "192.0.2.1".to_owned(),
        certificates: [facts(&["a.example"]), facts(&["*.b.example", "c.example"])].into(),
    };
    let hello = app.vm.open_hello(TAG, by, parts).expect("there is room");
    let verdict = app.vm.hello(hello);
    (hello, verdict)
}

/// The choices since the last call.
fn choices(app: &mut App) -> Vec<String> {
    app.effects();
    core::mem::take(&mut app.sent)
}

#[test]
fn results_are_choices() {
    for (body, expected) in [
        ("", "5 Requested"),
        ("return nil", "5 Requested"),
        ("return false", "5 Refused"),
        ("return 'a.example'", r#"5 Named("a.example")"#),
        ("return 'x.B.example'", r#"5 Named("x.B.example")"#),
        ("return 2", "5 Index(1)"),
        ("return hello.name and 1", "5 Index(0)"),
    ] {
        let mut app = app(body);
        let (_, verdict) = begin(&mut app, "n.example");
        assert_eq!(verdict, CallbackEnd::Done, "{body}");
        assert_eq!((choices(&mut app), app.vm.hellos()), (vec![expected.to_owned()], 0), "{body}");
    }
}

#[test]
fn wrong_results_choose_nothing() {
    for (body, error) in [
        (
            "return {}",
            "on_certificate must return a name or the number of a certificate, false or nil, it returned: table",
        ),
        ("return true", "it returned: boolean"),
        ("return 0", "on_certificate: the listener has no certificate 0"),
        ("return 1.5", "on_certificate: the listener has no certificate 1.5"),
        ("return 1e300", "it has 2"),
        ("return 0/0", "on_certificate: the listener has no certificate"),
        ("return 3", "on_certificate: the listener has no certificate 3; it has 2"),
        ("return 'b.example'", "the listener has no certificate for the name 'b.example'"),
        ("return 'x.y.b.example'", "the listener has no certificate for the name 'x.y.b.example'"),
        ("return ''", "the listener has no certificate for the name ''"),
        ("error('no')", "no"),
    ] {
        let mut app = app(body);
        let (_, verdict) = begin(&mut app, "a.example");
        let CallbackEnd::Failed(failure) = verdict else { panic!("{body}: {verdict:?}") };
        assert!(failure.message.contains(error), "{body}: {}", failure.message);
        assert_eq!((choices(&mut app).len(), app.vm.hellos()), (0, 0), "{body}");
    }
}

#[test]
fn script_gets_what_the_client_requests() {
    let mut app = app("tide.log.info(tostring(hello.name), hello.listener, hello.client)");
    begin(&mut app, "a.example");
    begin(&mut app, "");
    app.effects();
    assert_eq!(app.log, ["Info a.example front 192.0.2.1", "Info nil front 192.0.2.1"]);
}

#[test]
fn choice_may_wait_until_the_deadline() {
    let mut app = app("tide.sleep(tonumber(hello.name)) return 2");
    let (_, verdict) = begin(&mut app, "0.5");
    assert_eq!(verdict, CallbackEnd::Waiting);
    assert_eq!((choices(&mut app).len(), app.vm.waiting(), app.vm.is_idle()), (0, 1, false));
    let ended = app.advance(500);
    assert_eq!(ended[0].owner, CallbackOwner::Hello { tag: TAG });
    assert_eq!(ended[0].verdict, CallbackEnd::Done);
    assert_eq!(choices(&mut app), ["5 Index(1)"]);

    begin(&mut app, "2");
    let ended = app.advance(1001);
    let CallbackEnd::Failed(failure) = &ended[0].verdict else { panic!("{ended:?}") };
    assert_eq!(failure.excess, Some(Excess::Wait));
    assert_eq!(failure.message, "on_certificate has not chosen in time");
    assert_eq!(ended[0].owner, CallbackOwner::Hello { tag: TAG });
    assert_eq!((choices(&mut app).len(), app.vm.hellos(), app.vm.waiting()), (0, 0, 0));
    assert!(app.vm.is_idle());
}

#[test]
fn handshake_whose_client_has_left_is_cancelled() {
    let mut app = app("tide.sleep(0.5) tide.log.info('late') return 1");
    let (hello, _) = begin(&mut app, "a.example");
    app.vm.close_hello(hello);
    assert_eq!((app.vm.hellos(), app.vm.waiting()), (0, 0));
    assert!(app.advance(1000).is_empty());
    app.effects();
    assert_eq!(app.log, [""; 0]);
    app.vm.close_hello(hello);
    assert_eq!(app.vm.hello(hello), CallbackEnd::Done);
}
