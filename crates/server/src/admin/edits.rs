//! The commands that edit the configuration: routes, pools and their servers, and listeners.
//! In: words. Out: an edit for the thread that reloads; its result, or an error that names the allowed values.
//! Never: edits anything itself. An edit lasts until the file is read again.

use std::net::Ipv6Addr;

use tidegate_config::live_edit::{
    LIMIT, LIMIT_OF_HAPROXY, LiveEdit, parse_address, parse_limit, parse_server,
};
use tidegate_gate::access::Names;
use tidegate_gate::health::ServerState;

use super::Operations;
use super::command::Outcome;
use super::command::Reply;
use super::pending::Pending;

/// Shows the edits in force.
pub(super) fn show(arguments: &[&str], operations: &Operations) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: show edits".to_owned());
    }
    let edits = operations.edits.in_force();
    Ok(Reply::Shown(edits.into_iter().map(|edit| edit + "\n").collect()))
}

/// States what is lost in an upgrade, because the new process reads the file: how many edits, and the changes of which maps and sets.
pub(super) fn lost_in_upgrade(operations: &Operations) -> String {
    let process = operations.process();
    let maps = process.maps.all().filter(|(_, map)| map.changes() > 0).map(|(name, _)| name);
    let sets = process.sets.all().filter(|(_, set)| set.changes() > 0).map(|(name, _)| name);
    lost_lines(
        operations.edits.in_force().len(),
        &maps.collect::<Vec<_>>(),
        &sets.collect::<Vec<_>>(),
    )
}

fn lost_lines(edits: usize, maps: &[&str], sets: &[&str]) -> String {
    let mut lines = String::new();
    if edits > 0 {
        lines += &format!("edits lost, because the new process reads the file: {edits}\n");
    }
    for (what, names) in [("maps", maps), ("sets", sets)] {
        if !names.is_empty() {
            let names = names.join(", ");
            lines += &format!(
                "changes of {what} lost, because the new process reads the file: {names}\n"
            );
        }
    }
    lines
}

/// Adds a server. HAProxy's form, with a name and an address, is accepted if the name is the address.
pub(super) fn add_server(arguments: &[&str], _: &Operations) -> Outcome {
    let usage = "usage: add server POOL/ADDRESS [weight N] [connections-max N] [backup]";
    let [place, options @ ..] = arguments else { return Err(usage.to_owned()) };
    let (pool, address) = split(place, usage)?;
    let options = match options {
        [other, rest @ ..] if *other == address => rest,
        [other, ..] if parse_address(address).is_err() && parse_address(other).is_ok() => {
            return Err(format!(
                "the name of a server is its address; help: add server {pool}/{other}"
            ));
        }
        options => options,
    };
    let server = parse_server(address, options)?;
    begin(LiveEdit::AddServer { pool: pool.to_owned(), server })
}

/// Removes a server.
pub(super) fn remove_server(arguments: &[&str], _: &Operations) -> Outcome {
    let usage = "usage: del server POOL/SERVER";
    let [place] = arguments else { return Err(usage.to_owned()) };
    let (pool, server) = split(place, usage)?;
    let (pool, server) = (pool.to_owned(), server.to_owned());
    begin(LiveEdit::RemoveServer { pool, server })
}

/// Adds a pool.
pub(super) fn add_pool(arguments: &[&str]) -> Outcome {
    let [pool, text] = arguments else {
        return Err(
            "usage: add pool NAME { SETTINGS }, such as: add pool api { servers = [\"10.0.0.9:8000\"] }; the table is TOML, as in \
             [pool.NAME] of the file"
                .to_owned(),
        );
    };
    begin(LiveEdit::AddPool { pool: (*pool).to_owned(), text: (*text).to_owned() })
}

/// Removes a pool.
pub(super) fn remove_pool(arguments: &[&str]) -> Outcome {
    let [pool] = arguments else { return Err("usage: del pool NAME".to_owned()) };
    begin(LiveEdit::RemovePool { pool: (*pool).to_owned() })
}

/// Adds a route.
pub(super) fn add_route(arguments: &[&str]) -> Outcome {
    let (text, before) = match arguments {
        [text] => (*text, None),
        [text, "before", name] => (*text, Some((*name).to_owned())),
        _ => {
            return Err(
                "usage: add route { SETTINGS } [before NAME], such as: add route { host = \"a.example\", proxy = \"api\" } before *; \
                 the table is TOML, as in [[route]] of the file"
                    .to_owned(),
            );
        }
    };
    begin(LiveEdit::AddRoute { text: text.to_owned(), before })
}

/// Removes a route.
pub(super) fn remove_route(arguments: &[&str]) -> Outcome {
    let [route] = arguments else { return Err("usage: del route NAME".to_owned()) };
    begin(LiveEdit::RemoveRoute { route: (*route).to_owned() })
}

/// Sets the address or the limit of a server; `None` if the command sets something else.
pub(super) fn set_server(arguments: &[&str], operations: &Operations) -> Option<Outcome> {
    match arguments {
        [place, LIMIT | LIMIT_OF_HAPROXY, limit] => Some(set_limit(&[place, limit], operations)),
        [place, "address" | "addr", address] => Some(set_address(place, address, operations)),
        [place, "address" | "addr", host, "port", port] => {
            let host = match host.parse::<Ipv6Addr>() {
                Ok(address) => format!("[{address}]"),
                Err(_) => (*host).to_owned(),
            };
            Some(set_address(place, &format!("{host}:{port}"), operations))
        }
        _ => None,
    }
}

/// Sets the limit of a server.
pub(super) fn set_limit(arguments: &[&str], _: &Operations) -> Outcome {
    let usage = "usage: set maxconn server POOL/SERVER N, or set server POOL/SERVER connections-max N|unlimited";
    let [place, limit] = arguments else { return Err(usage.to_owned()) };
    let (pool, server) = split(place, usage)?;
    let (pool, server) = (pool.to_owned(), server.to_owned());
    begin(LiveEdit::SetLimit { pool, server, limit: parse_limit(limit)? })
}

/// Replaces the address of a server. A server with a new address begins as ready, so a server in another state is refused.
fn set_address(place: &str, address: &str, operations: &Operations) -> Outcome {
    let (pool, server) = split(place, "usage: set server POOL/SERVER address HOST:PORT")?;
    let address = parse_address(address)?;
    let known = Names::new(&operations.config()).find_server(pool, server);
    let view = known.and_then(|(pool, server)| operations.roster.view(pool, server));
    if view.is_some_and(|view| view.state != ServerState::Ready) {
        return Err(format!(
            "server {place:?} is in state drain or maint, and a server with a new address begins as ready; help: set the state to \
             ready first, or use add server and del server"
        ));
    }
    let (pool, server) = (pool.to_owned(), server.to_owned());
    begin(LiveEdit::SetAddress { pool, server, address })
}

/// Switches a listener on or off.
pub(super) fn switch_listener(command: &str, arguments: &[&str], on: bool) -> Outcome {
    let [listener] = arguments else {
        return Err(format!("usage: {command} listener NAME|ADDRESS"));
    };
    begin(LiveEdit::SwitchListener { listener: (*listener).to_owned(), on })
}

/// Switches a route on or off.
pub(super) fn switch_route(command: &str, arguments: &[&str], on: bool) -> Outcome {
    let [route] = arguments else { return Err(format!("usage: {command} route NAME")) };
    begin(LiveEdit::SwitchRoute { route: (*route).to_owned(), on })
}

/// The names of a pool and of its server.
fn split<'w>(place: &'w str, usage: &str) -> Result<(&'w str, &'w str), String> {
    place.split_once('/').ok_or_else(|| format!("{place:?} is not POOL/SERVER; {usage}"))
}

fn begin(edit: LiveEdit) -> Outcome {
    Ok(Reply::Pending(Pending::Edit(edit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrade_states_what_the_file_does_not_have() {
        assert_eq!(lost_lines(0, &[], &[]), "");
        assert_eq!(
            lost_lines(2, &["hosts", "paths"], &["office"]),
            "edits lost, because the new process reads the file: 2\n\
             changes of maps lost, because the new process reads the file: hosts, paths\n\
             changes of sets lost, because the new process reads the file: office\n"
        );
    }
}
