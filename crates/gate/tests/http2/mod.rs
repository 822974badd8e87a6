//! Heads of requests that were received over HTTP/2.
//! In: the parts of a request. Out: the head that the server's side of a connection decodes.

use tidegate_base::Moment;
use tidegate_wire::http2::{Config, Connection, Event, RequestLine, Scratch};
use tidegate_wire::message::RequestHead;

/// Sends a request without END_STREAM over a connection and gives its decoded head to `run`.
pub fn with_http2_request<T>(
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    run: impl FnOnce(&RequestHead<'_>) -> T,
) -> T {
    let mut bytes = Vec::new();
    let mut client = Connection::new(Config::client(), Moment::ZERO);
    client.start(&mut bytes);
    let line = RequestLine { method, scheme: "https", authority: "h:1", path, protocol: None };
    let sent = client.send_request(&mut bytes, 1, &line, false, |writer| {
        fields.iter().for_each(|(name, value)| writer.field(name, value.as_bytes()));
    });
    sent.expect("the connection takes a request");
    let mut server = Connection::new(Config::server(), Moment::ZERO);
    let (mut input, mut out, mut scratch) = (bytes.as_slice(), Vec::new(), Scratch::new());
    server.start(&mut out);
    loop {
        match server.receive(Moment::ZERO, &mut input, &mut scratch, &mut out) {
            Ok(Some(Event::Request { request, .. })) => return run(&request.head),
            Ok(Some(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}
