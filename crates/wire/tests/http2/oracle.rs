//! The `h2` crate as the other side, in both roles, over a pipe in memory. It checks our frames and compression,
//! and we check those of an independent implementation.

use bytes::Bytes;
use std::collections::BTreeMap;
use tidegate_base::Moment;
use tidegate_wire::http2::{Config, Connection, Event, RequestLine, Scratch};
use tidegate_wire::message::FieldName;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Sizes of bodies: empty, small, above a frame, above a window.
const SIZES: [usize; 5] = [0, 1, 20_000, 70_000, 400_000];
/// Requests of each test.
const REQUESTS: usize = 60;

/// Bodies that are to be sent, by stream.
type Pending = BTreeMap<u32, (Vec<u8>, usize)>;

/// Our side of a connection on a pipe.
struct Ours {
    connection: Connection,
    scratch: Scratch,
    out: Vec<u8>,
    /// Received bodies.
    bodies: BTreeMap<u32, Vec<u8>>,
    pending: Pending,
    /// Received responses with their trailers; only for a client.
    complete: Vec<(u32, usize)>,
}

impl Ours {
    fn new(config: Config) -> Self {
        let mut connection = Connection::new(config, Moment::ZERO);
        let mut out = Vec::new();
        connection.start(&mut out);
        Self {
            connection,
            scratch: Scratch::new(),
            out,
            bodies: BTreeMap::new(),
            pending: BTreeMap::new(),
            complete: Vec::new(),
        }
    }

    /// Takes input. As a server, echoes each complete request. As a client, notes each complete response.
    fn receive(&mut self, mut input: &[u8], is_server: bool) {
        let mut complete = Vec::new();
        loop {
            let event = self
                .connection
                .receive(Moment::ZERO, &mut input, &mut self.scratch, &mut self.out)
                .expect("h2 does not violate the protocol");
            let Some(event) = event else { break };
            let ended = match event {
                Event::Request { stream, request, ends } => {
                    assert_eq!(request.head.host, Some("example.com"));
                    assert_eq!(request.head.find(FieldName::Cookie), Some(&b"a=1; b=2"[..]));
                    self.bodies.insert(stream, Vec::new());
                    ends.then_some(stream)
                }
                Event::Response { stream, head, ends, .. } => {
                    assert_eq!(head.status, 200);
                    self.bodies.insert(stream, Vec::new());
                    ends.then_some(stream)
                }
                Event::Data { stream, bytes, ends, .. } => {
                    self.bodies.get_mut(&stream).unwrap().extend_from_slice(bytes);
                    self.connection.release(&mut self.out, stream, bytes.len());
                    ends.then_some(stream)
                }
                Event::Trailers { stream, fields, .. } => {
                    assert!(fields.map(|field| field.name).eq(["x-sum"]));
                    Some(stream)
                }
                Event::Settings | Event::Pong { .. } | Event::GoAway { .. } => None,
                other => panic!("{other:?}"),
            };
            complete.extend(ended);
        }
        for stream in complete {
            let body = self.bodies.remove(&stream).unwrap();
            if is_server {
                let sent = self.connection.send_response(&mut self.out, stream, 200, false, |f| {
                    f.field("Server", b"tidegate");
                    f.field_u64("Content-Length", body.len() as u64);
                });
                assert!(sent);
                self.pending.insert(stream, (body, 0));
                self.pump(stream);
            } else {
                self.complete.push((stream, body.len()));
            }
        }
    }

    /// Sends what a stream can send, and trailers at the end.
    fn pump(&mut self, stream: u32) {
        let Some((body, sent)) = self.pending.get_mut(&stream) else { return };
        let rest = &body[*sent..];
        let accepted =
            self.connection.send_data(Moment::ZERO, &mut self.out, stream, rest, false).unwrap();
        *sent += accepted;
        if *sent == body.len() {
            self.pending.remove(&stream);
            assert!(
                self.connection.send_trailers(&mut self.out, stream, |f| f.field("X-Sum", b"1"))
            );
        }
    }

    /// Reads and writes until the other side closes or `is_done`.
    async fn drive(
        &mut self,
        pipe: &mut DuplexStream,
        is_server: bool,
        is_done: impl Fn(&Self) -> bool,
    ) {
        let mut buffer = vec![0; 10_007];
        while !is_done(self) {
            let out = core::mem::take(&mut self.out);
            // The pipe may be full because h2 waits for us to read.
            let (mut reading, mut writing) = tokio::io::split(&mut *pipe);
            let mut rest = &out[..];
            while !rest.is_empty() {
                tokio::select! {
                    written = writing.write(rest) => rest = &rest[written.unwrap()..],
                    count = reading.read(&mut buffer) => {
                        let count = count.unwrap();
                        self.receive(&buffer[..count], is_server);
                    }
                }
            }
            self.connection.output_drained();
            while let Some(stream) = self.connection.poll_writable(&self.out) {
                self.pump(stream);
            }
            if self.out.is_empty() && !is_done(self) {
                let count = pipe.read(&mut buffer).await.unwrap();
                if count == 0 {
                    return;
                }
                self.receive(&buffer[..count], is_server);
            }
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

fn trailers() -> http::HeaderMap {
    let mut map = http::HeaderMap::new();
    map.insert("x-sum", http::HeaderValue::from_static("1"));
    map
}

/// Sends a body through h2 as its window allows, then trailers.
async fn send_body(mut stream: h2::SendStream<Bytes>, mut body: Bytes) {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let capacity = core::future::poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
        stream.send_data(body.split_to(capacity.min(body.len())), false).unwrap();
    }
    stream.send_trailers(trailers()).unwrap();
}

/// Receives a body and trailers through h2.
async fn receive_body(mut stream: h2::RecvStream) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data.unwrap();
        stream.flow_control().release_capacity(data.len()).unwrap();
        body.extend_from_slice(&data);
    }
    assert_eq!(stream.trailers().await.unwrap().map(|map| map.len()), Some(1));
    body
}

fn body_of(index: usize) -> Vec<u8> {
    (0..SIZES[index % SIZES.len()]).map(|at| (at * 7 + index) as u8).collect()
}

#[test]
fn h2_client_is_served() {
    runtime().block_on(async {
        for pipe_bytes in [100, 50_000] {
            let (ours, theirs) = tokio::io::duplex(pipe_bytes);
            let server = async {
                let mut pipe = ours;
                let mut side = Ours::new(Config { streams_max: 7, ..Config::server() });
                side.drive(&mut pipe, true, |_| false).await;
                side.connection.may_end()
            };
            let client = async {
                let (sender, connection) = h2::client::handshake(theirs).await.unwrap();
                let requests = async {
                    let mut tasks = tokio::task::JoinSet::new();
                    for index in 0..REQUESTS {
                        let sender = sender.clone();
                        tasks.spawn(async move {
                            let mut sender = sender.ready().await.unwrap();
                            let request = http::Request::post("http://example.com/path?query")
                                .header("cookie", "a=1")
                                .header("cookie", "b=2")
                                .header("x-index", index)
                                .body(())
                                .unwrap();
                            let (response, stream) = sender.send_request(request, false).unwrap();
                            let body = Bytes::from(body_of(index));
                            let sending = tokio::spawn(send_body(stream, body.clone()));
                            let response = response.await.unwrap();
                            assert_eq!(response.headers()["server"], "tidegate");
                            assert_eq!(receive_body(response.into_body()).await, body);
                            sending.await.unwrap();
                        });
                    }
                    while let Some(done) = tasks.join_next().await {
                        done.unwrap();
                    }
                    drop(sender);
                };
                let ((), ended) = tokio::join!(requests, connection);
                ended.unwrap();
            };
            let (is_clean, ()) = tokio::join!(server, client);
            assert!(is_clean, "nothing is left");
        }
    });
}

#[test]
fn h2_server_serves_our_requests() {
    runtime().block_on(async {
        let (ours, theirs) = tokio::io::duplex(20_000);
        let server = async {
            let mut builder = h2::server::Builder::new();
            builder.max_concurrent_streams(5).initial_window_size(10_000).max_frame_size(20_000);
            let mut connection = builder.handshake::<_, Bytes>(theirs).await.unwrap();
            while let Some(accepted) = connection.accept().await {
                let (request, mut respond) = accepted.unwrap();
                assert_eq!(request.uri().path(), "/path");
                assert_eq!(request.headers()["x-upper"], "Value");
                tokio::spawn(async move {
                    let body = receive_body(request.into_body()).await;
                    let response = http::Response::new(());
                    let stream = respond.send_response(response, false).unwrap();
                    send_body(stream, Bytes::from(body)).await;
                });
            }
        };
        let client = async {
            let mut pipe = ours;
            let config = Config { encoder_table_bytes: 4096, ..Config::client() };
            let mut side = Ours::new(config);
            // The first requests wait for the server's SETTINGS, because h2 resets streams above its limit.
            side.drive(&mut pipe, false, |side| side.connection.has_peer_settings()).await;
            let mut started = 0;
            while side.complete.len() < REQUESTS {
                while started < REQUESTS && side.connection.available_streams() > 0 {
                    let line = RequestLine {
                        method: "POST",
                        scheme: "http",
                        authority: "example.com",
                        path: "/path",
                        protocol: None,
                    };
                    let write = |f: &mut tidegate_wire::http2::FieldWriter<'_>| {
                        f.field("X-Upper", b"Value");
                        f.field("Connection", b"keep-alive");
                    };
                    let stream = side
                        .connection
                        .send_request(&mut side.out, 0, &line, false, write)
                        .unwrap();
                    side.pending.insert(stream, (body_of(started), 0));
                    side.pump(stream);
                    started += 1;
                }
                let before = side.complete.len();
                side.drive(&mut pipe, false, |side| side.complete.len() > before).await;
                assert!(side.complete.len() > before, "the server closed the connection");
            }
            for (stream, bytes) in side.complete {
                assert_eq!(bytes, SIZES[(stream / 2) as usize % SIZES.len()]);
            }
            assert!(side.connection.may_end());
            drop(pipe);
        };
        tokio::join!(server, client);
    });
}

#[test]
fn h2_client_follows_a_graceful_stop() {
    runtime().block_on(async {
        let (ours, theirs) = tokio::io::duplex(20_000);
        let server = async {
            let mut pipe = ours;
            let mut side = Ours::new(Config::server());
            side.drive(&mut pipe, true, |side| !side.pending.is_empty()).await;
            side.connection.stop(&mut side.out);
            side.drive(&mut pipe, true, |side| {
                side.connection.is_finished() && side.out.is_empty()
            })
            .await;
        };
        let client = async {
            let (sender, connection) = h2::client::handshake(theirs).await.unwrap();
            let requests = async {
                let mut sender = sender.ready().await.unwrap();
                let request = http::Request::post("http://example.com/")
                    .header("cookie", "a=1")
                    .header("cookie", "b=2")
                    .body(())
                    .unwrap();
                let (response, stream) = sender.send_request(request, false).unwrap();
                let body = Bytes::from(vec![7; 200_000]);
                tokio::spawn(send_body(stream, body.clone()));
                let response = response.await.unwrap();
                assert_eq!(receive_body(response.into_body()).await, body);
                assert!(sender.ready().await.is_err(), "the connection takes no more requests");
            };
            let ((), ended) = tokio::join!(requests, connection);
            assert!(ended.is_ok(), "{ended:?}");
        };
        tokio::join!(server, client);
    });
}
