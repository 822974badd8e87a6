//! Reads `auth` of a route, and files with users.
//! In: the table of a route; the text of a file. Out: checked settings; users with the hashes of their passwords.
//! Never: accepts a password in clear text, or a hash that is quick to break.
//! Limits: `USERS_MAX` users in a file; those of `password_hash.rs` for each hash.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ask::{self, OF_ASK};
use crate::jwt;
use crate::listeners::refused;
use crate::model::{AskAuth, BasicAuth, JwtAuth, Users};
use crate::password_hash::HashCost;
use crate::pattern::ValueError;
use crate::pools::Pools;
use crate::report::{Kind, Note, Notes};
use crate::table::Table;
use crate::user_name;

/// Maximum number of users in a file.
const USERS_MAX: usize = 100_000;

/// The users and requests that a route admits.
#[derive(Default)]
pub(crate) struct Auth {
    /// Users with passwords.
    pub(crate) basic: Option<BasicAuth>,
    /// Requests with tokens.
    pub(crate) jwt: Option<JwtAuth>,
    /// Requests that another server grants.
    pub(crate) ask: Option<AskAuth>,
}

/// Reads `auth`.
pub(crate) fn read(route: &Table<'_>, pools: &Pools, notes: &mut Notes) -> Auth {
    read_one(route, pools, notes).unwrap_or_default()
}

fn read_one(route: &Table<'_>, pools: &Pools, notes: &mut Notes) -> Option<Auth> {
    let value = route.value("auth")?;
    if value.get_ref().as_str().is_some() {
        let note = Note::new(Kind::Type, value.span(), "`auth` cannot be a string");
        notes.error(note.help("write auth = { basic = \"users.htpasswd\" }"));
        return None;
    }
    let table = route.open_table("auth", notes)?;
    let mut realm = "Restricted".to_owned();
    if let Some(text) = table.text("realm", notes) {
        let is_plain = |c: char| (c.is_ascii_graphic() || c == ' ') && c != '"' && c != '\\';
        match text.text.chars().all(is_plain) {
            true => realm = text.text,
            false => {
                let complaint = ValueError {
                    what: "not printable ASCII without quotes and backslashes".to_owned(),
                    help: "write realm = \"Team area\"".to_owned(),
                };
                notes.error(refused("realm", &text, complaint));
            }
        }
    }
    let has_ask = table.value("ask").is_some();
    if let Some(name) = OF_ASK.iter().find(|name| !has_ask && table.value(name).is_some()) {
        let what = format!("`{name}` has no effect without `ask`");
        let note = Note::new(Kind::Conflict, table.key_place(name), what);
        notes.error(
            note.help(format!("add ask = \"NAME\", the name of a pool, or remove `{name}`")),
        );
    }
    let ask = ask::read(&table, pools, notes);
    match (table.value("basic"), table.value("jwt"), has_ask) {
        (None, None, true) => Some(Auth { ask, ..Auth::default() }),
        (Some(_), None, false) => {
            if route.value("rate").is_none() {
                let what = "`auth` without `rate`: the number of passwords that a client may try is not limited";
                let note = Note::new(Kind::Value, value.span(), what);
                notes.warn(note.help("add rate = { limit = \"600/m\", burst = 20 } to the route"));
            }
            let file = read_file("basic", &table, notes)?;
            let basic = Some(BasicAuth { file, realm, users: Users::default() });
            Some(Auth { basic, ..Auth::default() })
        }
        (None, Some(_), false) => {
            let jwt = jwt::read(&table.open_table("jwt", notes)?, realm, notes);
            Some(Auth { jwt, ..Auth::default() })
        }
        (basic, jwt, _) => {
            let what = match basic.or(jwt) {
                Some(_) => "`auth` has more than one of `basic`, `jwt` and `ask`",
                None => "`auth` has none of `basic`, `jwt` and `ask`",
            };
            let note = Note::new(Kind::Missing, value.span(), what);
            notes.error(note.help(
                "write auth = { basic = \"users.htpasswd\" } or auth = { jwt = { keys = \"keys.json\" } }",
            ));
            None
        }
    }
}

/// Reads the path of a file.
pub(crate) fn read_file(name: &str, table: &Table<'_>, notes: &mut Notes) -> Option<String> {
    let path = table.text(name, notes)?;
    let file = notes.resolve(&path.text);
    notes.places.mark(file.clone(), path.place);
    Some(file)
}

/// Reads a file with users: `name:hash` in each line, as `htpasswd -B` writes it, or `name:hash:comment`. `#` at the start
/// begins a comment.
///
/// # Errors
/// The line that is wrong, and why. The text contains no hash.
pub(crate) fn parse_users(text: &str) -> Result<Users, String> {
    let mut users = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| format!("line {}: {what}", number + 1);
        let Some((name, hash)) = line.split_once(':') else {
            return Err(wrong("not of the form name:hash"));
        };
        if let Some(what) = user_name::fault_of(name) {
            return Err(wrong(what));
        }
        let hash = hash.split(':').next().unwrap_or_default().trim_end();
        if let Err(what) = HashCost::of(hash) {
            let help = "create it with htpasswd -B or openssl passwd -6";
            return Err(wrong(&format!("{what}; {help}")));
        }
        if users.len() == USERS_MAX {
            return Err(wrong(&format!("more than {USERS_MAX} users")));
        }
        if users.insert(name.to_owned(), hash.to_owned()).is_some() {
            return Err(wrong("the user is listed twice"));
        }
    }
    match users.is_empty() {
        true => Err("no users".to_owned()),
        false => Ok(Arc::new(users)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_a_user_in_each_line() {
        let bcrypt = format!("$2y$05${}", "a".repeat(53));
        let sha = format!("$6$salt${}", "a".repeat(86));
        let argon = format!("$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ${}", "a".repeat(43));
        let text = format!("# team\nbob:{bcrypt}\n\neve:{sha}: the admin\r\nann:{argon}:\n");
        let users = parse_users(&text).expect("a file");
        assert_eq!(users.keys().collect::<Vec<_>>(), ["ann", "bob", "eve"]);
        assert_eq!(users.get("eve"), Some(&sha), "without the comment");
        let twice = format!("bob:{sha}\nbob:{sha}");
        let costly = format!("bob:{sha}\nal:{}", argon.replace("m=8", "m=4194304"));
        for (text, reason) in [
            ("", "no users"),
            ("bob", "line 1: not of the form"),
            (":$6$a$b", "line 1: the name"),
            ("bob :$6$a$b", "line 1: the name of the user begins or ends with whitespace"),
            ("..:$6$a$b", "line 1: the name of the user contains the path segment"),
            ("bob:$6$x", "line 1: the SHA-crypt hash is incomplete or malformed; create it with"),
            (&costly, "line 2: `m` of argon2 is 4194304; allowed: 8 to 262144 KiB"),
            ("\nbob:secret", "line 2: the hash is not of"),
            ("bob:$apr1$a$b", "line 1: the hash is not of"),
            ("bob:{SHA}abc", "line 1: the hash is not of"),
            ("bob:$2y$31$short", "line 1: the bcrypt hash is incomplete or malformed"),
            (&twice, "line 2: the user is listed twice"),
        ] {
            let fault = parse_users(text).expect_err(text);
            assert!(fault.starts_with(reason), "{text}: {fault}");
            assert!(!fault.contains("secret"), "{fault}");
        }
    }
}
