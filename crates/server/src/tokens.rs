//! Checks the key files of `jwt` and of push hubs, and the CA certificates for the collector of traces, before the configuration is
//! used (`action/tokens.rs` and `tidegate_push::token` verify tokens).
//! In: a configuration with the contents of its files. Out: a finding for each file that cannot be used.
//! Never: shows a part of a key; fetches keys.

use tidegate_config::findings::{Finding, Owner};
use tidegate_config::model::{Config, RemoteAddress};
use tidegate_config::report::Kind;
use tidegate_gate::jwt;
use tidegate_wire::jwt::KeySet;

use crate::cold_client;

/// Reads the key files of all routes and hubs. Returns the errors in them.
#[must_use]
pub fn check(config: &Config) -> Vec<Finding> {
    let routes = config.routes.iter().enumerate().filter_map(|(index, route)| {
        let settings = route.handling.jwt.as_ref()?;
        let parsed = || jwt::key_set(settings).map(drop);
        wrong(Owner::Route(index), settings.remote.as_ref(), &settings.file, parsed)
    });
    let hubs = config.push.iter().enumerate().filter_map(|(index, hub)| {
        let keys = hub.token_keys.as_ref()?;
        let parsed = || KeySet::parse(&keys.content.0).map(drop);
        wrong(Owner::Push(index), keys.remote.as_ref(), &keys.file, parsed)
    });
    let collector = config.traces.as_ref().map(|traces| &traces.endpoint);
    let traces = collector.and_then(|remote| {
        let (what, subject) = (cold_client::check(remote).err()?, remote.ca.clone()?);
        Some(Finding { kind: Kind::File, owner: Owner::Traces, subject, what, help: None })
    });
    routes.chain(hubs).chain(traces).collect()
}

/// The error in the CA certificates of a remote address, or in the keys of a file.
fn wrong(
    owner: Owner,
    remote: Option<&RemoteAddress>,
    file: &str,
    parsed: impl FnOnce() -> Result<(), String>,
) -> Option<Finding> {
    let (what, subject) = match remote {
        Some(remote) => (cold_client::check(remote).err()?, remote.ca.clone()?),
        None => (parsed().err()?, file.to_owned()),
    };
    Some(Finding { kind: Kind::File, owner, subject, what, help: None })
}
