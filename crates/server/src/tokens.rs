//! Checks the key files of `jwt` before the configuration is used (`action/tokens.rs` verifies tokens).
//! In: a configuration with the contents of its files. Out: a finding for each key file that cannot be used.
//! Never: shows a part of a key; fetches keys.

use tidegate_config::model::Config;
use tidegate_config::places::{Finding, Owner};
use tidegate_config::report::Kind;
use tidegate_gate::jwt;

use crate::key_client;

/// Reads the key files of all routes. Returns what is wrong with them.
#[must_use]
pub fn check(config: &Config) -> Vec<Finding> {
    let routes = config.routes.iter().enumerate();
    let wrong = routes.filter_map(|(index, route)| {
        let settings = route.handling.jwt.as_ref()?;
        let (what, subject) = match &settings.remote {
            Some(remote) => (key_client::check(remote).err()?, remote.ca.clone()?),
            None => (jwt::key_set(settings).err()?, settings.file.clone()),
        };
        let owner = Owner::Route(index);
        Some(Finding { kind: Kind::File, owner, subject, what, help: None })
    });
    wrong.collect()
}
