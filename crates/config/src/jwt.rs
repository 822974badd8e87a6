//! Reads `auth = { jwt = ... }` of a route.
//! In: the table of the setting. Out: checked settings, without the content of their file.
//! Never: reads a key.

use tidegate_base::Span;

use crate::auth::read_file;
use crate::listeners::refused;
use crate::model::{JwtAuth, PublicKeys};
use crate::pattern::{self, ValueError};
use crate::remote_keys::{self, Names};
use crate::report::{Kind, Note, Notes};
use crate::table::{Table, texts_of, wrong_type};

/// Reads the settings of tokens; `None` if the file of the keys is missing.
pub(crate) fn read(table: &Table<'_>, realm: String, notes: &mut Notes) -> Option<JwtAuth> {
    let (secret, keys) = (table.value("secret-file"), table.value("keys"));
    let is_one = secret.is_some() != keys.is_some();
    if !is_one {
        let what = "`jwt` needs exactly one of `secret-file` and `keys`";
        let note = Note::new(Kind::Missing, table.place.clone(), what);
        notes.error(note.help(
            "write keys = \"keys.json\" (or an https address) for public keys, or secret-file = \"secret\" for HMAC",
        ));
    }
    let is_secret = secret.is_some();
    // Every mistake is reported, even if a file is missing.
    let names = Names { keys: "keys", ca: "ca" };
    let source = if is_secret {
        let file = read_file("secret-file", table, notes);
        remote_keys::refuse_authorities(names, table, notes);
        file.map(|file| PublicKeys { file, ..PublicKeys::default() })
    } else {
        remote_keys::read(names, table, notes)
    };
    let is_known = is_one && source.is_some();
    let PublicKeys { file, remote, content } = source.unwrap_or_default();
    let mut jwt = JwtAuth {
        file,
        remote,
        is_secret,
        content,
        realm,
        audience: Vec::new(),
        issuer: table.text("issuer", notes).map(|text| text.text),
        claims: Vec::new(),
        leeway: Span::from_secs(30),
        cookie: None,
    };
    if let Some(value) = table.value("audience") {
        jwt.audience =
            texts_of("`audience`", value, notes).into_iter().map(|text| text.text).collect();
    }
    for (name, value) in table.open_fields("claims", notes) {
        match value.get_ref().as_str() {
            Some(wanted) => jwt.claims.push((name.text, wanted.to_owned())),
            None => notes.error(wrong_type("a value of `claims`", value, "a string")),
        }
    }
    table.set_duration("leeway", &mut jwt.leeway, notes);
    if let Some(cookie) = table.text("cookie", notes) {
        if pattern::is_token(&cookie.text) {
            jwt.cookie = Some(cookie.text);
        } else {
            let complaint = ValueError {
                what: "not the name of a cookie".to_owned(),
                help: "write cookie = \"session\"".to_owned(),
            };
            notes.error(refused("cookie", &cookie, complaint));
        }
    }
    is_known.then_some(jwt)
}
