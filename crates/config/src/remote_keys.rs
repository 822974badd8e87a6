//! Reads the source of the public keys for tokens: `keys = "https://id.example/jwks.json"`, or a file.
//! In: the table with the settings of the keys and of the authorities. Out: the path of the file, or the parts of the address.
//! Never: fetches; accepts http except for localhost and loopback addresses: an attacker who can change the response in
//! transit could then sign tokens.

use crate::auth::read_file;
use crate::model::PublicKeys;
use crate::remote_address::{self, Form};
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// The names of two settings: the keys, and the authorities that verify the server of an address.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) keys: &'static str,
    pub(crate) ca: &'static str,
}

/// Reads the settings; `None` if there are no keys.
pub(crate) fn read(names: Names, table: &Table<'_>, notes: &mut Notes) -> Option<PublicKeys> {
    let text = table.value(names.keys).and_then(|_| table.text(names.keys, notes));
    if let Some(text) = text.filter(|text| is_url(&text.text)) {
        let form = Form {
            key: names.keys,
            ca: names.ca,
            example: "https://id.example/.well-known/jwks.json",
            only_tls: Some(
                "keys are fetched by https only, except from localhost and loopback addresses",
            ),
        };
        let remote = remote_address::read(&form, &text, table, notes)?;
        return Some(PublicKeys { remote: Some(remote), ..PublicKeys::default() });
    }
    let file = read_file(names.keys, table, notes);
    refuse_authorities(names, table, notes);
    Some(PublicKeys { file: file?, ..PublicKeys::default() })
}

/// Notes an error if authorities are set although the keys are not at an address: only its server needs them.
pub(crate) fn refuse_authorities(Names { keys, ca }: Names, table: &Table<'_>, notes: &mut Notes) {
    if table.text(ca, notes).is_some() {
        let what = format!("`{ca}` has no effect without an address in `{keys}`");
        let note = Note::new(Kind::Conflict, table.key_place(ca), what);
        notes.error(
            note.help(format!("remove it, or write {keys} = \"https://id.example/jwks.json\"")),
        );
    }
}

/// Whether a string is meant as an address, not as the path of a file.
fn is_url(text: &str) -> bool {
    text.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://"))
        || text.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("http://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_differ_from_paths() {
        assert!(is_url("HTTP://x") && is_url("https://x"));
        assert!(!is_url("httpx://") && !is_url("keys.json"));
    }
}
