//! Reads `[admin]`.
//! In: the table of the file. Out: checked settings.
//! Invariant: an interface beyond the machine itself has a token, or requests certificates.

use crate::findings::Owner;
use crate::listeners::Listeners;
use crate::model::{Admin, Bind};
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// Reads `[admin]` of the file.
pub(crate) fn read(file: &Table<'_>, listeners: &Listeners, notes: &mut Notes) -> Option<Admin> {
    let table = file.open_table("admin", notes)?;
    let mut read_path = |name: &str| {
        let path = table.text(name, notes)?;
        let resolved = notes.resolve(&path.text);
        notes.places.mark(resolved.clone(), path.place);
        Some(resolved)
    };
    let (token_file, read_token_file) = (read_path("token-file"), read_path("read-token-file"));
    if let Some(value) = table.value("read-token-file").filter(|_| token_file.is_none()) {
        let what = "`read-token-file` has no effect without `token-file`: every client may run every command";
        let note = Note::new(Kind::Conflict, value.span(), what);
        notes.error(note.help("add token-file = \"admin.token\""));
    }
    let tls = crate::tls::read_admin(&table, notes);
    let bind = table.text("bind", notes)?;
    let place = bind.place.clone();
    let bind = crate::listeners::read_bind(&bind, notes)?;
    notes.places.mark(bind.to_string(), place.clone());
    notes.places.assign(Owner::Admin);
    if let Some(taken) = listeners.listeners.iter().find(|known| collide(&known.bind, &bind)) {
        let what = format!("listener {:?} already has this address", taken.name);
        let note = Note::new(Kind::Duplicate, place.clone(), what);
        notes.error(note.help("use another port for the admin interface"));
    }
    let is_local = match &bind {
        Bind::Tcp(address) => address.ip().is_loopback(),
        Bind::Unix(_) => true,
    };
    if let (Bind::Unix(_), Some(_)) = (&bind, table.value("tls")) {
        let what = "a unix socket cannot have `tls`: only the user of the process can use it";
        let note = Note::new(Kind::Conflict, table.key_place("tls"), what);
        notes.error(note.help("remove `tls`"));
    }
    let of_tls = table.value("tls").and_then(|value| value.get_ref().as_table());
    let has_authorities = of_tls.is_some_and(|tls| tls.contains_key("client-ca"));
    if !is_local && token_file.is_none() && !has_authorities {
        let what = "an admin interface on an address other than loopback needs a token or client certificates";
        let note = Note::new(Kind::Conflict, place, what);
        notes.error(
            note.help("add token-file = \"admin.token\", or `tls` with `client-ca`, or write bind = \"127.0.0.1:9901\""),
        );
    }
    Some(Admin { bind, token_file, read_token_file, tls })
}

/// Whether only one of the addresses can be listened on.
fn collide(one: &Bind, other: &Bind) -> bool {
    match (one, other) {
        (Bind::Tcp(one), Bind::Tcp(other)) => {
            let (left, right) = (one.ip(), other.ip());
            let covers_all = left.is_unspecified() || right.is_unspecified();
            let is_same_kind = left.is_ipv4() == right.is_ipv4();
            one.port() != 0
                && one.port() == other.port()
                && (left == right || (covers_all && is_same_kind))
        }
        (Bind::Unix(one), Bind::Unix(other)) => one == other,
        (Bind::Tcp(_), Bind::Unix(_)) | (Bind::Unix(_), Bind::Tcp(_)) => false,
    }
}
