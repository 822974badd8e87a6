//! The memory of clients of the client protocol, measured with an allocator that counts. The server keeps further tables for each of
//! them, whose entries have sizes that are checked when it is compiled.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tidegate_base::Moment;
use tidegate_push::client::codec::Codec;
use tidegate_push::client::{Connection, Context};
use tidegate_push::hub::Hub;
use tidegate_push::settings::Hubs;
use tidegate_push::token::Verifier;

/// How many clients are measured. A power of two, so that growing tables have no spare entries.
const CLIENTS: u32 = 16_384;
/// How much a client with one channel takes at most, with its share of the tables of the hub.
const CLIENT_BYTES_MAX: i64 = 320;

struct Counting;

thread_local! {
    /// The bytes that are allocated.
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

/// The size that jemalloc, the allocator of the server, takes for so many bytes: up to 128 a multiple of 16, and above that one of
/// four sizes for each power of two.
fn class_of(bytes: usize) -> i64 {
    let step = match bytes {
        0..=8 => 8,
        9..=128 => 16,
        _ => (bytes - 1).next_power_of_two() / 8,
    };
    bytes.next_multiple_of(step) as i64
}

// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.set(BYTES.get() + class_of(layout.size()));
        // SAFETY: the caller upholds the contract of `alloc`, which is that of the system allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - class_of(layout.size()));
        // SAFETY: the pointer came from `alloc` above, so from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Lets `count` clients connect and subscribe to `channels` channels each. Returns the bytes that each one takes.
fn bytes_of_client(channels: usize) -> i64 {
    let text = "[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\nanonymous = true\nsubscribe = \"anyone\"\n";
    let config = tidegate_config::parse(text, "the test").unwrap_or_else(|e| panic!("{e}"));
    let settings = Hubs::new(&config);
    let mut hub: Hub<(u32, core::num::NonZeroU32)> = Hub::new(&settings, 0, 1);
    let (mut clients, mut out) = (Vec::with_capacity(CLIENTS as usize), Vec::with_capacity(4096));
    let verifier = Verifier::default();
    let mut random = 1_u64;
    let before = BYTES.get();
    for number in 0..CLIENTS {
        random = tidegate_base::prng::mix64(random);
        let mut client = Box::new(Connection::new(Codec::Json, [random, number.into()]));
        let mut context = Context {
            hub: &mut hub,
            settings: &settings,
            verifier: &verifier,
            may_verify: true,
            index: 0,
            key: (number, core::num::NonZeroU32::MIN),
            queue: None,
            at: (Moment::ZERO, 3),
            unix_seconds: 1_000_000,
            ping_seconds: None,
            version: "test",
            room: 1 << 16,
            effort: 0,
            request: None,
            is_reply_invalid: false,
            over_rate: 0,
        };
        let mut send = |message: &str| {
            out.clear();
            let handled = client.receive(&mut context, message.as_bytes(), &mut out);
            assert_eq!(handled, Ok(message.len()));
        };
        send("{\"id\":1,\"connect\":{}}");
        for channel in 0..channels {
            send(&format!("{{\"id\":2,\"subscribe\":{{\"channel\":\"room{channel}\"}}}}"));
        }
        clients.push(client);
    }
    let bytes = (BYTES.get() - before) / i64::from(CLIENTS);
    assert!(clients.iter().all(|client| client.subscriptions() == channels));
    bytes
}

#[test]
fn client_with_a_channel_takes_little_memory() {
    let [none, one, two] = [0, 1, 2].map(bytes_of_client);
    assert!(none > size_of::<Connection>() as i64, "{none}: the allocator counts");
    assert!(one <= CLIENT_BYTES_MAX, "{one}");
    assert!(two - one <= 80, "a further channel takes {} bytes", two - one);
}
