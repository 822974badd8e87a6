//! The identity in a certificate: its subject and fingerprint.
//! In: DER of a certificate. Out: the subject as one line of text (RFC 4514), and SHA-256.
//! Never: outputs a byte that a header field cannot carry: bytes other than printable ASCII are escaped.
//! Limits: `SUBJECT_BYTES_MAX`; a longer subject is cut at the end of an attribute.
//! Invariant: the text of a subject that was cut or not read completely never equals that of a complete
//! subject.

use aws_lc_rs::digest;

use super::der::split_value;

/// Bytes of the text of a subject.
const SUBJECT_BYTES_MAX: usize = 512;
/// Bytes of a common name (RFC 5280 appendix A.1: 64 characters, of up to four bytes each).
const COMMON_NAME_BYTES_MAX: usize = 256;

/// The identity in a peer's certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerIdentity {
    /// The subject, most specific attribute first, e.g. `CN=client,O=Example`. It ends in `...` if it is
    /// incomplete.
    pub subject: String,
    /// The common name in the subject as encoded, if there is one; the most specific of several.
    pub common_name: Option<Box<[u8]>>,
    /// SHA-256 of the certificate's DER.
    pub fingerprint: [u8; 32],
}

impl PeerIdentity {
    pub(super) fn of(certificate_der: &[u8]) -> Self {
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest::digest(&digest::SHA256, certificate_der).as_ref());
        let der = rustls::pki_types::CertificateDer::from(certificate_der);
        let (subject, common_name) = webpki::EndEntityCert::try_from(&der)
            .map(|certificate| {
                (subject_text(certificate.subject()), common_name(certificate.subject()))
            })
            .unwrap_or_default();
        Self { subject, common_name, fingerprint }
    }

    /// The identity in the first certificate in `pem`; `None` if `pem` contains no certificate.
    #[must_use]
    pub fn of_pem(pem: &[u8]) -> Option<Self> {
        use rustls::pki_types::{CertificateDer, pem::PemObject};
        CertificateDer::from_pem_slice(pem).ok().map(|certificate| Self::of(&certificate))
    }

    /// The fingerprint as 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn fingerprint_hex(&self) -> String {
        let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble & 15)]);
        self.fingerprint.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
    }
}

/// The text of a Name, which is a sequence of sets of (type, value). The text has them in reverse order
/// (RFC 4514 section 2.1).
fn subject_text(sets: &[u8]) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut whole =
        for_each_attribute(sets, |oid, (_, value)| parts.push(attribute_text(oid, value)));
    let mut text = String::new();
    for part in parts.iter().rev() {
        let comma = if text.is_empty() { "" } else { "," };
        if text.len() + comma.len() + part.len() > SUBJECT_BYTES_MAX {
            whole = false;
            break;
        }
        text.push_str(comma);
        text.push_str(part);
    }
    if !whole {
        // The text of a longer name must not equal `CN=admin`, which a server may trust. Every attribute
        // contains `=`, so `...` cannot be one.
        text.push_str(if text.is_empty() { "..." } else { ",..." });
    }
    text
}

/// The text of a common name as it follows `CN=` in the text of a subject; `None` if its length is not
/// allowed in a certificate.
#[must_use]
pub fn common_name_text(common_name: &[u8]) -> Option<String> {
    let mut text = String::new();
    push_value(&mut text, common_name);
    (1..=COMMON_NAME_BYTES_MAX).contains(&common_name.len()).then_some(text)
}

/// The last CN of a Name whose length is allowed in a certificate.
fn common_name(sets: &[u8]) -> Option<Box<[u8]>> {
    let mut found = None;
    for_each_attribute(sets, |oid, (_, value)| {
        if oid == COMMON_NAME && value.len() <= COMMON_NAME_BYTES_MAX {
            found = Some(value.into());
        }
    });
    found
}

/// Calls `act` with the type of each attribute, and the tag and content of its value. Returns whether all of `sets` could be read.
pub(super) fn for_each_attribute(mut sets: &[u8], mut act: impl FnMut(&[u8], (u8, &[u8]))) -> bool {
    let mut whole = true;
    while let Some((0x31, set, rest)) = split_value(sets) {
        sets = rest;
        let mut set = set;
        while let Some((0x30, pair, rest)) = split_value(set) {
            set = rest;
            let attribute = split_value(pair)
                .filter(|(tag, ..)| *tag == 0x06)
                .and_then(|(_, oid, value)| Some((oid, split_value(value)?)));
            match attribute {
                Some((oid, (tag, value, rest))) => {
                    act(oid, (tag, value));
                    whole &= rest.is_empty();
                }
                None => whole = false,
            }
        }
        whole &= set.is_empty();
    }
    whole && sets.is_empty()
}

/// 2.5.4.3 in DER.
pub(super) const COMMON_NAME: &[u8] = &[0x55, 4, 3];

fn attribute_text(oid: &[u8], value: &[u8]) -> String {
    let name = match oid {
        COMMON_NAME => "CN",
        [0x55, 4, 5] => "serialNumber",
        [0x55, 4, 6] => "C",
        [0x55, 4, 7] => "L",
        [0x55, 4, 8] => "ST",
        [0x55, 4, 10] => "O",
        [0x55, 4, 11] => "OU",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25] => "DC",
        [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1] => "UID",
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1] => "emailAddress",
        _ => "",
    };
    let mut text = String::new();
    if name.is_empty() {
        text.push_str("OID.");
        oid.iter().for_each(|byte| push_hex(&mut text, *byte));
    } else {
        text.push_str(name);
    }
    text.push('=');
    push_value(&mut text, value);
    text
}

/// Appends an attribute's value (RFC 4514 section 2.4).
fn push_value(text: &mut String, value: &[u8]) {
    for byte in value {
        match byte {
            b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' | b'#' | b'=' => {
                text.push('\\');
                text.push(char::from(*byte));
            }
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => {
                text.push('\\');
                push_hex(text, *byte);
            }
        }
    }
}

fn push_hex(text: &mut String, byte: u8) {
    use core::fmt::Write;
    // Writing to a String cannot fail.
    let _ = write!(text, "{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(oid: &[u8], value: &[u8]) -> Vec<u8> {
        let mut inner = vec![0x06, oid.len() as u8];
        inner.extend(oid);
        inner.extend([0x0c, value.len() as u8]);
        inner.extend(value);
        let mut set = vec![0x31, inner.len() as u8 + 2, 0x30, inner.len() as u8];
        set.extend(inner);
        set
    }

    #[test]
    fn subject_text_is_most_specific_first_and_escaped() {
        let mut name = pair(&[0x55, 4, 10], b"Example, Inc.");
        name.extend(pair(&[0x55, 4, 3], "caf\u{e9}\r\n".as_bytes()));
        name.extend(pair(&[0x2a, 1], b"x"));
        assert_eq!(common_name(&name).as_deref(), Some("caf\u{e9}\r\n".as_bytes()));
        assert_eq!(subject_text(&name), "OID.2a01=x,CN=caf\\c3\\a9\\0d\\0a,O=Example\\, Inc.");
    }

    #[test]
    fn common_name_text_is_the_same_as_in_a_subject() {
        let text = |name: &[u8]| common_name_text(name);
        assert_eq!(text("caf\u{e9}, \r\n".as_bytes()).as_deref(), Some("caf\\c3\\a9\\, \\0d\\0a"));
        assert_eq!(text(&[b'a'; COMMON_NAME_BYTES_MAX]).map(|name| name.len()), Some(256));
        assert_eq!((text(b""), text(&[b'a'; COMMON_NAME_BYTES_MAX + 1])), (None, None));
    }

    #[test]
    fn truncated_or_very_long_names_give_the_readable_part() {
        let name = pair(&[0x55, 4, 3], b"client");
        for at in 0..name.len() {
            let wanted = if at == 0 { "" } else { "..." };
            assert_eq!(subject_text(&name[..at]), wanted, "cut at {at}");
        }
        let long = pair(&[0x55, 4, 3], &[b'a'; 100]).repeat(20);
        let text = subject_text(&long);
        assert!(text.len() <= SUBJECT_BYTES_MAX + 4 && text.ends_with("a,..."), "{text}");
    }

    #[test]
    fn text_of_a_longer_name_never_equals_that_of_a_shorter_one() {
        let long = pair(&[0x55, 4, 10], &[b'a'; 100]).repeat(6);
        let admin = pair(&[0x55, 4, 3], b"admin");
        assert_eq!(subject_text(&admin), "CN=admin");
        for before in
            [long, vec![0x31, 2, 0x30, 0], vec![0x31, 4, 0x30, 2, 0x06, 0], vec![0x31, 1, 9]]
        {
            let text = subject_text(&[before, admin.clone()].concat());
            assert!(text.starts_with("CN=admin,") && text.ends_with(",..."), "{text}");
        }
        let text = subject_text(&[admin, vec![0x30, 0]].concat());
        assert_eq!(text, "CN=admin,...");
    }
}
