//! Body of the fuzz target of the client protocol; the test that replays the corpus runs it too.
//! In: any bytes. Out: nothing; panics if a check fails.
//! Checks: no panic; consumed lengths within the input; each reply and push is a message of the encoding; a client that has left
//! leaves nothing. The claims of a token, which only a valid signature would let in, have these checks as well.
//! Never: called on the data path.

use std::sync::OnceLock;

use serde_json::value::RawValue;
use tidegate_base::{Moment, Span};

use crate::client::codec::Codec;
use crate::client::{Connection, Context};
use crate::fan_out::Delivery;
use crate::hub::Hub;
use crate::protobuf::{Fields, take_delimited};
use crate::settings::Hubs;
use crate::token::{Claims, Verifier};

const CONFIG: &str = "[[listener]]\nbind = \"127.0.0.1:80\"\n[push.p]\nanonymous = true\nsubscribe = \"anyone\"\n\
    publish = \"anyone\"\nhistory = 4\nread-history = \"anyone\"\npresence = true\nread-presence = \"anyone\"\njoin-leave = true\n\
    deltas = \"all\"\ntag-filters = true\ntoken-secret = \"0123456789abcdef\"\n[push.p.namespace.calm]\nsubscribe = \"anyone\"\n\
    publish = \"anyone\"\nconflate = \"1s\"\nexclude-sender = true\ntag-filters = true\n";

/// Sends `data` as messages of a client, in the encoding that the first byte selects. Messages are separated by 0xff.
pub fn fuzz_push_client(data: &[u8]) {
    static SETTINGS: OnceLock<Option<Hubs>> = OnceLock::new();
    let read = || tidegate_config::parse(CONFIG, "the fuzz target").ok();
    let settings = SETTINGS.get_or_init(|| Some(Hubs::new(&read()?)));
    let settings = settings.as_ref().expect("the configuration is valid");
    let Some((first, rest)) = data.split_first() else { return };
    let codec = if first & 1 == 0 { Codec::Json } else { Codec::Protobuf };
    check_claims(rest);
    check_commands(codec, rest);
    let mut client = Client { connection: Connection::new(codec, [1, 2]), codec, received: 0 };
    let mut hub = Hub::new(settings, 0, 1);
    let connect: &[u8] = match codec {
        Codec::Json => b"{\"id\":1,\"connect\":{}}",
        Codec::Protobuf => &[4, 8, 1, 34, 0],
    };
    for message in core::iter::once(connect).chain(rest.split(|byte| *byte == 0xff)) {
        if !client.send(&mut hub, settings, message) {
            break;
        }
        hub.publish_due(Moment::ZERO.after(Span::from_secs(client.received)));
        client.deliver(&mut hub);
    }
    client.connection.leave_all(&mut hub, settings, (0, 0));
    client.deliver(&mut hub);
    assert_eq!((hub.clients(), hub.subscriptions()), (0, 0), "the client has left");
}

struct Client {
    connection: Connection,
    codec: Codec,
    /// The number of messages of the client.
    received: u64,
}

impl Client {
    /// Sends a message. Returns whether the client stays connected.
    fn send(&mut self, hub: &mut Hub<u32>, settings: &Hubs, message: &[u8]) -> bool {
        self.received += 1;
        let mut context = Context {
            hub,
            settings,
            verifier: &Verifier::default(),
            may_verify: true,
            index: 0,
            key: 0,
            queue: None,
            at: (Moment::ZERO.after(Span::from_secs(self.received)), self.received),
            unix_seconds: 1_000_000,
            ping_seconds: Some(25),
            version: "fuzz",
            room: 1 << 16,
            effort: 0,
            request: None,
            is_reply_invalid: false,
            over_rate: 0,
        };
        let mut out = Vec::new();
        let result = self.connection.receive(&mut context, message, &mut out);
        assert!(context.request.is_none(), "there is no backend");
        check_messages(self.codec, &out);
        // Without a backend and with tokens that are verified quickly, no command waits.
        result.is_ok_and(|used| {
            assert_eq!(used, message.len(), "everything was handled");
            true
        })
    }

    /// Takes what is published for the client.
    fn deliver(&mut self, hub: &mut Hub<u32>) {
        let mut keys = Vec::new();
        while let Some(slice) = hub.deliver(1 << 16, |_| 1, &mut keys) {
            for _ in keys.drain(..) {
                if let Some(publication) = self.connection.chosen(&slice.publication) {
                    let form = self.connection.choose_form(publication);
                    check_messages(self.codec, publication.message(form));
                }
            }
            hub.end_slice(slice, Delivery::default());
        }
    }
}

/// The commands of a message take up all of it, whether or not they are handled.
fn check_commands(codec: Codec, message: &[u8]) {
    let mut rest = message;
    while !rest.is_empty()
        && let Ok((_, used)) = codec.decode_next(rest)
    {
        assert!((1..=rest.len()).contains(&used), "{used} of {} bytes", rest.len());
        rest = &rest[used..];
    }
}

/// Checks that `messages` consists of messages of the encoding.
fn check_messages(codec: Codec, messages: &[u8]) {
    match codec {
        Codec::Json => {
            let lines = messages.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            for line in lines {
                let is_json = serde_json::from_slice::<&RawValue>(line).is_ok();
                assert!(is_json, "{}", String::from_utf8_lossy(line));
            }
        }
        Codec::Protobuf => {
            let mut rest = messages;
            while !rest.is_empty() {
                let message = take_delimited(&mut rest).expect("a message with its length");
                let mut fields = Fields::new(message);
                while fields.next_field().expect("a field").is_some() {}
            }
        }
    }
}

/// Reads `json` as the claims of a token.
fn check_claims(json: &[u8]) {
    let Ok(claims) = serde_json::from_slice::<Claims>(json) else { return };
    for part in [claims.info(), claims.data(), claims.meta()].into_iter().flatten() {
        let is_line = !part.contains('\n');
        assert!(is_line && (part.is_empty() || serde_json::from_str::<&RawValue>(&part).is_ok()));
    }
    let _ = (claims.ends_at(), claims.subscriptions().map(|all| all.len()), claims.names("a"));
}
