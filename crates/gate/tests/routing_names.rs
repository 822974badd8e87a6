//! Routes whose conditions need names that a request does not have: the search excludes them without testing them.
//! In: conditions on fields, parameters and cookies; requests. Out: the same route as by testing every route in order.

use proptest::prelude::*;
use tidegate_config::model::{
    Config, HeaderCondition, HeaderTest, NamedTest, Route, TextKind, TextTest,
};
use tidegate_gate::router::{Client, Routed, Router};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;

const FILE: &str = "[[listener]]\nbind = \"127.0.0.1:80\"\n[[route]]\nsynthetic = true\n";

/// A condition: on a field, a parameter or a cookie (0 to 2), by name.
type Condition = (u8, &'static str, HeaderTest);

fn any_conditions() -> impl Strategy<Value = Vec<Condition>> {
    let text = |text: &str| {
        let test = TextTest::new(TextKind::Equals, text, false);
        HeaderTest::Text(test.expect("the text is valid"))
    };
    let tests =
        vec![HeaderTest::Present, HeaderTest::Present, HeaderTest::Absent, text("v"), text("w")];
    let names = vec!["a", "b", "ab", "x-a", "x a", "x-a="];
    let condition = (0..3_u8, prop::sample::select(names), prop::sample::select(tests));
    prop::collection::vec(condition, 1..4)
}

/// `route` with these conditions.
fn with(mut route: Route, conditions: &[Condition]) -> Route {
    for (kind, name, test) in conditions {
        let (name, test) = ((*name).to_owned(), test.clone());
        match kind {
            0 => route.headers.push(HeaderCondition { name, test }),
            1 => route.conditions.query.push(NamedTest { name, test }),
            _ => route.conditions.cookies.push(NamedTest { name, test }),
        }
    }
    route
}

/// The index of the route that takes the request.
fn find(config: &Config, routes: Vec<Route>, head: &str) -> Option<usize> {
    let router = Router::new(&Config { routes, ..config.clone() });
    let mut storage = FieldStorage::new();
    let decoded = HeadDecoder::default().decode_request(
        head.as_bytes(),
        &HeadLimits::default(),
        &mut storage,
    );
    let (head, _) = decoded.expect("it is valid").expect("it is complete");
    let client = Client { certificate: None, peer: None, trusted: &[], counts: None };
    match router.route(0, &head, &client, &mut Vec::new()) {
        Routed::Route(route) => Some(route),
        Routed::NoRoute => None,
        Routed::Refused(why) => panic!("refused: {why}"),
    }
}

proptest! {
    #[test]
    fn excluded_routes_take_no_request(
        all in prop::collection::vec(any_conditions(), 20..60),
        fields in prop::collection::vec(prop::sample::select(vec![
            "a: v", "A: w", "x-a: v", "x_a: v", "b:", "cookie: a=v; b=w", "Cookie: ab", "cookie: ;=v; a = v",
            "Cookie:b=v;ab=w", "cookie: x-a==v", "b: w",
        ]), 0..5),
        query in prop::sample::select(vec![
            "", "?", "?a", "?a=v", "?%61=v&b=w", "?a%62=v", "?x-a=w&&=v", "?x+a=v&a=w", "?b=%76", "?A=v",
        ]),
    ) {
        let config = tidegate_config::parse(FILE, "the test").unwrap_or_else(|why| panic!("{why}"));
        let routes: Vec<Route> =
            all.iter().map(|conditions| with(config.routes[0].clone(), conditions)).collect();
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let head = format!("GET /{query} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        // Few routes are tested without an index.
        let takes = |route: &Route| find(&config, vec![route.clone()], &head).is_some();
        let expected = routes.iter().position(takes);
        prop_assert_eq!(find(&config, routes, &head), expected, "{}", head);
    }
}
