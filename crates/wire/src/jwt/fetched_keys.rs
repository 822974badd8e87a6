//! Keys that another thread fetches and replaces while the process serves, for all workers together.
//! In: the contents of sets of keys (RFC 7517 section 5), the results of attempts to fetch them; tokens. Out: the claims of
//! tokens; whether a newer set is wanted.
//! Never: makes a worker wait (`base/src/published.rs`); fetches; forgets keys because newer ones cannot be fetched; takes
//! a secret from a set, or a key that it cannot use.
//! Limits: `CONTENT_BYTES_MAX`; those of `KeySet`; tokens cause a fetch of a newer set at most once in `WANT_SECONDS_MIN`.
//! Invariant: the version of a set is the digest of its content, so that whoever remembers a token together with the
//! version forgets it when the set changes.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;

use aws_lc_rs::digest;
use tidegate_base::published::{Published, Reader};

use super::{KeySet, Refusal};

/// The largest content.
pub const CONTENT_BYTES_MAX: usize = 256 * 1024;
/// How long a set that was fetched counts as complete: a token with the name of another key is refused, and causes no fetch of a
/// newer set. Bounds how often clients can cause a fetch.
pub const WANT_SECONDS_MIN: u64 = 10;

/// The digest of the content of a set; zeros before the first.
type Version = [u8; 32];

/// Keys, see the module header.
#[derive(Debug)]
pub struct FetchedKeys {
    /// The keys in force.
    keys: Arc<Published<Content>>,
    /// A token has named a key that is not in the set.
    wanted: AtomicBool,
    /// When the last attempt to fetch ended, in seconds since 1970; 0: never.
    attempted_at: AtomicU64,
    /// When the set in force was last fetched, in seconds since 1970; 0: never.
    fetched_at: AtomicU64,
    /// The number of attempts that succeeded.
    fetches: AtomicU64,
    /// The number of attempts that failed.
    failures: AtomicU64,
}

/// The keys in force.
#[derive(Debug, Default)]
struct Content {
    version: Version,
    /// `None`: no set was fetched yet.
    set: Option<KeySet>,
}

/// The state of fetched keys, for people.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FetchedKeysFacts {
    /// The number of keys in force.
    pub keys: usize,
    /// When they were last fetched, in seconds since 1970; 0: never.
    pub fetched_at: u64,
    /// The number of attempts that succeeded.
    pub fetches: u64,
    /// The number of attempts that failed.
    pub failures: u64,
}

/// Why fetched keys do not verify a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unverified {
    /// The token is malformed, or none of the keys has signed it.
    Refused(Refusal),
    /// The token names a key that is not in the set, which was fetched a moment ago.
    UnknownKey,
    /// There are no keys yet, or a newer set may have the key that the token names. The same token may be valid in a moment.
    Unavailable,
}

impl FetchedKeys {
    /// Keys that are not fetched yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            keys: Published::new(Content::default()),
            wanted: AtomicBool::new(false),
            attempted_at: AtomicU64::new(0),
            fetched_at: AtomicU64::new(0),
            fetches: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        })
    }

    /// A set was fetched at a time in seconds since 1970. Returns the number of its keys if it differs from the one in force.
    ///
    /// # Errors
    /// The content is not a set of keys that can verify tokens. The keys in force stay.
    pub fn offer(&self, content: &[u8], unix_seconds: u64) -> Result<Option<usize>, String> {
        let read = match content.len() {
            0..=CONTENT_BYTES_MAX => KeySet::parse_published(content),
            _ => Err(format!("larger than {} KiB", CONTENT_BYTES_MAX >> 10)),
        };
        let set = match read {
            Ok(set) => set,
            Err(what) => {
                self.note_failure(unix_seconds);
                return Err(what);
            }
        };
        let mut version = [0; 32];
        version.copy_from_slice(digest::digest(&digest::SHA256, content).as_ref());
        let changed = (self.keys.current().version != version).then(|| set.len());
        if changed.is_some() {
            self.keys.replace(Content { version, set: Some(set) });
        }
        self.fetches.fetch_add(1, Ordering::Relaxed);
        // A worker that reads the second number sees the keys, too.
        self.fetched_at.store(unix_seconds, Ordering::Release);
        self.attempted_at.store(unix_seconds, Ordering::Release);
        Ok(changed)
    }

    /// An attempt to fetch has failed.
    pub fn note_failure(&self, unix_seconds: u64) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        self.attempted_at.store(unix_seconds, Ordering::Release);
    }

    /// Whether a token has demanded a newer set since the last call of [`Self::take_wanted`], and the set in force does not
    /// count as complete any more.
    #[must_use]
    pub fn is_wanted(&self, unix_seconds: u64) -> bool {
        let attempted = self.attempted_at.load(Ordering::Acquire);
        self.wanted.load(Ordering::Relaxed)
            && unix_seconds >= attempted.saturating_add(WANT_SECONDS_MIN)
    }

    /// An attempt to fetch begins.
    pub fn take_wanted(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// The state, for people.
    #[must_use]
    pub fn facts(&self) -> FetchedKeysFacts {
        FetchedKeysFacts {
            keys: self.keys.current().set.as_ref().map_or(0, KeySet::len),
            fetched_at: self.fetched_at.load(Ordering::Acquire),
            fetches: self.fetches.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    /// A worker's way to the keys.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> FetchedKeysReader {
        FetchedKeysReader { source: Arc::clone(self), keys: self.keys.reader() }
    }

    /// Whether a newer set may have a key that the one in force lacks. If so, it is fetched.
    fn demand(&self, unix_seconds: u64) -> bool {
        let attempted = self.attempted_at.load(Ordering::Acquire);
        let has_succeeded = attempted == self.fetched_at.load(Ordering::Acquire);
        if has_succeeded && unix_seconds < attempted.saturating_add(WANT_SECONDS_MIN) {
            return false;
        }
        if !self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(true, Ordering::Relaxed);
        }
        true
    }
}

/// A worker's way to fetched keys.
#[derive(Debug)]
pub struct FetchedKeysReader {
    source: Arc<FetchedKeys>,
    keys: Reader<Content>,
}

impl FetchedKeysReader {
    /// The version of the keys in force.
    #[must_use]
    pub fn version(&self) -> [u8; 32] {
        self.keys.read(|content| content.version)
    }

    /// Verifies the signature of a token at a time in seconds since 1970. Returns the text of its claims.
    ///
    /// # Errors
    /// Why the keys do not verify it.
    pub fn verify(&self, token: &str, unix_seconds: u64) -> Result<Vec<u8>, Unverified> {
        self.keys.read(|content| {
            let Some(set) = &content.set else { return Err(Unverified::Unavailable) };
            set.verify(token).map_err(|refusal| match set.lacks_key_of(token) {
                false => Unverified::Refused(refusal),
                true if self.source.demand(unix_seconds) => Unverified::Unavailable,
                true => Unverified::UnknownKey,
            })
        })
    }
}
