//! Reads `client-cert` of a route.
//! In: the table of the route, and the listeners of the file. Out: a checked condition.
//! Never: accepts a subject whose form no certificate can have (RFC 4514, as sent in `X-Client-Cert-Subject`).
//! Limits: `SUBJECT_BYTES_MAX`; a fingerprint has `FINGERPRINT_DIGITS` digits.
//! Invariant: a condition is accepted only if a listener of the route requests client certificates, and only if
//! the condition requires something.

use crate::listeners::{Listeners, refused};
use crate::model::{CertificateCondition, CertificateTest, ClientAuth, Listener};
use crate::pattern::ValueError;
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// Maximum length of a subject in bytes, in the form that servers receive.
const SUBJECT_BYTES_MAX: usize = 512;
/// Hexadecimal digits of SHA-256.
const FINGERPRINT_DIGITS: usize = 64;
/// Attribute types that have a name in a subject; all others are written as `OID.` and digits.
const ATTRIBUTES: [&str; 10] =
    ["CN", "serialNumber", "C", "L", "ST", "O", "OU", "DC", "UID", "emailAddress"];

/// Reads `client-cert` of a route that applies to `listener` (`None`: to all listeners).
pub(crate) fn read(
    table: &Table<'_>,
    listener: Option<usize>,
    listeners: &Listeners,
    notes: &mut Notes,
) -> Option<CertificateCondition> {
    let value = table.value("client-cert")?;
    let known = &listeners.listeners;
    let mut applies_to =
        known.iter().enumerate().filter(|(at, _)| listener.is_none_or(|only| only == *at));
    if !known.is_empty() && !applies_to.any(|(_, listener)| requests_certificates(listener)) {
        let what = "the listener of this route requests no client certificates, so the condition would have no effect";
        let note = Note::new(Kind::Conflict, table.key_place("client-cert"), what);
        notes.error(note.help(
            "add client-auth = \"optional\" and client-ca = \"clients-ca.pem\" to the listener's `tls`, \
             or remove `client-cert`",
        ));
    }
    if value.get_ref().as_table().is_none() {
        return Some(match table.is_true("client-cert", notes)? {
            true => CertificateCondition::Present,
            false => CertificateCondition::Absent,
        });
    }
    let table = table.open_table("client-cert", notes)?;
    let test = CertificateTest {
        subjects: read_texts(&table, "subject", parse_subject, notes),
        fingerprints: read_texts(&table, "sha256", parse_fingerprint, notes),
    };
    if table.value("subject").is_none() && table.value("sha256").is_none() {
        let note = Note::new(Kind::Missing, table.place.clone(), "the condition is empty");
        notes.error(note.allowed("subject, sha256 or both").help(
            "write client-cert = true for any certificate, or add subject = \"CN=bob,O=Example\"",
        ));
    }
    Some(CertificateCondition::Is(test))
}

/// Whether the listener requests client certificates.
fn requests_certificates(listener: &Listener) -> bool {
    listener.tls.as_ref().is_some_and(|tls| tls.client_auth != ClientAuth::Off)
}

fn read_texts(
    table: &Table<'_>,
    name: &str,
    parse: fn(&str) -> Result<String, ValueError>,
    notes: &mut Notes,
) -> Vec<String> {
    let Some(value) = table.value(name) else {
        return Vec::new();
    };
    if value.get_ref().as_array().is_some_and(|texts| texts.is_empty()) {
        let what = format!("`{name}` is empty: no certificate would match");
        let note = Note::new(Kind::Missing, value.span(), what);
        notes.error(note.help(format!("list at least one value, or remove `{name}`")));
    }
    let mut parsed = Vec::new();
    for text in table.texts(name, notes) {
        match parse(&text.text) {
            Ok(good) => parsed.push(good),
            Err(complaint) => notes.error(refused(name, &text, complaint)),
        }
    }
    parsed
}

/// A fingerprint in the form that servers receive: lower case, without colons.
fn parse_fingerprint(text: &str) -> Result<String, ValueError> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let what = match digits.chars().find(|c| !c.is_ascii_hexdigit()) {
        Some(odd) => format!("{odd:?} is not a hexadecimal digit"),
        None if digits.len() == FINGERPRINT_DIGITS => return Ok(digits.to_ascii_lowercase()),
        None => format!("{} hexadecimal digits instead of 64", digits.len()),
    };
    let help =
        "write the digits that `openssl x509 -in client.pem -noout -fingerprint -sha256` prints";
    Err(ValueError { what, help: help.to_owned() })
}

/// A subject in the form that is compared.
fn parse_subject(text: &str) -> Result<String, ValueError> {
    if text.is_empty() {
        let what = "a certificate without a subject can only be identified by `sha256`".to_owned();
        return Err(ValueError { what, help: "write sha256 = \"...\" instead".to_owned() });
    }
    let what = if text.len() > SUBJECT_BYTES_MAX {
        format!("{} bytes, but subjects are truncated to {SUBJECT_BYTES_MAX} bytes", text.len())
    } else if let Some(odd) = text.chars().find(|c| !matches!(c, ' '..='~')) {
        let mut bytes = [0; 4];
        let escaped: String =
            odd.encode_utf8(&mut bytes).bytes().map(|byte| format!("\\{byte:02x}")).collect();
        let odd = odd.escape_debug();
        let help = format!(
            "write {escaped} instead of {odd}, and put the string in single quotes, where TOML keeps \\"
        );
        return Err(ValueError { what: format!("{odd} must be escaped in a subject"), help });
    } else if let Some(odd) = attributes(text).into_iter().find(|part| !is_attribute(part)) {
        format!("{odd:?} is not of the form TYPE=value")
    } else {
        return Ok(text.to_owned());
    };
    let help = "write it as in X-Client-Cert-Subject, most specific attribute first: \"CN=bob,O=Example\"; usually \
                `openssl x509 -in client.pem -noout -subject -nameopt RFC2253` prints the same";
    Err(ValueError { what, help: help.to_owned() })
}

/// The parts between unescaped commas.
fn attributes(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        if byte == b',' && !escaped {
            parts.push(&text[start..at]);
            start = at + 1;
        }
        escaped = byte == b'\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

fn is_attribute(part: &str) -> bool {
    let Some((name, value)) = part.split_once('=') else {
        return false;
    };
    let is_digits = |digits: &str| {
        !digits.is_empty() && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let named = ATTRIBUTES.contains(&name) || name.strip_prefix("OID.").is_some_and(is_digits);
    named && is_value(value)
}

/// Whether every character that must be escaped is escaped (RFC 4514 section 2.4), including `=` and `#` at any
/// position.
fn is_value(value: &str) -> bool {
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        let sound = match byte {
            b'\\' => match bytes.next() {
                Some(b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' | b'#' | b'=') => true,
                Some(high) => {
                    let is_digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
                    is_digit(high) && bytes.next().is_some_and(is_digit)
                }
                None => false,
            },
            b'"' | b'+' | b';' | b'<' | b'>' | b'#' | b'=' => false,
            _ => true,
        };
        if !sound {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_is_accepted_only_in_the_form_of_certificates() {
        for good in [
            "CN=bob",
            "CN=bob,O=Example",
            r#"CN=Bob \"the\" B\, Jr.,OU=a b"#,
            r"OID.2a01=x,CN=caf\c3\a9\0d\0a,O=Example\, Inc.",
            r"CN=a\\,O=b",
            "CN=,O=x",
            "emailAddress=bob@example.com",
        ] {
            assert_eq!(parse_subject(good).ok().as_deref(), Some(good));
        }
        for bad in [
            "",
            "bob",
            "O = Example, CN = bob",
            "CN=bob, O=Example",
            "/O=Example/CN=bob",
            "cn=bob",
            "CN=a=b",
            "CN=bob+OU=x",
            "CN=café",
            r"CN=caf\C3\A9",
            r"CN=a\",
            "CN=bob,...",
            "CN=bob,",
            "OID.=x",
        ] {
            assert!(parse_subject(bad).is_err(), "{bad}");
        }
        assert!(parse_subject(&format!("CN={}", "a".repeat(509))).is_ok());
        assert!(parse_subject(&format!("CN={}", "a".repeat(510))).is_err());
    }

    #[test]
    fn fingerprint_is_accepted_in_any_case_with_or_without_colons() {
        let plain = "0a".repeat(32);
        for form in [plain.clone(), plain.to_ascii_uppercase(), vec!["0A"; 32].join(":")] {
            assert_eq!(parse_fingerprint(&form).ok(), Some(plain.clone()));
        }
        for bad in ["", &plain[1..], &format!("{plain}0"), &"0g".repeat(32), &"é".repeat(32)] {
            assert!(parse_fingerprint(bad).is_err(), "{bad}");
        }
    }
}
