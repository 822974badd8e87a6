//! Tunnels of WebSockets (RFC 8441) in the runs of some seeds: of clients of both versions of HTTP, to servers of both
//! versions, which send the bytes back.
//! In: a seed. Out: requests for tunnels in the scripts of HTTP/2; checks of what the tunnels return.
//! Never: sends frames of WebSockets: a tunnel looks at the heads of frames only, and takes any bytes for such.

use tidegate_base::{Prng, Span};

use super::{Abort, Call, Maker, Open, Script};
use crate::oracle::{Expected, Oracle, Request};
use crate::peer::body;
use crate::plan::below_skewed;

/// The value of Upgrade over HTTP/1.1, and the fields after it. The key is the example in RFC 6455 section 1.3.
pub const WEBSOCKET: &str =
    "websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13";

/// Whether the tunnels of a seed are WebSockets. A generator of its own, whose constant selects no regression seed.
pub fn has_websockets(seed: u64) -> bool {
    Prng::new(seed ^ 0x7475_6e6e_6c24).below(4) == 0
}

/// When the bytes of a tunnel are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Opens {
    /// Even before the tunnel is open.
    Early,
    /// Once the tunnel is open.
    Late,
}

impl Maker<'_> {
    /// Adds WebSocket tunnels to a script, with a generator of their own.
    pub fn add_tunnels(&mut self, script: &mut Script, seed: u64) {
        let mut prng = Prng::new(seed ^ 0x7765_6273_6f63 ^ script.index as u64);
        let most = if script.piece_bytes < 10 { 300 } else { 100_000 };
        for _ in 0..1 + prng.below(3) {
            let path = format!("/p{}/up", prng.below(self.pools as u64));
            let id = 1 + self.requests.len() as u64;
            let body = body::make(id, 0, below_skewed(&mut prng, most, 8) as usize);
            let aborts = !self.is_calm && prng.below(4) == 0;
            let call = Call {
                id,
                method: "GET",
                path: path.clone(),
                after: Span::from_millis(prng.below(300)),
                states_length: false,
                expects_continue: false,
                trailer: false,
                ends_late: prng.below(3) == 0,
                piece_bytes: (1 + below_skewed(&mut prng, 9000, 4) as usize).max(body.len() / 100),
                pace: Span::from_millis(prng.below(30)),
                abort: aborts.then(|| match prng.below(2) {
                    0 => Abort::After(Span::from_millis(prng.below(300))),
                    _ => Abort::At(prng.below(body.len() as u64 + 1)),
                }),
                opens: Some([Opens::Early, Opens::Late][prng.below(2) as usize]),
                body,
            };
            let at = prng.below(script.calls.len() as u64 + 1) as usize;
            script.calls.insert(at, call);
            self.requests.push(Request {
                id,
                identity: self.identity.clone(),
                method: "GET",
                path,
                body_bytes: 0,
                idempotent: true,
                old_version: false,
                expected: Expected::Tunnel,
                begun: false,
                answered: false,
                status: None,
                seen: Vec::new(),
            });
        }
    }
}

impl Open {
    /// Whether the bytes of the tunnel wait until it is open.
    pub(super) fn awaits_tunnel(&self) -> bool {
        self.call.opens == Some(Opens::Late) && self.returned.is_none()
    }

    /// The next bytes that the tunnel has returned.
    pub(super) fn read_tunnel(&mut self, bytes: &[u8], oracle: &Oracle) -> Result<(), String> {
        let (id, at) = (self.call.id, self.returned.unwrap_or(0));
        let bytes = self.tunnel.take(bytes, oracle.closes_tunnels)?;
        if !body::matches(id, at, &bytes) {
            return Err(format!("the tunnel of r{id} returned different bytes"));
        }
        let returned = at + bytes.len() as u64;
        self.returned = Some(returned);
        match returned > self.sent as u64 {
            true => Err(format!("the tunnel of r{id} returned more bytes than were sent")),
            false => Ok(()),
        }
    }

    /// The tunnel has ended: checks that nothing is missing.
    pub(super) fn check_tunnel(&self, oracle: &Oracle) -> Result<(), String> {
        let (id, sent, returned) = (self.call.id, self.call.body.len(), self.returned);
        let Some(held) = self.tunnel.held() else { return Ok(()) };
        let returned = returned.map(|returned| returned + held);
        match oracle.is_calm && (!self.is_sent || returned != Some(sent as u64)) {
            true => Err(format!("the tunnel of r{id} took {sent} bytes and returned {returned:?}")),
            false => Ok(()),
        }
    }
}
