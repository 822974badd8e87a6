//! Reads `client-cert` of a route.
//! In: the file's table, the listeners it may name. Out: a checked condition.
//! Never: takes a subject that no certificate's text can equal for its form (RFC 4514 as servers are told it).
//! Limits: `SUBJECT_BYTES_MAX`; a fingerprint has `FINGERPRINT_DIGITS` digits.
//! Invariant: there is a condition only where some listener asks for client certificates, and it asks for
//! something.

use crate::listeners::{Listeners, refused};
use crate::model::{CertificateCondition, CertificateTest, ClientAuth, Listener};
use crate::pattern::Complaint;
use crate::report::{Kind, Note, Notes};
use crate::table::Table;

/// Bytes of a subject's text, as servers are told it.
const SUBJECT_BYTES_MAX: usize = 512;
/// Hexadecimal digits of SHA-256.
const FINGERPRINT_DIGITS: usize = 64;
/// Types of attributes that have a name in a subject's text; all others are `OID.` and digits.
const ATTRIBUTES: [&str; 10] =
    ["CN", "serialNumber", "C", "L", "ST", "O", "OU", "DC", "UID", "emailAddress"];

/// `client-cert` of a route for `listener` (`None`: all of them).
pub(crate) fn read(
    table: &Table<'_>,
    listener: Option<usize>,
    listeners: &Listeners,
    notes: &mut Notes,
) -> Option<CertificateCondition> {
    let value = table.value("client-cert")?;
    let known = &listeners.listeners;
    let mut held_for =
        known.iter().enumerate().filter(|(at, _)| listener.is_none_or(|only| only == *at));
    if !known.is_empty() && !held_for.any(|(_, listener)| asks(listener)) {
        let what = "its listener asks for no client certificates, so this would decide nothing";
        let note = Note::new(Kind::Conflict, table.key_place("client-cert"), what);
        notes.error(note.mend(
            "add client-auth = \"optional\" and client-ca = \"clients-ca.pem\" to the listener's `tls`, \
             or leave it out",
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
        let note = Note::new(Kind::Missing, table.place.clone(), "the condition asks for nothing");
        notes.error(note.allowed("subject, sha256 or both").mend(
            "write client-cert = true for any certificate, or add subject = \"CN=bob,O=Example\"",
        ));
    }
    Some(CertificateCondition::Is(test))
}

/// Whether clients may show certificates there.
fn asks(listener: &Listener) -> bool {
    listener.tls.as_ref().is_some_and(|tls| tls.client_auth != ClientAuth::Off)
}

fn read_texts(
    table: &Table<'_>,
    name: &str,
    parse: fn(&str) -> Result<String, Complaint>,
    notes: &mut Notes,
) -> Vec<String> {
    let Some(value) = table.value(name) else {
        return Vec::new();
    };
    if value.get_ref().as_array().is_some_and(|texts| texts.is_empty()) {
        let what = format!("`{name}` is empty: no certificate would match");
        let note = Note::new(Kind::Missing, value.span(), what);
        notes.error(note.mend(format!("name one at least, or leave `{name}` out")));
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

/// A fingerprint as servers are told it: lower case, without colons.
fn parse_fingerprint(text: &str) -> Result<String, Complaint> {
    let digits: String = text.chars().filter(|c| *c != ':').collect();
    let what = match digits.chars().find(|c| !c.is_ascii_hexdigit()) {
        Some(odd) => format!("{odd:?} is no hexadecimal digit"),
        None if digits.len() == FINGERPRINT_DIGITS => return Ok(digits.to_ascii_lowercase()),
        None => format!("it has {} hexadecimal digits, SHA-256 has 64", digits.len()),
    };
    let mend =
        "write the digits that `openssl x509 -in client.pem -noout -fingerprint -sha256` prints";
    Err(Complaint { what, mend: mend.to_owned() })
}

/// A subject in the form in which it is compared.
fn parse_subject(text: &str) -> Result<String, Complaint> {
    if text.is_empty() {
        let what = "certificates without a subject are told apart by `sha256` alone".to_owned();
        return Err(Complaint { what, mend: "write sha256 = \"...\" instead".to_owned() });
    }
    let what = if text.len() > SUBJECT_BYTES_MAX {
        format!("it has {} bytes, and longer ones than {SUBJECT_BYTES_MAX} are cut", text.len())
    } else if let Some(odd) = text.chars().find(|c| !matches!(c, ' '..='~')) {
        let mut bytes = [0; 4];
        let escaped: String =
            odd.encode_utf8(&mut bytes).bytes().map(|byte| format!("\\{byte:02x}")).collect();
        let odd = odd.escape_debug();
        let mend = format!("write {escaped} for {odd}, in single quotes: TOML keeps \\ there");
        return Err(Complaint { what: format!("{odd} is escaped in subjects"), mend });
    } else if let Some(odd) = attributes(text).into_iter().find(|part| !is_attribute(part)) {
        format!("{odd:?} is no TYPE=value as subjects are written")
    } else {
        return Ok(text.to_owned());
    };
    let mend = "write it as X-Client-Cert-Subject says it, and as `openssl x509 -in client.pem -noout \
                -subject -nameopt RFC2253` mostly does: \"CN=bob,O=Example\", most specific first";
    Err(Complaint { what, mend: mend.to_owned() })
}

/// The parts between commas that are not escaped.
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

/// Whether what must be escaped is (RFC 4514 section 2.4), `=` and `#` included wherever they stand.
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
    fn a_subject_is_taken_in_the_one_form_that_certificates_have() {
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
    fn a_fingerprint_is_taken_in_any_case_with_and_without_colons() {
        let plain = "0a".repeat(32);
        for form in [plain.clone(), plain.to_ascii_uppercase(), vec!["0A"; 32].join(":")] {
            assert_eq!(parse_fingerprint(&form).ok(), Some(plain.clone()));
        }
        for bad in ["", &plain[1..], &format!("{plain}0"), &"0g".repeat(32), &"é".repeat(32)] {
            assert!(parse_fingerprint(bad).is_err(), "{bad}");
        }
    }
}
