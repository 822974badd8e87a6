//! Reads `auth = { jwt = ... }` of a route.
//! In: the table of the setting. Out: checked settings, without the content of their file.
//! Never: reads a key.

use tidegate_base::Span;

use crate::auth::read_file;
use crate::listeners::refused;
use crate::model::{JwtAuth, KeyContent};
use crate::pattern::{self, Complaint};
use crate::remote_keys;
use crate::report::{Kind, Note, Notes};
use crate::table::{Table, texts_of, wrong_type};

/// Reads the settings of tokens; `None` if the file of the keys is missing.
pub(crate) fn read(table: &Table<'_>, realm: String, notes: &mut Notes) -> Option<JwtAuth> {
    let (secret, keys) = (table.value("secret-file"), table.value("keys"));
    let is_one = secret.is_some() != keys.is_some();
    if !is_one {
        let what = "`jwt` needs either `secret-file` or `keys`";
        let note = Note::new(Kind::Missing, table.place.clone(), what);
        notes.error(note.help(
            "write keys = \"keys.json\" or an https address for public keys or a set of keys, secret-file = \"secret\" for HMAC",
        ));
    }
    let is_secret = secret.is_some();
    // Every mistake is reported, also beside a file that is missing.
    let text = keys.and_then(|_| table.text("keys", notes));
    let text = text.filter(|text| !is_secret && remote_keys::is_url(&text.text));
    let remote = text.as_ref().and_then(|text| remote_keys::read("keys", text, table, notes));
    let file = match &text {
        Some(_) => None,
        None => read_file(if is_secret { "secret-file" } else { "keys" }, table, notes),
    };
    if text.is_none() && table.text("ca", notes).is_some() {
        let what = "`ca` has no effect without an address in `keys`";
        let note = Note::new(Kind::Conflict, table.key_place("ca"), what);
        notes.error(note.help("remove it, or write keys = \"https://id.example/jwks.json\""));
    }
    let is_known = is_one && (file.is_some() || remote.is_some());
    let mut jwt = JwtAuth {
        file: file.unwrap_or_default(),
        remote,
        is_secret,
        content: KeyContent::default(),
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
            let complaint = Complaint {
                what: "not the name of a cookie".to_owned(),
                help: "write cookie = \"session\"".to_owned(),
            };
            notes.error(refused("cookie", &cookie, complaint));
        }
    }
    is_known.then_some(jwt)
}
