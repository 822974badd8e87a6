//! The addresses from which keys of tokens are fetched, and the keys of each, shared by all workers.
//! In: the routes of a configuration. Out: the keys of an address; a reload keeps those of an address with the same settings.
//! Never: fetches.

use std::sync::Arc;

use tidegate_config::model::{Config, RemoteAddress};
use tidegate_wire::jwt::FetchedKeys;

/// See above. Clones share the keys.
#[derive(Clone, Debug, Default)]
pub struct KeySources(Arc<[(RemoteAddress, Arc<FetchedKeys>)]>);

impl KeySources {
    /// The addresses of a configuration, without keys.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::default().after(config)
    }

    /// The addresses of `next`, which follows the configuration with these addresses.
    #[must_use]
    pub fn after(&self, next: &Config) -> Self {
        let mut sources: Vec<(RemoteAddress, Arc<FetchedKeys>)> = Vec::new();
        for remote in next.remote_keys() {
            if sources.iter().all(|(known, _)| known != remote) {
                let keys = self.find(remote).map_or_else(FetchedKeys::new, Arc::clone);
                sources.push((remote.clone(), keys));
            }
        }
        Self(sources.into())
    }

    /// The keys of an address.
    #[must_use]
    pub fn find(&self, remote: &RemoteAddress) -> Option<&Arc<FetchedKeys>> {
        self.0.iter().find(|(known, _)| known == remote).map(|(_, keys)| keys)
    }

    /// The addresses and their keys.
    pub fn all(&self) -> impl Iterator<Item = (&RemoteAddress, &Arc<FetchedKeys>)> {
        self.0.iter().map(|(remote, keys)| (remote, keys))
    }
}
