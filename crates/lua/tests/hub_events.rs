//! Events of push hubs: what `on_push` gets, the decisions that its results mean, and when it is stopped.
//! In: events, scripts. Out: decisions.

mod harness;

use harness::{App, TIMED};
use tidegate_base::{Moment, Span};
use tidegate_lua::{CallbackEnd, CallbackOwner, Excess, Handler, HubEventId, HubEventParts};

const TAG: u64 = 5;
const EVENT: &[u8] = b"{\"client\":\"c1\",\"user\":\"7\",\"channel\":\"a\",\"data\":{\"n\":1}}";
const FIELDS: &[u8] = b"x-forwarded-for: 192.0.2.7\nCookie: a=b\ncookie: c=d\n";

/// An application whose `on_push` runs `body`.
fn app(body: &str) -> App {
    let app = App::load(&format!("return {{ on_push = function(event) {body} end }}"), &TIMED);
    assert!(app.vm.has(Handler::Push));
    app
}

/// Hands an event to the application.
fn begin(app: &mut App, kind: &str, body: &[u8]) -> (HubEventId, CallbackEnd) {
    begin_at(app, kind, body, 1)
}

/// Hands it a list of events, from the one at the place `first` on.
fn begin_at(app: &mut App, kind: &str, body: &[u8], first: usize) -> (HubEventId, CallbackEnd) {
    let by = Moment::from_nanos(app.now_nanos).after(Span::from_secs(1));
    let event = app.vm.open_event(TAG, by).expect("there is room");
    let parts = HubEventParts { hub: "live", kind, fields: FIELDS, body, first };
    let verdict = app.vm.hub_event(event, &parts);
    (event, verdict)
}

/// The decisions since the last call.
fn decisions(app: &mut App) -> Vec<String> {
    app.effects();
    let all = core::mem::take(&mut app.decisions);
    assert!(all.iter().all(|(tag, _)| *tag == TAG));
    all.into_iter().map(|(_, decision)| decision).collect()
}

/// The decision of `body` about an event of this kind.
fn decision_of(kind: &str, body: &str) -> String {
    let mut app = app(body);
    let (_, verdict) = begin(&mut app, kind, EVENT);
    assert_eq!(verdict, CallbackEnd::Done, "{body}");
    let mut all = decisions(&mut app);
    assert_eq!((all.len(), app.vm.hub_events()), (1, 0), "{body}");
    all.remove(0)
}

#[test]
fn results_are_decisions() {
    for (kind, body, expected) in [
        ("publish", "return true", r#"{"result":{}}"#),
        ("publish", "return {}", r#"{"result":{}}"#),
        (
            "publish",
            "return { data = { text = event.data.n } }",
            r#"{"result":{"data":{"text":1}}}"#,
        ),
        ("connect", "return { user = event.user .. '!' }", r#"{"result":{"user":"7!"}}"#),
        (
            "connect",
            "return { expire_at = 1700000000.7 }",
            r#"{"result":{"expire_at":1700000000}}"#,
        ),
        ("subscribe", "", r#"{"error":{"code":103,"message":"permission denied"}}"#),
        ("subscribe", "return false, 'no seat'", r#"{"error":{"code":103,"message":"no seat"}}"#),
        (
            "rpc",
            "return nil, { code = 1000, message = 'x' }",
            r#"{"error":{"code":1000,"message":"x"}}"#,
        ),
        ("rpc", "return { result = { data = 1 } }", r#"{"result":{"data":1}}"#),
        ("publish", "return { disconnect = { code = 4000 } }", r#"{"disconnect":{"code":4000}}"#),
        ("refresh", "return nil", "{}"),
        ("sub_refresh", "return false", "{}"),
    ] {
        let found = decision_of(kind, body);
        let sorted = |text: &str| {
            let mut parts: Vec<_> = text.split([',', '{', '}']).map(str::to_owned).collect();
            parts.sort();
            parts
        };
        assert_eq!(sorted(&found), sorted(expected), "{kind}: {body}: {found}");
    }
}

#[test]
fn script_gets_the_event_and_the_fields_of_the_client() {
    let body = "return { data = table.concat({ event.hub, event.type, event.client, event.user, event.channel,
        event.address, table.concat(event.headers.cookie, '+'), tostring(event.headers['x-forwarded-for']) }, ' ') }";
    let expected = r#"{"result":{"data":"live subscribe c1 7 a 192.0.2.7 a=b+c=d nil"}}"#;
    assert_eq!(decision_of("subscribe", body), expected);
}

#[test]
fn events_without_a_decision_arrive_one_by_one() {
    let mut app = app("tide.log.info(event.type, event.user, event.hub)");
    let body = br#"{"events":[{"user":"1"},{"user":"2"}]}"#;
    let (_, verdict) = begin(&mut app, "disconnect", body);
    assert_eq!(verdict, CallbackEnd::Done);
    app.effects();
    assert_eq!(app.log, ["Info disconnect 1 live", "Info disconnect 2 live"]);
    assert_eq!(app.vm.hub_events(), 0);
}

#[test]
fn list_continues_behind_an_event_that_fails_or_is_late() {
    let body =
        br#"{"events":[{"user":"1"},{"user":"bad"},{"user":"late"},{"user":"4"},{"user":"5"}]}"#;
    let mut app = app("if event.user == 'bad' then error('bad user') end
        tide.sleep(event.user == 'late' and 10 or 0.9) tide.log.info(event.user)");
    let (_, verdict) = begin(&mut app, "disconnect", body);
    assert_eq!(verdict, CallbackEnd::Waiting);
    let mut ended = app.advance(900);
    for (place, millis) in [(2, 1000), (3, 900)] {
        let CallbackEnd::Failed(_) = ended.remove(0).verdict else { panic!("place {place}") };
        assert_eq!((app.vm.failed_place(), app.vm.hub_events()), (place, 0));
        let (_, verdict) = begin_at(&mut app, "disconnect", body, place + 1);
        assert_eq!(verdict, CallbackEnd::Waiting, "it has to wait for its turn");
        app.advance(0);
        ended = app.advance(millis);
    }
    // Each event has the whole time.
    assert!(app.advance(900).iter().all(|resumed| resumed.verdict == CallbackEnd::Done));
    assert_eq!(decisions(&mut app), ["{}"]);
    assert_eq!(app.log, ["Info 1", "Info 4", "Info 5"]);
    // The last event of a list has failed.
    begin_at(&mut app, "disconnect", body, 6);
    app.advance(0);
    assert_eq!(decisions(&mut app), ["{}"]);
}

#[test]
fn decision_may_wait_until_the_deadline() {
    let mut app = app("tide.sleep(event.data.n) return true");
    let (_, verdict) = begin(&mut app, "publish", b"{\"data\":{\"n\":0.5}}");
    assert_eq!(verdict, CallbackEnd::Waiting);
    assert_eq!((decisions(&mut app).len(), app.vm.waiting(), app.vm.is_idle()), (0, 1, false));
    let ended = app.advance(500);
    assert_eq!(ended[0].owner, CallbackOwner::Event { tag: TAG });
    assert_eq!(ended[0].verdict, CallbackEnd::Done);
    assert_eq!(decisions(&mut app), [r#"{"result":{}}"#]);

    begin(&mut app, "publish", b"{\"data\":{\"n\":2}}");
    let ended = app.advance(1001);
    let CallbackEnd::Failed(failure) = &ended[0].verdict else { panic!("{ended:?}") };
    assert_eq!(failure.excess, Some(Excess::Wait));
    assert_eq!(ended[0].owner, CallbackOwner::Event { tag: TAG });
    assert_eq!((decisions(&mut app).len(), app.vm.hub_events(), app.vm.waiting()), (0, 0, 0));
}

#[test]
fn event_whose_client_has_left_is_cancelled() {
    let mut app = app("tide.sleep(0.5) tide.log.info('late') return true");
    let (event, _) = begin(&mut app, "publish", EVENT);
    app.vm.close_event(event);
    assert_eq!((app.vm.hub_events(), app.vm.waiting()), (0, 0));
    assert!(app.advance(1000).is_empty());
    app.effects();
    assert_eq!(app.log, [""; 0]);
    app.vm.close_event(event);
}

#[test]
fn wrong_results_and_errors_decide_nothing() {
    for (body, error) in [
        (
            "return 5",
            "on_push must return true, a table, or nil and the reason, it returned: number",
        ),
        ("return 'yes'", "it returned: string"),
        ("return { data = function() end }", "the decision of on_push cannot be encoded"),
        ("error('it fails')", "it fails"),
        ("return { data = '\\255' }", "the decision of on_push cannot be encoded"),
    ] {
        let mut app = app(body);
        let (_, verdict) = begin(&mut app, "publish", EVENT);
        let CallbackEnd::Failed(failure) = verdict else { panic!("{body}: {verdict:?}") };
        assert!(failure.message.contains(error), "{body}: {failure}");
        assert_eq!((decisions(&mut app).len(), app.vm.hub_events()), (0, 0), "{body}");
    }
    let mut endless = app("while true do end");
    let (_, verdict) = begin(&mut endless, "publish", EVENT);
    let CallbackEnd::Failed(failure) = verdict else { panic!("{verdict:?}") };
    assert_eq!(failure.excess, Some(Excess::Time));
    assert_eq!(endless.vm.hub_events(), 0);
}
