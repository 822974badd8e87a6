//! Reads `[set.NAME]`, lists of addresses in routes, and files with addresses.
//! In: the root table of the file; the text of a file with addresses. Out: checked sets and lists.
//! Never: opens a file; see `file_contents.rs`.
//! Limits: `RANGES_MAX` addresses and ranges in a file.

use crate::findings::Owner;
use crate::keys::SET;
use crate::listeners::{refused, unknown_name};
use crate::model::{AddressSet, Addresses, NetworkSet, RANGES_MAX};
use crate::pattern::{self, ValueError};
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// Reads all sets, in file order.
pub(crate) fn read(file: &Table<'_>, notes: &mut Notes) -> Vec<AddressSet> {
    let mut sets = Vec::new();
    for (name, value) in file.open_fields("set", notes) {
        if let Err(complaint) = pattern::check_name(&name.text) {
            notes.error(refused("set", &name, complaint));
        }
        if SET.key(&name.text).is_some() && value.get_ref().as_table().is_none() {
            let note = Note::new(Kind::Missing, name.place, "[set] needs a name");
            notes.error(note.help(
                "write [set.NAME], and \"set:NAME\" in `client`, `allow` or `deny` of a route",
            ));
            continue;
        }
        let mut set = AddressSet { name: name.text, file: None, networks: NetworkSet::default() };
        if let Some(table) = Table::open(&SET, value, notes) {
            read_addresses(&table, &mut set, notes);
        }
        notes.places.assign(Owner::Set(sets.len()));
        sets.push(set);
    }
    sets
}

fn read_addresses(table: &Table<'_>, set: &mut AddressSet, notes: &mut Notes) {
    let Some(value) = table.value("addresses") else { return };
    if value.get_ref().as_str().is_some() {
        let Some(path) = table.text("addresses", notes) else { return };
        if pattern::parse_network(&path.text).is_ok() || path.text.is_empty() {
            let what = "a string in `addresses` is the path of a file, not an address";
            let note = Note::new(Kind::Value, path.place, what);
            notes.error(note.help("write addresses = [\"10.0.0.0/8\"], or the path of a file"));
            return;
        }
        let full = notes.resolve(&path.text);
        notes.places.mark(full.clone(), path.place);
        set.file = Some(full);
        return;
    }
    let mut networks = Vec::new();
    for text in table.texts("addresses", notes) {
        match pattern::parse_network(&text.text) {
            Ok(network) => networks.push(network),
            Err(complaint) => notes.error(refused("addresses", &text, complaint)),
        }
    }
    set.networks = NetworkSet::new(networks);
}

/// Reads the list of addresses under `name` of a route; `None` if the setting is absent.
pub(crate) fn read_list(
    table: &Table<'_>,
    name: &str,
    sets: &[AddressSet],
    notes: &mut Notes,
) -> Option<Addresses> {
    let value = table.value(name)?;
    let mut list = Addresses::default();
    let mut networks = Vec::new();
    for mut text in table.texts(name, notes) {
        if let Some(set) = text.text.strip_prefix("set:").map(str::to_owned) {
            match sets.iter().position(|known| known.name == set) {
                Some(index) => list.sets.push(index),
                None => {
                    text.text = set;
                    let known: Vec<&str> = sets.iter().map(|set| set.name.as_str()).collect();
                    notes.error(unknown_name("set", &text, &known));
                }
            }
            continue;
        }
        match pattern::parse_network(&text.text) {
            Ok(network) => networks.push(network),
            Err(ValueError { what, help }) => {
                let help = match (text.text.to_ascii_lowercase().as_str(), name) {
                    ("all" | "any" | "*", "deny") => {
                        "remove it: `allow` refuses all other addresses; write [\"0.0.0.0/0\", \"::/0\"] for every address"
                            .to_owned()
                    }
                    ("all" | "any" | "*", "allow" | "client") => {
                        format!("remove it: without `{name}` every address is accepted")
                    }
                    _ => format!("{help}, or \"set:NAME\" for a [set.NAME]"),
                };
                notes.error(refused(name, &text, ValueError { what, help }));
            }
        }
    }
    if value.get_ref().as_array().is_some_and(|all| all.is_empty()) {
        let what = format!("`{name}` lists no address");
        let note = Note::new(Kind::Value, value.span(), what);
        notes.error(note.help("add addresses, or remove the setting"));
    }
    list.networks = NetworkSet::new(networks);
    Some(list)
}

/// Reads a file with addresses: one address or range in each line. `#` begins a comment.
///
/// # Errors
/// The line that is wrong, and why.
pub(crate) fn parse_file(text: &str) -> Result<NetworkSet, String> {
    let mut networks = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if networks.len() == RANGES_MAX {
            return Err(format!("more than {RANGES_MAX} addresses"));
        }
        match pattern::parse_network(line) {
            Ok(network) => networks.push(network),
            Err(complaint) => {
                let line = line.escape_debug();
                return Err(format!("line {}: {line}: {}", number + 1, complaint.what));
            }
        }
    }
    Ok(NetworkSet::new(networks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_an_address_in_each_line() {
        let set = parse_file("# office\n10.0.0.0/8 # all\n\n 192.0.2.1\r\n2001:db8::/32\n")
            .expect("a file");
        for address in ["10.1.2.3", "192.0.2.1", "2001:db8::1"] {
            assert!(set.contains(address.parse().expect("an address")), "{address}");
        }
        assert!(!set.contains("192.0.2.2".parse().expect("an address")));
        let fault = parse_file("10.0.0.0/8\nexample.com\n").expect_err("a name");
        assert_eq!(fault, "line 2: example.com: not a range of IP addresses");
        assert!(parse_file("10.0.0.1/8").is_err());
    }
}
