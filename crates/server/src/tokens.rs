//! Checks the key files of `jwt` before the configuration is used (`action/tokens.rs` verifies tokens).
//! In: a configuration with the contents of its files. Out: a finding for each key file that cannot be used.
//! Never: shows a part of a key.

use tidegate_config::model::Config;
use tidegate_config::places::{Finding, Owner};
use tidegate_config::report::Kind;
use tidegate_gate::jwt;

/// Reads the key files of all routes. Returns what is wrong with them.
#[must_use]
pub fn check(config: &Config) -> Vec<Finding> {
    let routes = config.routes.iter().enumerate();
    let wrong = routes.filter_map(|(index, route)| {
        let settings = route.handling.jwt.as_ref()?;
        let what = jwt::key_set(settings).err()?;
        let (owner, subject) = (Owner::Route(index), settings.file.clone());
        Some(Finding { kind: Kind::File, owner, subject, what, help: None })
    });
    wrong.collect()
}
