//! Heads that come again and again on several connections, all of whose ends share their scratch memory.

use proptest::prelude::*;
use tidegate_base::Moment;
use tidegate_wire::http2::{Config, Connection, Event, RequestLine, Scratch};
use tidegate_wire::message::Fields;

/// The fields of heads. Some of them are in the static table.
const FIELDS: [&[(&str, &str)]; 5] = [
    &[],
    &[("x-a", "1")],
    &[("x-a", "2")],
    &[("content-type", "text/plain"), ("date", "Mon, 23 Nov 2026 18:00:00 GMT")],
    &[("cookie", "a=b"), ("accept-encoding", "gzip, deflate")],
];

/// Both ends of a connection, and what they have sent.
struct Pair {
    client: (Connection, Vec<u8>),
    server: (Connection, Vec<u8>),
}

impl Pair {
    /// `uses_tables`: its ends encode fields with dynamic tables.
    fn new(uses_tables: bool) -> Self {
        let table = if uses_tables { 4096 } else { 0 };
        let end = |config: Config| {
            let config = Config { encoder_table_bytes: table, ..config };
            let mut out = Vec::new();
            let mut connection = Connection::new(config, Moment::ZERO);
            connection.start(&mut out);
            (connection, out)
        };
        Self { client: end(Config::client()), server: end(Config::server()) }
    }

    /// Sends a request with the fields `asked`, and a response with the fields `answered`. Returns the heads that arrive.
    fn exchange(&mut self, scratch: &mut Scratch, asked: usize, answered: usize) -> Vec<Head> {
        let path = if asked.is_multiple_of(2) { "/" } else { "/x" };
        let line =
            RequestLine { method: "GET", scheme: "http", authority: "a", path, protocol: None };
        let (client, out) = &mut self.client;
        let sent = client.send_request(out, 0, &line, true, |fields| {
            FIELDS[asked].iter().for_each(|(name, value)| fields.field(name, value.as_bytes()));
        });
        let stream = sent.expect("the stream can be opened");
        let mut heads = deliver(&mut self.client.1, &mut self.server, scratch);
        let (server, out) = &mut self.server;
        assert!(server.send_response(out, stream, 200, true, |fields| {
            FIELDS[answered].iter().for_each(|(name, value)| fields.field(name, value.as_bytes()));
        }));
        heads.extend(deliver(&mut self.server.1, &mut self.client, scratch));
        heads
    }
}

/// The path of a request or the status of a response, and the fields.
type Head = (String, Vec<(String, Vec<u8>)>);

fn owned(fields: Fields<'_>) -> Vec<(String, Vec<u8>)> {
    fields.map(|field| (field.name.to_owned(), field.value.to_vec())).collect()
}

/// Delivers what one end has sent to the other one. Returns the heads.
fn deliver(sent: &mut Vec<u8>, to: &mut (Connection, Vec<u8>), scratch: &mut Scratch) -> Vec<Head> {
    let mut input = &sent[..];
    let mut heads = Vec::new();
    loop {
        match to.0.receive(Moment::ZERO, &mut input, scratch, &mut to.1) {
            Ok(None) => break,
            Ok(Some(Event::Request { request, .. })) => {
                heads.push((request.head.target.to_owned(), owned(request.head.fields())));
            }
            Ok(Some(Event::Response { head, .. })) => {
                heads.push((head.status.to_string(), owned(head.fields())));
            }
            Ok(Some(_)) => {}
            Err(fault) => panic!("no end violates the protocol: {fault:?}"),
        }
    }
    sent.clear();
    heads
}

proptest! {
    #[test]
    fn heads_arrive_as_they_were_sent_whatever_came_before(
        tables in prop::array::uniform3(any::<bool>()),
        steps in prop::collection::vec((0..3_usize, 0..FIELDS.len(), 0..FIELDS.len()), 1..80),
    ) {
        let mut scratch = Scratch::new();
        let mut pairs = tables.map(Pair::new);
        for (pair, asked, answered) in steps {
            let path = if asked.is_multiple_of(2) { "/" } else { "/x" };
            let wanted = [(path, asked), ("200", answered)].map(|(what, fields)| {
                let fields = FIELDS[fields].iter();
                let fields = fields.map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
                (what.to_owned(), fields.collect())
            });
            let heads: Vec<Head> = pairs[pair].exchange(&mut scratch, asked, answered);
            prop_assert_eq!(&heads[..], &wanted[..]);
        }
    }
}
