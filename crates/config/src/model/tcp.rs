//! The pools to which a listener forwards connections without reading HTTP (TCP mode).
//! In: built by `config::tcp`. Out: plain data. Invariant: every index of a pool is in range.

use super::HostPattern;

/// `forward` of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// Every connection is forwarded to a server of the pool with this index.
    Pool(usize),
    /// The server name in the client's TLS handshake, which is not decrypted, chooses the pool.
    ByServerName {
        /// Names and the indexes of their pools; each name once.
        names: Vec<(HostPattern, usize)>,
        /// The pool of connections without a name, or with another one; `None`: they are closed.
        default: Option<usize>,
    },
}

impl Forward {
    /// The indexes of the pools.
    pub fn pools(&self) -> impl Iterator<Item = usize> {
        let (only, names, default) = match self {
            Self::Pool(pool) => (Some(*pool), &[][..], None),
            Self::ByServerName { names, default } => (None, names.as_slice(), *default),
        };
        only.into_iter().chain(names.iter().map(|(_, pool)| *pool)).chain(default)
    }

    /// Replaces the index of each pool.
    pub fn map_pools(&mut self, index_of: impl Fn(usize) -> usize) {
        match self {
            Self::Pool(pool) => *pool = index_of(*pool),
            Self::ByServerName { names, default } => {
                names.iter_mut().for_each(|(_, pool)| *pool = index_of(*pool));
                *default = default.map(index_of);
            }
        }
    }
}
