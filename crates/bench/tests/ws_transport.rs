//! `tidegate bench ws` with compression, over TLS, and with several servers.

use serde_json::Value;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_testing::{command, example, run};
use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::FieldStorage;
use tidegate_wire::tls::{
    Acceptor, AcceptorSettings, CertificateFiles, TicketKeys, TlsClock, TlsSession,
};
use tidegate_wire::websocket::{
    Decoder, DeflateSettings, Deflater, Effort, FrameRules, Incoming, Inflater, Limits, Origins,
    Policy, Role, WINDOW_BITS_MAX, encode_deflated, encode_message,
};

/// What a server does in addition to sending messages back.
#[derive(Clone, Copy, Default)]
struct Ways {
    /// Agrees to compression.
    agrees: bool,
    /// Compresses the echoes.
    compresses: bool,
    /// Changes the echoes.
    changes: bool,
}

/// A connection, perhaps with TLS.
struct Line {
    stream: TcpStream,
    session: Option<TlsSession>,
}

impl Line {
    /// Appends what was received to `input`. Returns false at the end.
    fn read(&mut self, input: &mut Vec<u8>) -> io::Result<bool> {
        let mut buffer = [0; 65_536];
        let count = self.stream.read(&mut buffer)?;
        match &mut self.session {
            None => input.extend_from_slice(&buffer[..count]),
            Some(session) => {
                let mut out = Vec::new();
                let done = session.handle_bytes(&mut buffer[..count], input, &mut out);
                self.stream.write_all(&out)?;
                done.map_err(|fault| io::Error::other(format!("{fault:?}")))?;
            }
        }
        Ok(count > 0)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.session {
            None => self.stream.write_all(bytes),
            Some(session) => {
                let mut out = Vec::new();
                session.seal(bytes, &mut out).map_err(|_| io::Error::other("seal"))?;
                self.stream.write_all(&out)
            }
        }
    }
}

/// A server of echoes. Returns its address, and the number of its connections.
fn serve(ways: Ways, acceptor: Option<Acceptor>) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (acceptor, count) = (acceptor.map(Arc::new), Arc::new(AtomicU64::new(0)));
    let counter = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            counter.fetch_add(1, Ordering::Relaxed);
            let session = acceptor.as_ref().map(|acceptor| acceptor.accept().unwrap());
            // A client that is content resets its connections.
            thread::spawn(move || talk(Line { stream, session }, ways));
        }
    });
    (address, count)
}

fn talk(mut line: Line, ways: Ways) -> io::Result<()> {
    let mut input = Vec::new();
    while !input.ends_with(b"\r\n\r\n") {
        if !line.read(&mut input)? {
            return Ok(());
        }
    }
    let mut storage = FieldStorage::new();
    let decoded =
        HeadDecoder::default().decode_request(&input, &HeadLimits::default(), &mut storage);
    let (head, _) = decoded.unwrap().unwrap();
    let origins = Origins::parse(["*"]).unwrap();
    let deflate = ways.agrees.then(DeflateSettings::default);
    let policy = Policy { subprotocols: Vec::new(), origins, deflate };
    let mut response = b"HTTP/1.1 101 Switching Protocols\r\n".to_vec();
    let accept = policy.check(&head).unwrap();
    accept.encode_fields(&mut response);
    let has_agreed = accept.deflate.is_some();
    response.extend_from_slice(b"\r\n");
    line.write(&response)?;
    let rules = FrameRules { role: Role::Server, allows_deflate: has_agreed };
    let mut decoder = Decoder::new(rules);
    let mut deflater = Deflater::shared(WINDOW_BITS_MAX, Effort::default()).unwrap();
    let (mut inflater, mut message) = (Inflater::shared(), Vec::new());
    loop {
        let (mut input, mut out, mut used) = (Vec::new(), Vec::new(), 0);
        if !line.read(&mut input)? {
            return Ok(());
        }
        while used < input.len() {
            let rest = &mut input[used..];
            let limits = Limits { inflate_ratio_max: u32::MAX, ..Limits::default() };
            let inflater = Some(&mut inflater);
            let step = decoder.decode_message(rest, &limits, &mut message, inflater).unwrap();
            used += step.consumed;
            if let Some(Incoming::Message(message)) = step.incoming {
                let mut data = message.bytes().to_vec();
                if ways.changes {
                    *data.last_mut().unwrap() ^= 1;
                }
                match ways.compresses && has_agreed {
                    true => encode_deflated(&mut out, message.kind(), &data, &mut deflater, None)
                        .unwrap(),
                    false => encode_message(&mut out, message.kind(), &data, None),
                }
            }
        }
        line.write(&out)?;
    }
}

fn bench(arguments: &[&str]) -> (Value, Option<i32>) {
    let common = ["bench", "ws", "--json", "--duration", "500ms"];
    let output = run(command(example("bench")).args(common).args(arguments));
    let text = String::from_utf8_lossy(&output.stdout);
    let json = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}\n{}", String::from_utf8_lossy(&output.stderr))
    });
    (json, output.status.code())
}

fn count(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("{name}: {json}"))
}

#[test]
fn compressed_echoes_are_counted_and_compared() {
    for (ways, is_compressed) in [
        (Ways { agrees: true, compresses: true, ..Ways::default() }, true),
        (Ways { agrees: true, ..Ways::default() }, false),
    ] {
        let url = format!("ws://{}/echo", serve(ways, None).0);
        for load in
            [&["--size", "2000"][..], &["--size", "70000", "--binary", "--outstanding", "3"]]
        {
            let (json, code) = bench(&[&[url.as_str(), "-c", "3", "--compress"], load].concat());
            let compression = &json["compression"];
            let [messages, echoes] = ["sent", "received"].map(|name| count(compression, name));
            assert!(count(&json, "messages") > 0 && code == Some(0), "{json}");
            assert_eq!((count(compression, "connections"), messages), (3, echoes), "{json}");
            // The messages repeat a short pattern.
            let size = count(&json, "message_bytes");
            assert!(count(compression, "sent_bytes") < messages * size / 4, "{json}");
            let compressed = count(compression, "received_compressed");
            assert_eq!(compressed, if is_compressed { echoes } else { 0 }, "{json}");
            let bytes = count(compression, "received_bytes");
            assert_eq!(bytes < echoes * size / 4, is_compressed, "{json}");
        }
    }
    let refuses = format!("ws://{}/echo", serve(Ways::default(), None).0);
    let (json, code) = bench(&[&refuses, "-c", "2", "--compress"]);
    assert_eq!((count(&json["compression"], "connections"), code), (0, Some(0)), "{json}");
    let ways = Ways { agrees: true, compresses: true, changes: true };
    let wrong = format!("ws://{}/echo", serve(ways, None).0);
    let (json, code) = bench(&[&wrong, "-c", "1", "--compress", "--binary", "--size", "500"]);
    assert_eq!(json["connection_losses"]["an echo differs from its message"], 1, "{json}");
    assert_eq!((count(&json, "messages"), code), (0, Some(1)), "{json}");
}

/// An acceptor whose certificate is its own authority, and that authority.
fn acceptor() -> (Acceptor, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    let chain_pem = pem.clone().into_bytes();
    let files =
        CertificateFiles { chain_pem, key_pem: key.serialize_pem().into_bytes(), ocsp: None };
    let settings = AcceptorSettings { certificates: vec![files], ..AcceptorSettings::default() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let clock = TlsClock::default();
    clock.set(now);
    let tickets = Arc::new(TicketKeys::random(now).unwrap());
    (Acceptor::new(&settings, Some(tickets), clock).unwrap(), pem)
}

#[test]
fn echoes_over_tls_come_from_a_server_with_the_right_certificate() {
    let (acceptor, pem) = acceptor();
    let ways = Ways { agrees: true, compresses: true, ..Ways::default() };
    let url = format!("wss://{}/echo", serve(ways, Some(acceptor)).0);
    let file = std::env::temp_dir().join(format!("tidegate-bench-ws-{}.pem", std::process::id()));
    std::fs::write(&file, pem).unwrap();
    let path = file.to_str().unwrap();
    let own = ["--ca", path, "--sni", "a.example"];
    for load in [
        &["-c", "3", "--size", "20"][..],
        &["-c", "2", "-t", "2", "--size", "100000", "--binary", "--outstanding", "4"],
        &["-c", "2", "--size", "3000", "--compress"],
        &["-c", "2", "--rate", "50/s"],
    ] {
        let (json, code) = bench(&[&[url.as_str()][..], &own[..], load].concat());
        assert!(count(&json, "messages") > 0, "{json}");
        assert_eq!((count(&json, "unanswered"), code), (0, Some(0)), "{json}");
    }
    let (json, code) = bench(&[&url, "-c", "2", "--ca", path, "--sni", "b.example"]);
    assert_eq!((count(&json, "established"), code), (0, Some(1)), "{json}");
    assert!(json["setup_failures"].to_string().contains("--sni"), "{json}");
    let (json, code) = bench(&[&url, "-c", "1", "-k"]);
    assert_eq!((count(&json, "established"), code), (1, Some(0)), "{json}");
    std::fs::remove_file(file).unwrap();
    // A server without TLS is named as such.
    let plain = format!("wss://{}/echo", serve(Ways::default(), None).0);
    let (json, code) = bench(&[&plain, "-c", "1", "-k", "--timeout", "2s"]);
    assert_eq!((count(&json, "established"), code), (0, Some(1)), "{json}");
}

#[test]
fn connections_take_several_servers_in_turn() {
    let (first, second) = (serve(Ways::default(), None), serve(Ways::default(), None));
    let urls = [&first, &second].map(|(address, _)| format!("ws://{address}/echo"));
    let (json, code) = bench(&[&urls[0], &urls[1], "-c", "5", "-t", "2"]);
    assert_eq!((count(&json, "established"), count(&json, "targets"), code), (5, 2, Some(0)));
    let counts = [first.1, second.1].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [3, 2], "{json}");
}
