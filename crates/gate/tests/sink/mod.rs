//! A sink without a protocol, which records the parts of a response.
//! In: the calls of `ResponseSink`. Out: what they stated; panics if they come in a wrong order.
//! Checks: the same response in the bytes of HTTP/1 has the same content.

use tidegate_wire::http1::{BodyFraming, HeadDecoder, ResponseLimits};
use tidegate_wire::message::{BodyLength, FieldName, RequestKind, ResponseSink, ResponseStorage};

/// The parts of one response.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The status; 0 before `begin`.
    pub status: u16,
    /// The fields, in order.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The length of the body, once stated.
    pub length: Option<BodyLength>,
    /// The protocols of `switch`.
    pub protocols: Vec<Vec<u8>>,
    /// Whether the head has ended.
    pub is_ended: bool,
    /// The content.
    pub content: Vec<u8>,
}

impl Recorded {
    /// The value of the first field with this name.
    pub fn find(&self, name: &str) -> Option<&[u8]> {
        let is_named = |(found, _): &&(String, Vec<u8>)| found.eq_ignore_ascii_case(name);
        self.fields.iter().find(is_named).map(|(_, value)| value.as_slice())
    }

    /// Checks that `bytes`, the same response for a client of HTTP/1, state the same, and that the encoder
    /// reported `framing` for it.
    pub fn check(&self, bytes: &[u8], is_head: bool, framing: BodyFraming) {
        assert!(self.is_ended);
        let request = RequestKind { is_head, upgrade_asked: true, ..RequestKind::default() };
        let mut storage = ResponseStorage::new();
        let mut decoder = HeadDecoder::default();
        let limits = ResponseLimits { head_bytes_max: usize::MAX, ..ResponseLimits::default() };
        let decoded = decoder.decode_response(bytes, &limits, request, &mut storage);
        let Ok(Some((head, head_bytes))) = decoded else { panic!("{decoded:?}") };
        assert_eq!(head.status, self.status);
        let is_shared = |id: FieldName| {
            !matches!(
                id,
                FieldName::Connection
                    | FieldName::ContentLength
                    | FieldName::TransferEncoding
                    | FieldName::Upgrade
            )
        };
        let encoded = head.fields().filter(|field| is_shared(field.id));
        let recorded = self.fields.iter().filter(|(name, _)| {
            assert_ne!(FieldName::classify(name.as_bytes()), FieldName::Connection);
            is_shared(FieldName::classify(name.as_bytes()))
        });
        assert!(
            encoded
                .map(|field| (field.name, field.value))
                .eq(recorded.map(|(name, value)| (name.as_str(), value.as_slice()))),
            "{self:?} is {}",
            String::from_utf8_lossy(bytes)
        );
        let stated = self.find("content-length").map(|value| {
            String::from_utf8_lossy(value).parse::<u64>().expect("Content-Length is a number")
        });
        let wanted = match self.length {
            None => BodyFraming::None,
            Some(BodyLength::None) => BodyFraming::None,
            Some(BodyLength::Length(_)) => BodyFraming::Length,
            Some(BodyLength::Streamed) if framing == BodyFraming::UntilClose => framing,
            Some(BodyLength::Streamed) => BodyFraming::Chunked,
            Some(BodyLength::UntilClose) => BodyFraming::UntilClose,
        };
        assert_eq!(framing, wanted);
        assert_eq!(self.length.is_none(), self.status < 200, "a final response has one length");
        match self.length {
            Some(BodyLength::Length(length)) => {
                assert_eq!((head.content_length, stated), (Some(length), None));
            }
            _ => assert_eq!(head.content_length, stated),
        }
        let upgrades = head.fields().filter(|field| field.id == FieldName::Upgrade);
        assert!(upgrades.map(|field| field.value).eq(self.protocols.iter().map(Vec::as_slice)));
        assert_eq!(&bytes[head_bytes..], self.content, "the content");
    }
}

impl ResponseSink for Recorded {
    fn begin(&mut self, status: u16, _: &str) {
        assert_eq!(self.status, 0, "`begin` is the first call");
        self.status = status;
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        assert!(self.status > 0 && !self.is_ended, "{name}");
        self.fields.push((name.to_owned(), value.to_vec()));
    }

    fn field_with(&mut self, name: &str, compose: impl FnOnce(&mut Vec<u8>)) {
        let mut value = Vec::new();
        compose(&mut value);
        if !value.is_empty() {
            self.field(name, &value);
        }
    }

    fn length(&mut self, length: BodyLength) {
        assert!(self.status >= 200 && !self.is_ended && self.length.is_none());
        self.length = Some(length);
    }

    fn takes_trailers(&self) -> bool {
        true
    }

    fn switch<'v>(&mut self, protocols: impl Iterator<Item = &'v [u8]>) {
        assert!(matches!(self.status, 101 | 426) && !self.is_ended);
        self.protocols.extend(protocols.map(<[u8]>::to_vec));
    }

    fn end(&mut self) {
        assert!(self.status > 0 && !self.is_ended);
        self.is_ended = true;
    }

    fn content_with(&mut self, compose: impl FnOnce(&mut Vec<u8>)) {
        assert!(self.is_ended && self.content.is_empty(), "`content` is the last call");
        compose(&mut self.content);
        assert_eq!(self.length, Some(BodyLength::Length(self.content.len() as u64)));
    }
}
