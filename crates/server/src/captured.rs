//! The parts of the client's certificate and of the response that a line of the access log contains.
//! In: the client's certificate, when its request begins; the head of the response, as the client gets it. Out: the subject,
//! and the values of the captured fields and cookies.
//! Never: reads a head if the log captures nothing of responses.
//! Limits: `FIELD_BYTES_MAX` bytes of each value; the settings limit the numbers of fields and cookies.

use tidegate_config::model::CaptureNames;
use tidegate_gate::access::{Captures, FIELD_BYTES_MAX, cut};
use tidegate_gate::forward::ClientCertificate;

/// The captured values of one request.
#[derive(Default)]
pub(crate) struct Captured {
    /// The subject, and then the values of the response.
    text: Vec<u8>,
    /// Where the subject ends in `text`.
    subject_end: u16,
    /// Where each field of the response, and then each cookie, ends in `text`, counted from the end of the subject.
    ends: Vec<u16>,
}

/// Capacity of `Captured::text` that a free record keeps.
const KEPT_BYTES_MAX: usize = 1024;
/// Maximum number of bytes of `Captured::text`: its ends fit 16 bits.
const TEXT_BYTES_MAX: usize = (1 + 16 + 4) * FIELD_BYTES_MAX;
const _: () = assert!(TEXT_BYTES_MAX <= u16::MAX as usize);

impl Captured {
    /// No values.
    pub(crate) const fn new() -> Self {
        Self { text: Vec::new(), subject_end: 0, ends: Vec::new() }
    }

    /// Removes the values. The buffers are kept.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.text.shrink_to(KEPT_BYTES_MAX);
        self.subject_end = 0;
        self.ends.clear();
    }

    /// Copies the subject of the client's certificate. Called before `note_response`.
    pub(crate) fn note_client(&mut self, certificate: Option<ClientCertificate<'_>>) {
        let name = match certificate {
            Some(ClientCertificate::Verified { subject, .. }) => subject,
            Some(ClientCertificate::VerifiedInFront { common_name }) => common_name,
            None => return,
        };
        self.text.extend_from_slice(cut(name, FIELD_BYTES_MAX).as_bytes());
        self.subject_end = self.text.len() as u16;
    }

    /// Copies the values of a response with these fields. Of several fields with a name, the first one counts; of several
    /// Set-Cookie fields for a cookie the last one, as in clients.
    pub(crate) fn note_response<'f>(
        &mut self,
        names: &CaptureNames,
        fields: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone,
    ) {
        let start = usize::from(self.subject_end);
        self.text.truncate(start);
        self.ends.clear();
        let mut put = |value: Option<&[u8]>| {
            let value = value.unwrap_or_default();
            self.text.extend_from_slice(&value[..value.len().min(FIELD_BYTES_MAX)]);
            self.ends.push((self.text.len() - start) as u16);
        };
        for name in &names.response_headers {
            let mut fields = fields.clone();
            put(fields.find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes())).map(|(_, v)| v));
        }
        for name in &names.response_cookies {
            let set = fields.clone().filter(|(own, _)| own.eq_ignore_ascii_case(b"set-cookie"));
            put(set.filter_map(|(_, value)| cookie_value(value, name.as_bytes())).last());
        }
    }

    /// The subject of the client's certificate; empty if there is none.
    pub(crate) fn subject(&self) -> &[u8] {
        self.text.get(..usize::from(self.subject_end)).unwrap_or_default()
    }

    /// The values of the response.
    pub(crate) fn of_response<'a>(&'a self, names: &'a CaptureNames) -> Captures<'a> {
        Captures {
            names: &names.response_headers,
            cookies: &names.response_cookies,
            bytes: self.text.get(usize::from(self.subject_end)..).unwrap_or_default(),
            ends: &self.ends,
        }
    }
}

/// The fields of an encoded head, up to the empty line.
pub(crate) fn head_fields(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> + Clone {
    let lines = head.split(|&byte| byte == b'\n').map(|line| line.trim_ascii_end());
    lines.skip(1).take_while(|line| !line.is_empty()).filter_map(|line| {
        let colon = line.iter().position(|&byte| byte == b':')?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

/// The value of a cookie in a Set-Cookie field (RFC 6265 section 5.2); `None` if the field sets another cookie.
fn cookie_value<'f>(field: &'f [u8], name: &[u8]) -> Option<&'f [u8]> {
    let pair = field.split(|&byte| byte == b';').next()?;
    let equals = pair.iter().position(|&byte| byte == b'=')?;
    (pair[..equals].trim_ascii() == name).then(|| pair[equals + 1..].trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> CaptureNames {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        CaptureNames {
            response_headers: list(&["content-type", "x-none", "x-long"]),
            response_cookies: list(&["sid", "lang"]),
            client_certificate: true,
            ..CaptureNames::default()
        }
    }

    #[test]
    fn values_of_a_head_are_found_by_their_names() {
        let long = "y".repeat(FIELD_BYTES_MAX + 1);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: a:b \r\nContent-Type: c\r\nX-Long: {long}\r\n\
             Set-Cookie: sid=1; Path=/\r\nSET-COOKIE: sid = 2;Secure\r\nSet-Cookie: Lang=de\r\nSet-Cookie: x\r\n\
             \r\nX-None: body\r\n"
        );
        let mut captured = Captured::new();
        captured
            .note_client(Some(ClientCertificate::Verified { subject: "CN=a", fingerprint: "" }));
        captured.note_response(&names(), head_fields(head.as_bytes()));
        assert_eq!(captured.subject(), b"CN=a");
        let expected = [b"a:b", &long.as_bytes()[..FIELD_BYTES_MAX], b"2"].concat();
        assert_eq!(captured.of_response(&names()).bytes, expected);
        let long_end = 3 + FIELD_BYTES_MAX as u16;
        assert_eq!(captured.ends, [3, 3, long_end, long_end + 1, long_end + 1]);
        captured.clear();
        assert_eq!((captured.subject(), captured.ends.len()), (&b""[..], 0));
        captured.note_response(&names(), head_fields(b"HTTP/1.1 204 No Content\r\n\r\n"));
        assert_eq!(captured.ends, [0; 5]);
    }

    #[test]
    fn certificate_that_a_proxy_has_verified_is_named_by_its_common_name() {
        let mut captured = Captured::new();
        captured.note_client(None);
        assert_eq!(captured.subject(), b"");
        let name = "b".repeat(FIELD_BYTES_MAX + 1);
        captured.note_client(Some(ClientCertificate::VerifiedInFront { common_name: &name }));
        assert_eq!(captured.subject(), &name.as_bytes()[..FIELD_BYTES_MAX]);
    }
}
