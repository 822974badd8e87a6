//! Reads `[admin]`.
//! In: the table of the file. Out: checked settings.
//! Invariant: an interface beyond the machine itself has a token.

use crate::model::{Admin, Bind};
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// Reads `[admin]` of the file.
pub(crate) fn read(file: &Table<'_>, notes: &mut Notes) -> Option<Admin> {
    let table = file.open_table("admin", notes)?;
    let token_file = table.text("token-file", notes).map(|path| notes.resolve(&path.text));
    let bind = table.text("bind", notes)?;
    let place = bind.place.clone();
    let bind = crate::listeners::read_bind(&bind, notes)?;
    let is_local = match &bind {
        Bind::Tcp(address) => address.ip().is_loopback(),
        Bind::Unix(_) => true,
    };
    if !is_local && token_file.is_none() {
        let what = "an admin interface on an address other than loopback needs a token";
        let note = Note::new(Kind::Conflict, place, what);
        notes.error(
            note.help("add token-file = \"admin.token\", or write bind = \"127.0.0.1:9901\""),
        );
    }
    Some(Admin { bind, token_file })
}
