//! The names in a client's certificate, by which operators list certificates with fewer rights.
//! In: DER of a certificate that was verified. Out: its common names and DNS names.
//! Never: leaves out a common name or DNS name: if one cannot be read, no names are returned.
//! Limits: `COMMON_NAME_CHARS_MAX`, `DNS_NAME_BYTES_MAX`.

use super::der::split_value;
use super::identity::{COMMON_NAME, for_each_attribute};

/// Characters of a common name (RFC 5280 appendix A.1).
const COMMON_NAME_CHARS_MAX: usize = 64;
/// Bytes of a DNS name (RFC 1035 section 2.3.4), as text without the final dot.
const DNS_NAME_BYTES_MAX: usize = 253;
/// Bytes of a label of a DNS name.
const LABEL_BYTES_MAX: usize = 63;

/// Tags of DER values.
const BOOLEAN: u8 = 0x01;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const T61_STRING: u8 = 0x14;
const IA5_STRING: u8 = 0x16;
/// The extensions in a certificate (RFC 5280 section 4.1).
const EXTENSIONS: u8 = 0xa3;
/// 2.5.29.17 in DER.
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 29, 17];
/// A DNS name among the alternative names (RFC 5280 section 4.2.1.6).
const DNS_NAME: u8 = 0x82;
/// The other kinds: in their order otherName, rfc822Name, x400Address, directoryName, ediPartyName, URI, iPAddress and registeredID.
const OTHER_NAMES: [u8; 8] = [0xa0, 0x81, 0xa3, 0xa4, 0xa5, 0x86, 0x87, 0x88];

/// The common names and DNS names in a certificate, as operators list them. `None` if it has names that cannot be read.
pub(super) fn names_of(certificate_der: &[u8]) -> Option<Vec<String>> {
    let der = rustls::pki_types::CertificateDer::from(certificate_der);
    let certificate = webpki::EndEntityCert::try_from(&der).ok()?;
    let mut names = Vec::new();
    read_common_names(certificate.subject(), &mut names)?;
    if let Some(alternatives) = find_alternatives(certificate_der)? {
        read_dns_names(alternatives, &mut names)?;
    }
    Some(names)
}

/// Adds the common names of a Name.
fn read_common_names(subject: &[u8], names: &mut Vec<String>) -> Option<()> {
    let mut is_readable = true;
    let is_whole = for_each_attribute(subject, |oid, (tag, value)| {
        if oid == COMMON_NAME {
            match common_name(tag, value) {
                Some(name) => names.push(name.to_owned()),
                None => is_readable = false,
            }
        }
    });
    (is_whole && is_readable).then_some(())
}

/// The text of a common name. In the other kinds of strings, such as BMPString, a character takes several bytes: as UTF-8, `ab` would
/// be a string of four characters, two of them NUL.
fn common_name(tag: u8, value: &[u8]) -> Option<&str> {
    let is_allowed = match tag {
        UTF8_STRING => true,
        PRINTABLE_STRING | IA5_STRING | T61_STRING => value.is_ascii(),
        _ => false,
    };
    let name = core::str::from_utf8(value).ok().filter(|_| is_allowed)?;
    let is_length = (1..=COMMON_NAME_CHARS_MAX).contains(&name.chars().count());
    (is_length && !name.contains(char::is_control)).then_some(name)
}

/// The content of the extension with alternative names; `Some(None)`: there is none. `None`: the certificate cannot be read.
fn find_alternatives(certificate_der: &[u8]) -> Option<Option<&[u8]>> {
    let (_, certificate, _) = split_value(certificate_der)?;
    let (_, mut fields, _) = split_value(certificate)?;
    let mut found = None;
    while !fields.is_empty() {
        let (tag, content, rest) = split_value(fields)?;
        fields = rest;
        if tag != EXTENSIONS {
            continue;
        }
        let mut extensions = whole_value(content, SEQUENCE)?;
        while !extensions.is_empty() {
            let (tag, extension, rest) = split_value(extensions)?;
            extensions = rest;
            let (oid_tag, oid, value) = split_value(extension)?;
            if (tag, oid_tag) != (SEQUENCE, OBJECT_IDENTIFIER) {
                return None;
            }
            if oid != SUBJECT_ALT_NAME {
                continue;
            }
            let value = match split_value(value)? {
                (BOOLEAN, _, value) => value,
                _ => value,
            };
            if found.replace(whole_value(value, OCTET_STRING)?).is_some() {
                return None;
            }
        }
    }
    Some(found)
}

/// Adds the DNS names among alternative names. Those of other kinds are not listed by operators.
fn read_dns_names(alternatives: &[u8], names: &mut Vec<String>) -> Option<()> {
    let mut alternatives = whole_value(alternatives, SEQUENCE)?;
    while !alternatives.is_empty() {
        let (tag, value, rest) = split_value(alternatives)?;
        alternatives = rest;
        match tag {
            DNS_NAME => names.push(dns_name(value)?.to_owned()),
            _ if OTHER_NAMES.contains(&tag) => {}
            _ => return None,
        }
    }
    Some(())
}

/// A DNS name or wildcard name without the final dot.
fn dns_name(value: &[u8]) -> Option<&str> {
    let name = core::str::from_utf8(value).ok()?;
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let is_name = name.strip_prefix("*.").unwrap_or(name).split('.').all(is_label);
    (is_name && name.len() <= DNS_NAME_BYTES_MAX).then_some(name)
}

/// The content of the value, if it has this tag and nothing follows.
fn whole_value(der: &[u8], wanted: u8) -> Option<&[u8]> {
    match split_value(der)? {
        (tag, content, []) if tag == wanted => Some(content),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut der = vec![tag, content.len() as u8];
        der.extend(content);
        der
    }

    #[test]
    fn common_name_is_read_from_the_kinds_of_strings_that_hold_its_text() {
        for (tag, text, name) in [
            (UTF8_STRING, "caf\u{e9}".as_bytes(), Some("caf\u{e9}")),
            (PRINTABLE_STRING, b"bob", Some("bob")),
            (IA5_STRING, b"bob", Some("bob")),
            (T61_STRING, b"bob", Some("bob")),
            (T61_STRING, "caf\u{e9}".as_bytes(), None),
            (PRINTABLE_STRING, "caf\u{e9}".as_bytes(), None),
            (UTF8_STRING, b"caf\xe9", None),
            (UTF8_STRING, b"bob\0", None),
            (UTF8_STRING, b"", None),
            (UTF8_STRING, &[b'a'; 65], None),
            // BMPString and UniversalString.
            (0x1e, b"\0b\0o\0b", None),
            (0x1e, b"bobb", None),
            (0x1c, b"\0\0\0b", None),
        ] {
            assert_eq!(common_name(tag, text), name, "{tag}: {text:?}");
        }
    }

    #[test]
    fn dns_names_are_read_to_the_end_of_the_alternative_names_or_not_at_all() {
        let read = |parts: &[Vec<u8>]| {
            let mut names = Vec::new();
            read_dns_names(&value(SEQUENCE, &parts.concat()), &mut names).map(|()| names)
        };
        let dns = |name: &str| value(DNS_NAME, name.as_bytes());
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let others = OTHER_NAMES.map(|tag| value(tag, b"x")).concat();
        assert_eq!(read(&[]), names(&[]));
        assert_eq!(
            read(&[dns("A.example."), others, dns("*.b_1.example")]),
            names(&["A.example", "*.b_1.example"])
        );
        let long = format!("{0}.{0}.{0}.{0}", "a".repeat(63));
        for odd in
            ["", ".", "a..b", "a.example..", "a*.b", "*", "a b", "a\0", &long, &"a".repeat(64)]
        {
            assert_eq!(read(&[dns("a.example"), dns(odd)]), None, "{odd:?}");
        }
        for odd in [value(0x89, b"x"), vec![DNS_NAME, 2, b'a'], vec![0x1f, 0]] {
            assert_eq!(read(&[dns("a.example"), odd.clone()]), None, "{odd:?}");
        }
        let trailing = [value(SEQUENCE, &dns("a.example")), dns("b.example")].concat();
        assert_eq!(read_dns_names(&trailing, &mut Vec::new()), None);
    }

    #[test]
    fn alternative_names_are_found_among_the_extensions_of_a_certificate() {
        let key = rcgen::KeyPair::generate().unwrap();
        for names in [&[][..], &["a.example"], &["a.example", "*.b.example", "127.0.0.1"]] {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let mut params = rcgen::CertificateParams::new(names.clone()).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(rcgen::DnType::CommonName, "bob");
            params.is_ca = rcgen::IsCa::ExplicitNoCa;
            let der = params.self_signed(&key).unwrap().der().to_vec();
            let wanted = names.iter().filter(|name| !name.starts_with('1')).map(String::as_str);
            let wanted: Vec<&str> = ["bob"].into_iter().chain(wanted).collect();
            assert_eq!(names_of(&der).unwrap(), wanted);
            assert!((0..der.len()).all(|at| names_of(&der[..at]).is_none()));
        }
    }
}
