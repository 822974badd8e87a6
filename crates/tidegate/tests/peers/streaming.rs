//! Memory stays bounded with very large bodies and with clients that do not read.
//! In: a GiB each way; many clients that stop reading. Out: every byte, and the peak of resident memory.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::gate::{Gate, proxy_config};
use crate::origins::{Nginx, Script};
use crate::process::{Folder, run_well};
use crate::requests::curl;

const GIB: u64 = 1 << 30;
/// Memory that one stream may add: 256 KiB for two buffers in each direction, the rest for the allocator.
const GROWTH_KIB_MAX: u64 = 4 * 1024;

#[test]
fn gibibyte_download_needs_bounded_memory() {
    let folder = Folder::new("down");
    let nginx = Nginx::start(&folder);
    folder.sparse_file("files/gib", GIB);
    let gate = Gate::in_front_of(&folder, nginx.address);
    let arguments = ["-o", "/dev/null", "-w", "%{http_code} %{size_download}"];
    run_well(curl().args(["-r", "0-1000000", "-o", "/dev/null", &gate.url("/gib")]));
    let before = gate.mark_memory_kib();
    assert_eq!(run_well(curl().args(arguments).arg(gate.url("/gib"))), format!("200 {GIB}"));
    let growth = gate.memory_peak_kib().saturating_sub(before);
    assert!(growth <= GROWTH_KIB_MAX, "memory grew by {growth} KiB");
}

#[test]
fn gibibyte_upload_needs_bounded_memory() {
    let folder = Folder::new("up");
    let origin = Script::origin(&folder);
    let file = folder.sparse_file("gib", GIB);
    let gate = Gate::in_front_of(&folder, &origin.address);
    run_well(curl().args(["--data-binary", "warm", &gate.url("/count")]));
    let before = gate.mark_memory_kib();
    for (field, framing) in [("X-None: 1", "length"), ("Transfer-Encoding: chunked", "chunked")] {
        let printed = run_well(curl().args(["-H", field, "-T", &file, &gate.url("/count")]));
        // The CRC-32 of a GiB of zeros.
        assert_eq!(printed, format!("{GIB} 5b64c2b0 {framing}\n"));
    }
    let growth = gate.memory_peak_kib().saturating_sub(before);
    assert!(growth <= GROWTH_KIB_MAX, "memory grew by {growth} KiB");
}

#[test]
fn clients_that_stop_reading_hold_bounded_memory_and_can_read_on() {
    const CLIENTS: usize = 64;
    const FILE_BYTES: u64 = 64 << 20;
    let folder = Folder::new("slow");
    let nginx = Nginx::start(&folder);
    folder.sparse_file("files/large", FILE_BYTES);
    let gate = Gate::start(&folder, &proxy_config("127.0.0.1:0", nginx.address));
    let before = gate.mark_memory_kib();
    let mut clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut client = TcpStream::connect(gate.address()).expect("the gate accepts");
            let request = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            client.write_all(request).expect("the request is sent");
            client
        })
        .collect();
    // Each client has received the first byte, so every response has started to fill its buffers.
    for client in &mut clients {
        let mut first = [0];
        client.read_exact(&mut first).expect("the response starts");
    }
    let mut last = clients.pop().expect("there are clients");
    let mut rest = Vec::new();
    let mut piece = vec![0; 1 << 16];
    let mut count = 1;
    loop {
        let read = last.read(&mut piece).expect("the response continues");
        if read == 0 {
            break;
        }
        if rest.len() < 4096 {
            rest.extend_from_slice(&piece[..read]);
        }
        count += read as u64;
    }
    let head = rest.windows(4).position(|four| four == b"\r\n\r\n").expect("the head ends");
    assert_eq!(count - (1 + head as u64 + 4), FILE_BYTES);
    // For each client 64 KiB of output and two reads of at most 64 KiB, plus the allocator's share.
    let growth = gate.memory_peak_kib().saturating_sub(before);
    let most = CLIENTS as u64 * 192 + GROWTH_KIB_MAX;
    assert!(growth <= most, "{CLIENTS} clients that do not read grew memory by {growth} KiB");
}
