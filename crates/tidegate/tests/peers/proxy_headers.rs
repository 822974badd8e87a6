//! PROXY headers byte by byte, for cases that the installed programs do not produce. The encoder and the parser
//! here follow the specification and share no code with Tidegate.
//! In: hand-made headers; connections of Tidegate to a server. Out: the client that the server sees; header contents.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use crate::gate::Gate;
use crate::origins::Script;
use crate::process::{Folder, free_address, run_well};
use crate::proxy_protocol::{haproxy, make_certificate};
use crate::requests::curl;
use crate::tls_in_front::make_clients;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

fn block(command: u8, family: u8, addresses: &[u8], extensions: &[u8]) -> Vec<u8> {
    let length = u16::try_from(addresses.len() + extensions.len()).expect("the block is short");
    let fixed = [SIGNATURE, &[command, family][..], &length.to_be_bytes()].concat();
    [&fixed, addresses, extensions].concat()
}

/// Starts Tidegate on a unix socket whose clients must send a PROXY header.
fn gate_on_unix_socket(folder: &Folder) -> (Gate, Script, String) {
    let origin = Script::origin(folder);
    let path = folder.join("gate.sock");
    let gate = Gate::start(
        folder,
        &format!(
            "[[listener]]\nbind = \"unix:{path}\"\nproxy-protocol = {{ from = [\"unix\"] }}\n\
             [[route]]\nproxy = \"app\"\n[pool.app]\nservers = [\"{}\"]\n",
            origin.address
        ),
    );
    (gate, origin, path)
}

#[test]
fn unix_listener_accepts_every_kind_of_proxy_header() {
    let folder = Folder::new("headers-path");
    let (_gate, _origin, path) = gate_on_unix_socket(&folder);
    let inet = [&[203, 0, 113, 7, 10, 0, 0, 1][..], &[0x12, 0x34, 0, 80]].concat();
    let mut inet6 = vec![0; 36];
    (inet6[0], inet6[1], inet6[15]) = (0x20, 0x01, 9);
    let mut unix = vec![0; 216];
    unix[..9].copy_from_slice(b"/run/a\0\0\0");
    let unknown = "forwarded: for=unknown;";
    let four = "x-forwarded-for: 203.0.113.7\n";
    // PP2_TYPE_SSL: PP2_CLIENT_SSL, not verified, no parts.
    let tls = [0x20, 0, 5, 0x01, 0, 0, 0, 1];
    for (header, client, scheme) in [
        (b"PROXY UNKNOWN\r\n".to_vec(), unknown, "http"),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 65535\r\n".to_vec(), unknown, "http"),
        (b"PROXY TCP4 203.0.113.7 10.0.0.1 4660 443\r\n".to_vec(), four, "http"),
        (block(0x20, 0, &[], &[]), unknown, "http"),
        // The contents of a LOCAL header are ignored.
        (block(0x20, 0x11, &inet, &tls), unknown, "http"),
        (block(0x21, 0, b"who knows", &[]), unknown, "http"),
        (block(0x21, 0x11, &inet, &[]), four, "http"),
        (block(0x21, 0x11, &inet, &tls), four, "https"),
        (block(0x21, 0x21, &inet6, &[]), "x-forwarded-for: 2001::9\n", "http"),
        (block(0x21, 0x31, &unix, &[]), unknown, "http"),
        (block(0x21, 0x31, &unix, &tls), unknown, "https"),
    ] {
        let mut stream = UnixStream::connect(&path).expect("the socket accepts connections");
        let request = b"GET /head HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(&[&header[..], request].concat()).expect("the gate reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("the response is text");
        let response = response.to_lowercase();
        assert!(response.contains(client), "{header:?}: {response}");
        assert_eq!(
            response.contains("x-forwarded-for"),
            client != unknown,
            "{header:?}: {response}"
        );
        assert!(
            response.contains(&format!("x-forwarded-proto: {scheme}\n")),
            "{header:?}: {response}"
        );
    }
    for sent in ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "PROXY TCP5 \r\n"] {
        let mut stream = UnixStream::connect(&path).expect("the socket accepts connections");
        stream.write_all(sent.as_bytes()).expect("the gate reads");
        let mut response = Vec::new();
        // The connection may be reset, because the gate did not read all bytes.
        let _ = stream.read_to_end(&mut response);
        assert!(
            response.is_empty(),
            "response to a connection without a valid header: {response:?}"
        );
    }
}

#[test]
fn haproxy_sends_the_client_address_to_a_unix_listener() {
    let folder = Folder::new("headers-front");
    make_certificate(&folder);
    let (_gate, _origin, path) = gate_on_unix_socket(&folder);
    for (sends, scheme) in [("send-proxy", "http"), ("send-proxy-v2-ssl", "https")] {
        let front = free_address();
        let both = folder.join("both.pem");
        let _front = haproxy(
            &folder,
            front,
            &format!(
                "listen front\n  mode tcp\n  bind {front} ssl crt {both}\n\
                 \x20 server gate unix@{path} {sends} check inter 100ms\n"
            ),
        );
        let port = front.port();
        let to = format!("localhost:{port}:{}:{port}", front.ip());
        let mut client = curl();
        client.args(["--interface", "127.77.0.9", "--cacert", &folder.join("ca.pem")]);
        client.args(["--connect-to", &to, &format!("https://localhost:{port}/head")]);
        let seen = run_well(&mut client).to_lowercase();
        assert!(seen.contains("x-forwarded-for: 127.77.0.9\n"), "{sends}: {seen}");
        assert!(seen.contains(&format!("x-forwarded-proto: {scheme}\n")), "{sends}: {seen}");
    }
}

/// Starts a server that answers each connection with the contents of its PROXY header.
fn start_reader() -> SocketAddr {
    let listener = TcpListener::bind(free_address()).expect("the address is free");
    let address = listener.local_addr().expect("the socket is bound");
    std::thread::spawn(move || listener.incoming().map_while(Result::ok).for_each(answer));
    address
}

fn answer(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let lines = read_block(&mut reader);
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        line.clear();
    }
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length:";
    let _ = write!(stream, "{head} {}\r\n\r\n{lines}", lines.len());
}

/// The contents of the header, one line for each entry, with the names of the specification.
fn read_block(reader: &mut impl std::io::Read) -> String {
    let mut fixed = [0; 16];
    reader.read_exact(&mut fixed).expect("a block");
    assert_eq!(&fixed[..12], SIGNATURE);
    assert_eq!(&fixed[12..14], [0x21, 0x11], "PROXY, TCP over IPv4");
    let mut rest = vec![0; usize::from(u16::from_be_bytes([fixed[14], fixed[15]]))];
    reader.read_exact(&mut rest).expect("the whole block");
    let mut lines = format!("from {}.{}.{}.{}\n", rest[0], rest[1], rest[2], rest[3]);
    describe(&rest[12..], &mut lines);
    lines
}

fn describe(mut extensions: &[u8], lines: &mut String) {
    while !extensions.is_empty() {
        let kind = extensions[0];
        let length = usize::from(u16::from_be_bytes([extensions[1], extensions[2]]));
        let value = &extensions[3..3 + length];
        extensions = &extensions[3 + length..];
        let name = match kind {
            0x01 => "ALPN",
            0x02 => "AUTHORITY",
            0x20 => {
                let verify = u32::from_be_bytes([value[1], value[2], value[3], value[4]]);
                writeln!(lines, "SSL client={} verify={verify}", value[0]).expect("memory");
                describe(&value[5..], lines);
                continue;
            }
            0x21 => "SSL_VERSION",
            0x22 => "SSL_CN",
            0x23 => "SSL_CIPHER",
            _ => "OTHER",
        };
        writeln!(lines, "{name} {}", String::from_utf8_lossy(value)).expect("memory");
    }
}

#[test]
fn servers_receive_the_tls_parameters_and_the_certificate_name_of_the_client() {
    let folder = Folder::new("headers-sent");
    make_certificate(&folder);
    make_clients(&folder);
    let (site, key, authority) =
        (folder.join("site.pem"), folder.join("site.key"), folder.join("ca.pem"));
    let gate = Gate::start(
        &folder,
        &format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n\
             tls = {{ certificates = [{{ cert = \"{site}\", key = \"{key}\" }}], \
             client-auth = \"optional\", client-ca = \"{authority}\" }}\n\
             [[route]]\nproxy = \"app\"\n[pool.app]\nservers = [\"{}\"]\nproxy-protocol = \"v2\"\n",
            start_reader()
        ),
    );
    let port = gate.address().port();
    let get = |host: &str, arguments: &[&str]| {
        let mut command = curl();
        command.args(["--interface", "127.77.0.9", "--cacert", &authority]);
        command.args(["--connect-to", &format!("localhost:{port}:127.0.0.1:{port}")]);
        run_well(command.args(arguments).arg(format!("https://{host}:{port}/")))
    };
    let (bob, bob_key) = (folder.join("bob.pem"), folder.join("bob.key"));
    let proven = ["--cert", &bob, "--key", &bob_key];
    let suite = ["--http1.1", "--tls13-ciphers", "TLS_CHACHA20_POLY1305_SHA256"];
    // 1: PP2_CLIENT_SSL, 2: PP2_CLIENT_CERT_CONN, 4: PP2_CLIENT_CERT_SESS.
    assert_eq!(
        get("localhost", &[&proven[..], &suite].concat()),
        "from 127.77.0.9\nALPN http/1.1\nAUTHORITY localhost\nSSL client=7 verify=0\n\
         SSL_VERSION TLSv1.3\nSSL_CN bob\nSSL_CIPHER TLS_CHACHA20_POLY1305_SHA256\n"
    );
    let old = ["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256", "--no-alpn"];
    assert_eq!(
        get("127.0.0.1", &old),
        "from 127.77.0.9\nSSL client=1 verify=1\n\
         SSL_VERSION TLSv1.2\nSSL_CIPHER ECDHE-ECDSA-AES128-GCM-SHA256\n"
    );
}
