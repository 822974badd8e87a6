//! The servers to which a request was already sent.
//! Limits: the newest `TRIED_MAX` servers are remembered.

/// The number of tried servers that a request remembers. Further ones replace the oldest.
pub const TRIED_MAX: usize = 8;

/// The servers to which one request has been sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// A ring buffer; only the first `count` entries are used.
    servers: [u16; TRIED_MAX],
    /// How many entries of `servers` are used.
    count: u8,
    /// The entry that the next server replaces.
    next: u8,
}

impl Tried {
    /// Remembers `server`. The oldest server is forgotten if [`TRIED_MAX`] are remembered already.
    pub fn insert(&mut self, server: usize) {
        if self.contains(server) {
            return;
        }
        let at = usize::from(self.next) % TRIED_MAX;
        self.servers[at] = u16::try_from(server).unwrap_or(u16::MAX);
        self.next = ((at + 1) % TRIED_MAX) as u8;
        self.count = (self.count + 1).min(TRIED_MAX as u8);
    }

    /// Whether `server` is remembered.
    #[must_use]
    pub fn contains(&self, server: usize) -> bool {
        self.servers[..self.len()].iter().any(|&tried| usize::from(tried) == server)
    }

    /// How many servers are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count).min(TRIED_MAX)
    }

    /// Whether no server is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
