//! Puts the contents of the files that a configuration names into it.
//! In: a checked configuration; a function that reads a file. Out: the configuration with the contents, or findings.
//! Never: opens a file itself. Certificates of TLS and their keys are read elsewhere, because they are also reloaded alone.
//! Limits: `SUPPLIED_BYTES_MAX` for each file, `PAGE_BYTES_MAX` for each page.

use std::collections::BTreeMap;

use crate::auth;
use crate::choice::pools_of;
use crate::findings::{Finding, Owner};
use crate::maps;
use crate::model::{Action, Config, KeyContent, PoolChoice, Proxy, RemoteAddress, Route};
use crate::report::Kind;
use crate::sets;

/// Maximum size of a file in bytes.
pub const SUPPLIED_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Reads all files that `config` names, and puts their contents into it. `read` returns the content of a file, of which
/// it reads up to `SUPPLIED_BYTES_MAX` and one more byte, or the reason why the file cannot be read. A file that is named
/// several times is read once.
///
/// # Errors
/// A file cannot be read, or its content is wrong.
pub fn supply(
    config: &mut Config,
    read: impl FnMut(&str) -> Result<Vec<u8>, String>,
) -> Result<(), Vec<Finding>> {
    let mut supplier = Supplier { read, known: BTreeMap::new(), findings: Vec::new() };
    for (index, set) in config.sets.iter_mut().enumerate() {
        if let Some(path) = &set.file {
            let parsed = supplier.text(Owner::Set(index), path, sets::parse_file);
            set.networks = parsed.unwrap_or_default();
        }
    }
    supply_maps(config, &mut supplier);
    for (index, route) in config.routes.iter_mut().enumerate() {
        supplier.route(Owner::Route(index), route);
    }
    for (index, hub) in config.push.iter_mut().enumerate() {
        let Some(keys) = &mut hub.token_keys else { continue };
        let owner = Owner::Push(index);
        match &mut keys.remote {
            Some(remote) => supplier.authorities(owner, remote),
            None => keys.content = supplier.keys(owner, &keys.file),
        }
    }
    if let Some(traces) = &mut config.traces {
        supplier.authorities(Owner::Traces, &mut traces.endpoint);
    }
    match supplier.findings.is_empty() {
        true => Ok(()),
        false => Err(supplier.findings),
    }
}

/// As [`supply`], for the files that one route names.
///
/// # Errors
/// As [`supply`].
pub(crate) fn supply_route(
    route: &mut Route,
    read: impl FnMut(&str) -> Result<Vec<u8>, String>,
) -> Result<(), Vec<Finding>> {
    let mut supplier = Supplier { read, known: BTreeMap::new(), findings: Vec::new() };
    supplier.route(Owner::Route(0), route);
    if supplier.findings.is_empty() { Ok(()) } else { Err(supplier.findings) }
}

/// Reads the files of maps, and finds the pools that they name.
fn supply_maps<F: FnMut(&str) -> Result<Vec<u8>, String>>(
    config: &mut Config,
    supplier: &mut Supplier<F>,
) {
    for (index, map) in config.maps.iter_mut().enumerate() {
        if let Some(path) = &map.file {
            let (kind, ignore_case) = (map.kind, map.ignore_case);
            let parse = |text: &str| maps::parse_file(text, kind, ignore_case);
            map.table = supplier.text(Owner::Map(index), path, parse).unwrap_or_default();
        }
    }
    for route in &mut config.routes {
        let Action::Proxy(Proxy { pool: PoolChoice::Map(choice), .. }) = &mut route.action else {
            continue;
        };
        let Some(map) = config.maps.get(choice.map) else { continue };
        let Some(path) = &map.file else { continue };
        match pools_of(&map.table, &config.pools) {
            Ok(pools) => choice.pools = pools,
            Err(what) => supplier.note(Owner::Map(choice.map), path, what),
        }
    }
}

/// Maximum size of a page in bytes. It is sent in one piece.
const PAGE_BYTES_MAX: u64 = 256 * 1024;

/// Maximum size of a file with keys in bytes.
const KEYS_BYTES_MAX: u64 = 256 * 1024;

struct Supplier<F> {
    /// Reads a file.
    read: F,
    /// The files read so far.
    known: BTreeMap<String, Result<Vec<u8>, String>>,
    /// The error.
    findings: Vec<Finding>,
}

impl<F: FnMut(&str) -> Result<Vec<u8>, String>> Supplier<F> {
    /// The result of `parse` for the content of a file; `None` if something is wrong.
    fn bytes<T>(
        &mut self,
        owner: Owner,
        path: &str,
        bytes_max: u64,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<T> {
        let known = &mut self.known;
        let content = known.entry(path.to_owned()).or_insert_with(|| (self.read)(path));
        let parsed = match content {
            Ok(bytes) if bytes.len() as u64 > bytes_max => match bytes_max >> 20 {
                0 => Err(format!("larger than {} KiB", bytes_max >> 10)),
                most => Err(format!("larger than {most} MiB")),
            },
            Ok(bytes) => parse(bytes),
            Err(reason) => Err(format!("cannot be read: {reason}")),
        };
        match parsed {
            Ok(value) => Some(value),
            Err(what) => {
                self.note(owner, path, what);
                None
            }
        }
    }

    /// Reads the files that a route names.
    fn route(&mut self, owner: Owner, route: &mut Route) {
        let handling = &mut route.handling;
        if let Some(auth) = &mut handling.auth {
            let users = self.text(owner, &auth.file, auth::parse_users);
            auth.users = users.unwrap_or_default();
        }
        if let Some(jwt) = &mut handling.jwt {
            match &mut jwt.remote {
                Some(remote) => self.authorities(owner, remote),
                None => jwt.content = self.keys(owner, &jwt.file),
            }
        }
        let pages = handling.errors.iter_mut().map(|error| &mut error.page);
        let down = handling.maintenance.iter_mut().filter_map(|down| down.page.as_mut());
        for page in pages.chain(down) {
            let content = self.bytes(owner, &page.file, PAGE_BYTES_MAX, |bytes| Ok(bytes.into()));
            page.content = content.unwrap_or_default();
        }
    }

    /// The content of a file with keys.
    fn keys(&mut self, owner: Owner, path: &str) -> KeyContent {
        let content = self.bytes(owner, path, KEYS_BYTES_MAX, |bytes| Ok(bytes.into()));
        KeyContent(content.unwrap_or_default())
    }

    /// Reads the authorities of an address.
    fn authorities(&mut self, owner: Owner, remote: &mut RemoteAddress) {
        if let Some(path) = remote.ca.clone() {
            remote.authorities = self.keys(owner, &path);
        }
    }

    /// Notes what is wrong with a file, once.
    fn note(&mut self, owner: Owner, path: &str, what: String) {
        let subject = path.to_owned();
        let finding = Finding { kind: Kind::File, owner, subject, what, help: None };
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// As [`Self::bytes`], for a string. A byte order mark at its start, as some editors write it, is ignored.
    fn text<T>(
        &mut self,
        owner: Owner,
        path: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.bytes(owner, path, SUPPLIED_BYTES_MAX, |bytes| match core::str::from_utf8(bytes) {
            Ok(text) => parse(text.strip_prefix('\u{feff}').unwrap_or(text)),
            Err(error) => Err(format!("not UTF-8 at byte {}", error.valid_up_to())),
        })
    }
}
