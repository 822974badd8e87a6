//! The pool of a connection that is forwarded without HTTP (TCP mode).
//! In: `forward` of a listener, the server name of a TLS handshake. Out: the index of a pool.
//! Never: allocates for a lookup.
//! Invariant: an exact name wins over a pattern, the longest pattern over the others, any of them over the default.

use tidegate_config::model::{Forward, HostPattern};

/// The longest name of DNS; longer names match nothing.
const NAME_BYTES_MAX: usize = 255;

/// The pools of the connections of a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TcpTargets {
    /// Whether the pool depends on the name, so that the ClientHello must be read first.
    needs_name: bool,
    /// Names in lower case and their pools, sorted.
    exact: Vec<(String, u16)>,
    /// Suffixes that begin with a dot, in lower case, and their pools, sorted.
    below: Vec<(String, u16)>,
    /// The pool of all other connections.
    default: Option<u16>,
}

impl TcpTargets {
    /// Prepares `forward` of a listener.
    #[must_use]
    pub fn new(forward: &Forward) -> Self {
        let (mut exact, mut below) = (Vec::new(), Vec::new());
        let (names, default, needs_name) = match forward {
            Forward::Pool(pool) => (&[][..], Some(*pool), false),
            Forward::ByServerName { names, default } => (names.as_slice(), *default, true),
        };
        for (pattern, pool) in names {
            match pattern {
                HostPattern::Exact(name) => exact.push((name.clone(), *pool as u16)),
                HostPattern::Below(suffix) => below.push((suffix.clone(), *pool as u16)),
            }
        }
        exact.sort();
        below.sort();
        Self { needs_name, exact, below, default: default.map(|pool| pool as u16) }
    }

    /// The pool of every connection; `None` if it depends on the server name.
    #[must_use]
    pub fn only(&self) -> Option<u16> {
        self.default.filter(|_| !self.needs_name)
    }

    /// The pool of a connection whose client requests `name`.
    #[must_use]
    pub fn find(&self, name: Option<&str>) -> Option<u16> {
        name.and_then(|name| self.find_name(name)).or(self.default)
    }

    fn find_name(&self, name: &str) -> Option<u16> {
        // A dot at the end means the same name (RFC 6066 section 3 forbids it, some clients send it).
        let name = name.strip_suffix('.').unwrap_or(name);
        let mut lower = [0; NAME_BYTES_MAX];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name.as_bytes());
        lower.make_ascii_lowercase();
        if let Some(pool) = get(&self.exact, lower) {
            return Some(pool);
        }
        // At least one label precedes the suffix.
        let dots = (1..lower.len()).filter(|at| lower[*at] == b'.');
        dots.into_iter().find_map(|at| get(&self.below, &lower[at..]))
    }
}

fn get(sorted: &[(String, u16)], name: &[u8]) -> Option<u16> {
    let found = sorted.binary_search_by(|(other, _)| other.as_bytes().cmp(name));
    found.ok().map(|at| sorted[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(default: Option<usize>) -> TcpTargets {
        let exact = |name: &str, pool| (HostPattern::Exact(name.to_owned()), pool);
        let below = |suffix: &str, pool| (HostPattern::Below(suffix.to_owned()), pool);
        let names = vec![
            below(".b.example", 2),
            exact("a.example", 0),
            below(".x.b.example", 3),
            exact("y.x.b.example", 4),
        ];
        TcpTargets::new(&Forward::ByServerName { names, default })
    }

    #[test]
    fn most_specific_name_wins() {
        let cases = [
            ("a.example", Some(0)),
            ("A.Example.", Some(0)),
            ("q.b.example", Some(2)),
            ("r.q.b.example", Some(2)),
            ("q.x.b.example", Some(3)),
            ("y.x.b.example", Some(4)),
            ("b.example", None),
            (".b.example", None),
            ("ab.example", None),
            ("example", None),
            ("", None),
            (".", None),
        ];
        for (name, pool) in cases {
            assert_eq!(targets(None).find(Some(name)), pool, "{name}");
            assert_eq!(targets(Some(9)).find(Some(name)), pool.or(Some(9)), "{name}");
        }
        let long = format!("{}.b.example", "a".repeat(300));
        assert_eq!(targets(None).find(Some(&long)), None);
        assert_eq!((targets(None).find(None), targets(Some(9)).find(None)), (None, Some(9)));
    }

    #[test]
    fn a_single_pool_needs_no_name() {
        let only = TcpTargets::new(&Forward::Pool(7));
        assert_eq!(
            (only.only(), only.find(None), only.find(Some("a"))),
            (Some(7), Some(7), Some(7))
        );
        assert_eq!(targets(Some(1)).only(), None);
    }
}
