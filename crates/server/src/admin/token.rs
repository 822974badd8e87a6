//! The tokens of the admin interface.
//! In: `[admin]`; the token that a client presents. Out: the rights of the client; why a file cannot be used, and the fix.
//! Limits: `TOKEN_BYTES_MAX`; at least `TOKEN_CHARS_MIN` characters if other machines may reach the interface.

use tidegate_config::model::{Admin, Bind};

use crate::files;

/// Bytes of the file.
const TOKEN_BYTES_MAX: u64 = 4096;
/// The fewest characters of a token if clients on other machines can reach the interface.
const TOKEN_CHARS_MIN: usize = 16;
const MAKE: &str = "write a random token into the file: openssl rand -hex 32";

/// Why a token cannot be used: what is wrong, and the fix.
pub(crate) type Fault = (String, String);

/// The tokens of the interface: the contents of the files without blanks around them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    /// The token for all commands; `None`: no token is needed.
    pub(crate) all: Option<String>,
    /// The token for pages and for commands that change nothing.
    pub(crate) read: Option<String>,
}

/// The rights of a client, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Rights {
    /// Nothing.
    None,
    /// To read.
    Read,
    /// Everything.
    All,
}

impl Tokens {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or its content is not a token: its path, and what is wrong.
    pub(crate) fn read(admin: &Admin) -> Result<Self, (String, Fault)> {
        let one = |path: &Option<String>| {
            let Some(path) = path else { return Ok(None) };
            read_file(path, admin).map(Some).map_err(|fault| (path.clone(), fault))
        };
        Ok(Self { all: one(&admin.token_file)?, read: one(&admin.read_token_file)? })
    }

    /// The rights of a client that presents this token. Tokens are compared in constant time.
    pub(crate) fn rights_of(&self, shown: Option<&str>) -> Rights {
        let is = |token: &Option<String>| {
            let (Some(token), Some(shown)) = (token, shown) else { return false };
            let differences = token.bytes().zip(shown.bytes()).map(|(one, other)| one ^ other);
            token.len() == shown.len() && differences.fold(0, |sum, bits| sum | bits) == 0
        };
        match (is(&self.all), is(&self.read)) {
            (true, _) => Rights::All,
            (false, _) if self.all.is_none() => Rights::All,
            (false, true) => Rights::Read,
            (false, false) => Rights::None,
        }
    }
}

fn read_file(path: &str, admin: &Admin) -> Result<String, Fault> {
    let bytes = files::read(path, TOKEN_BYTES_MAX)
        .map_err(|error| (format!("the token cannot be read: {error}"), MAKE.to_owned()))?;
    let is_local = match &admin.bind {
        Bind::Tcp(address) => address.ip().is_loopback(),
        Bind::Unix(_) => true,
    };
    check(&bytes, is_local)
}

/// Whether other users of the machine cannot use the interface.
pub(crate) fn is_private(admin: &Admin) -> bool {
    admin.token_file.is_some() || admin.has_client_ca() || matches!(admin.bind, Bind::Unix(_))
}

fn check(bytes: &[u8], is_local: bool) -> Result<String, Fault> {
    let fault = |what: &str| Err((what.to_owned(), MAKE.to_owned()));
    let Ok(text) = core::str::from_utf8(bytes) else {
        return fault("the token is not UTF-8");
    };
    let token = text.trim();
    match token.len() {
        0 => fault("the file of the token is empty"),
        _ if bytes.len() as u64 > TOKEN_BYTES_MAX => fault("the token is longer than 4096 bytes"),
        // A token with a blank or a semicolon cannot be presented on the command line.
        _ if !token.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';') => fault(
            "the token contains a character that is not allowed; allowed: visible ASCII characters except `;`",
        ),
        count if count < TOKEN_CHARS_MIN && !is_local => fault(&format!(
            "the token has {count} characters, but other machines can reach the interface: at least {TOKEN_CHARS_MIN} characters are needed"
        )),
        _ => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_one_word_and_long_enough_for_other_machines() {
        for (bytes, local, remote) in [
            (&b"0123456789abcdef\n"[..], true, true),
            (b" 0123456789abcdef ", true, true),
            (b"0123456789abcde\n", true, false),
            (b"x", true, false),
            (b"", false, false),
            (b" \n", false, false),
            (b"0123456789abcdef 0123456789abcdef", false, false),
            (b"0123456789;abcdef", false, false),
            (b"0123456789\xff0123456789", false, false),
            (&[b'x'; 4096], true, true),
            (&[b'x'; 4097], false, false),
        ] {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(check(bytes, true).is_ok(), local, "{text}");
            assert_eq!(check(bytes, false).is_ok(), remote, "{text}");
        }
    }
}
