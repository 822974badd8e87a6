//! Bodies larger than memory, clients that do not read: what Tidegate holds stays bounded.
//! In: a GiB each way; many clients at a standstill. Out: every byte, and the peak of resident memory.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::gate::{Gate, proxy_config};
use crate::origins::{Nginx, Script};
use crate::process::{Folder, run_well};
use crate::requests::curl;

const GIB: u64 = 1 << 30;
/// What a single stream may add: two buffers a direction are 256 KiB; the rest is the allocator's.
const GROWTH_KIB_MAX: u64 = 4 * 1024;

#[test]
fn a_gibibyte_down_passes_in_bounded_memory() {
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
fn a_gibibyte_up_passes_in_bounded_memory() {
    let folder = Folder::new("up");
    let origin = Script::origin(&folder);
    let file = folder.sparse_file("gib", GIB);
    let gate = Gate::in_front_of(&folder, &origin.address);
    run_well(curl().args(["--data-binary", "warm", &gate.url("/count")]));
    let before = gate.mark_memory_kib();
    for (field, framing) in [("X-None: 1", "length"), ("Transfer-Encoding: chunked", "chunked")] {
        let said = run_well(curl().args(["-H", field, "-T", &file, &gate.url("/count")]));
        // The CRC-32 of a GiB of zeros.
        assert_eq!(said, format!("{GIB} 5b64c2b0 {framing}\n"));
    }
    let growth = gate.memory_peak_kib().saturating_sub(before);
    assert!(growth <= GROWTH_KIB_MAX, "memory grew by {growth} KiB");
}

#[test]
fn clients_that_do_not_read_hold_little_and_get_the_rest_when_they_do() {
    const CLIENTS: usize = 64;
    const FILE_BYTES: u64 = 64 << 20;
    let folder = Folder::new("slow");
    let nginx = Nginx::start(&folder);
    folder.sparse_file("files/large", FILE_BYTES);
    let gate = Gate::start(&folder, &proxy_config("127.0.0.1:0", nginx.address));
    let before = gate.mark_memory_kib();
    let mut clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut client = TcpStream::connect(gate.address()).expect("a connection stands");
            let request = b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            client.write_all(request).expect("the request leaves");
            client
        })
        .collect();
    // Each has the beginning of its answer, so each answer fills what it may fill.
    for client in &mut clients {
        let mut first = [0];
        client.read_exact(&mut first).expect("the answer begins");
    }
    let mut last = clients.pop().expect("there are clients");
    let mut rest = Vec::new();
    let mut piece = vec![0; 1 << 16];
    let mut count = 1;
    loop {
        let read = last.read(&mut piece).expect("the answer goes on");
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
    // 64 KiB of output and two reads of 64 KiB at most each, and the allocator's share.
    let growth = gate.memory_peak_kib().saturating_sub(before);
    let most = CLIENTS as u64 * 192 + GROWTH_KIB_MAX;
    assert!(growth <= most, "{CLIENTS} clients at a standstill grew memory by {growth} KiB");
}
