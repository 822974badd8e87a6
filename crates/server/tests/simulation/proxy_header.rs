//! PROXY headers that simulated clients send, valid and invalid ones.
//! In: a client's index, randomness. Out: a header and the client that it names; or the steps of a client
//! that sends an invalid header.
//! Never: encodes with `wire`: a bug in both its encoder and its decoder would stay hidden.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tidegate_base::Prng;

use crate::client::Op;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const EVIL: &[u8] = b"GET /p0/evil HTTP/1.1\r\nhost: a\r\n\r\n";

/// The client that a header names.
pub enum NamedClient {
    /// None: the connection's own addresses are used.
    Connection,
    /// The client's address, and the address that it connected to.
    Addresses(SocketAddr, SocketAddr),
    /// A client without an address.
    WithoutAddress,
}

/// A valid header for this client. There are few addresses, so that several clients share one; each has its
/// own port.
pub fn make(prng: &mut Prng, client: usize) -> (Vec<u8>, NamedClient) {
    let host = 1 + prng.below(3) as u8;
    let (port, to_port) = (20_000 + client as u16, 400 + prng.below(50) as u16);
    let named = |from: IpAddr, to: IpAddr| {
        NamedClient::Addresses(
            (from.to_canonical(), port).into(),
            (to.to_canonical(), to_port).into(),
        )
    };
    let v4 = (Ipv4Addr::new(203, 0, 113, host), Ipv4Addr::new(198, 51, 100, 1));
    let v6 = (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()), Ipv6Addr::LOCALHOST);
    let mapped = v4.0.to_ipv6_mapped();
    match prng.below(9) {
        0 => (b"PROXY UNKNOWN\r\n".to_vec(), NamedClient::Connection),
        1 => (b"PROXY UNKNOWN ffff::1 what ever\r\n".to_vec(), NamedClient::Connection),
        2 => {
            let line = format!("PROXY TCP4 {} {} {port} {to_port}\r\n", v4.0, v4.1);
            (line.into_bytes(), named(v4.0.into(), v4.1.into()))
        }
        3 => {
            let from = if prng.below(2) == 0 { mapped } else { v6.0 };
            let line = format!("PROXY TCP6 {from} {} {port} {to_port}\r\n", v6.1);
            (line.into_bytes(), named(from.into(), v6.1.into()))
        }
        4 => (block(prng, 0x20, 0x11, &[7; 12]), NamedClient::Connection),
        5 => (block(prng, 0x21, 0, &[]), NamedClient::Connection),
        6 => {
            let addresses = [v4.0.octets(), v4.1.octets()].concat();
            let block = with_ports(prng, 0x11, addresses, port, to_port);
            (block, named(v4.0.into(), v4.1.into()))
        }
        7 => {
            let addresses = [v6.0.octets(), v6.1.octets()].concat();
            let block = with_ports(prng, 0x21, addresses, port, to_port);
            (block, named(v6.0.into(), v6.1.into()))
        }
        _ => (block(prng, 0x21, 0x31, &[b'/'; 216]), NamedClient::WithoutAddress),
    }
}

/// The steps of a client that sends something else where the header must be.
pub fn make_invalid(prng: &mut Prng) -> Vec<Op> {
    let long = [b"PROXY TCP4 ".to_vec(), vec![b'1'; 300]].concat();
    let whole: [&[u8]; 8] = [
        EVIL,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PROXY TCP4 203.0.113.1\r\n",
        b"PROXY TCP4 203.0.113.1 198.51.100.1 070 80\r\n",
        b"proxy TCP4 203.0.113.1 198.51.100.1 7 80\r\n",
        &long,
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
    ];
    let mut bytes = whole[prng.below(whole.len() as u64) as usize].to_vec();
    if prng.below(3) == 0 {
        // An incomplete header. Nothing may follow it: further bytes might complete it.
        bytes = make(prng, 0).0;
        bytes.truncate(1 + prng.below(bytes.len() as u64 - 1) as usize);
        let mut ops = vec![Op::BadHeader(bytes)];
        ops.extend((prng.below(2) == 0).then_some(Op::Finish));
        return ops;
    }
    vec![Op::BadHeader(bytes), Op::Send { id: None, bytes: EVIL.to_vec() }]
}

fn with_ports(
    prng: &mut Prng,
    family: u8,
    mut addresses: Vec<u8>,
    port: u16,
    to_port: u16,
) -> Vec<u8> {
    addresses.extend(port.to_be_bytes());
    addresses.extend(to_port.to_be_bytes());
    block(prng, 0x21, family, &addresses)
}

/// A header of version 2, sometimes with extensions without a meaning.
fn block(prng: &mut Prng, command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
    let mut content = addresses.to_vec();
    while prng.below(3) == 0 {
        let count = prng.below(60) as u8;
        content.extend([if prng.below(2) == 0 { 4 } else { 0xe0 }, 0, count]);
        content.extend(vec![b'P'; count.into()]);
    }
    let mut block = [SIGNATURE, &[command, family]].concat();
    block.extend((content.len() as u16).to_be_bytes());
    block.extend(content);
    block
}
