//! Sends the alerts that the standard requires for invalid records that rustls rejects without an alert or
//! accepts.
//! In: the AEAD of a TLS 1.3 suite; the first records of a connection; faults. Out: the same AEAD with the
//! checks of RFC 8446 sections 5.2 and 5.4; alert records in plaintext.
//! Never: changes a record, or writes an alert when records to the peer are protected.

use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, Error, PeerMisbehaved, SupportedCipherSuite,
    Tls13CipherSuite,
};

use super::fault::Fault;

/// Content types of records (RFC 8446 section 5.1).
pub(super) const ALERT: u8 = 21;
pub(super) const HANDSHAKE: u8 = 22;
/// Bytes of the header of a record: type, version, length.
pub(super) const HEADER_BYTES: usize = 5;
/// Plain bytes of one record.
pub(super) const CONTENT_BYTES_MAX: usize = 16_384;
/// Bytes that protection may add to the content of a TLS 1.3 record.
const EXPANSION_BYTES_MAX: usize = 256;

/// The AEAD of a suite, with the checks of this module on received records.
pub(super) struct CheckedAead(&'static dyn Tls13AeadAlgorithm);

impl CheckedAead {
    pub(super) const fn of(suite: &Tls13CipherSuite) -> Self {
        Self(suite.aead_alg)
    }
}

/// `suite` with `aead` instead of its own AEAD, and without QUIC.
pub(super) const fn with_aead(
    suite: &Tls13CipherSuite,
    aead: &'static CheckedAead,
) -> Tls13CipherSuite {
    let common = rustls::crypto::CipherSuiteCommon {
        suite: suite.common.suite,
        hash_provider: suite.common.hash_provider,
        confidentiality_limit: suite.common.confidentiality_limit,
    };
    Tls13CipherSuite { common, hkdf_provider: suite.hkdf_provider, aead_alg: aead, quic: None }
}

/// The TLS 1.3 suite in `suite`. Fails the build if `suite` is not a TLS 1.3 suite.
pub(super) const fn tls13(suite: &SupportedCipherSuite) -> &'static Tls13CipherSuite {
    match suite {
        SupportedCipherSuite::Tls13(suite) => suite,
        SupportedCipherSuite::Tls12(_) => panic!("not a suite of TLS 1.3"),
    }
}

impl Tls13AeadAlgorithm for CheckedAead {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        self.0.encrypter(key, iv)
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(CheckedDecrypter(self.0.decrypter(key, iv)))
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }

    fn fips(&self) -> bool {
        self.0.fips()
    }
}

struct CheckedDecrypter(Box<dyn MessageDecrypter>);

impl MessageDecrypter for CheckedDecrypter {
    fn decrypt<'a>(
        &mut self,
        record: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        // RFC 8446 section 5.2: record_overflow, whether or not the record can be authenticated.
        if record.payload.len() > CONTENT_BYTES_MAX + EXPANSION_BYTES_MAX {
            return Err(Error::PeerSentOversizedRecord);
        }
        // RFC 8446 section 5.4: unexpected_message for a record without a content type. rustls
        // sends no alert for this error. It does send unexpected_message for the error of a protected
        // change_cipher_spec, so that error is returned instead.
        self.0.decrypt(record, sequence).map_err(|error| match error {
            Error::PeerMisbehaved(PeerMisbehaved::IllegalTlsInnerPlaintext) => {
                PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into()
            }
            error => error,
        })
    }
}

/// Follows the headers of received records until records are protected. The headers are read before rustls
/// gets the records, because rustls moves the parts of a handshake message together within the received bytes.
#[derive(Default, Debug)]
pub(super) struct PlainRecords {
    /// The content type of the current record.
    kind: u8,
    /// Bytes of the current header that have been received; 0 while the content is being received.
    header_bytes: u8,
    /// While the header is being received: the part of the length that has arrived. After that: the bytes of
    /// content that are still missing.
    left: u16,
}

impl PlainRecords {
    /// Takes the next bytes, and passes the content of handshake records to `pass_content`. Returns whether the
    /// bytes contain the header of a handshake record that exceeds the maximum length of an unprotected record
    /// (RFC 8446 section 5.1).
    pub(super) fn find_overlong(
        &mut self,
        mut bytes: &[u8],
        mut pass_content: impl FnMut(&[u8]),
    ) -> bool {
        while let Some((&byte, rest)) = bytes.split_first() {
            if self.header_bytes == 0 && self.left > 0 {
                let skipped = usize::from(self.left).min(bytes.len());
                self.left -= skipped as u16;
                let (content, rest) = bytes.split_at(skipped);
                if self.kind == HANDSHAKE {
                    pass_content(content);
                }
                bytes = rest;
                continue;
            }
            bytes = rest;
            self.header_bytes += 1;
            match self.header_bytes {
                1 => self.kind = byte,
                4 => self.left = u16::from(byte) << 8,
                5 => {
                    self.header_bytes = 0;
                    self.left |= u16::from(byte);
                    if self.kind == HANDSHAKE && usize::from(self.left) > CONTENT_BYTES_MAX {
                        return true;
                    }
                }
                _ => {}
            }
        }
        false
    }
}

/// Whether one of the unprotected records in `records` is an alert.
pub(super) fn has_alert(mut records: &[u8]) -> bool {
    while let Some(&[kind, _, _, high, low]) = records.first_chunk::<HEADER_BYTES>() {
        if kind == ALERT {
            return true;
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        records = records.get(HEADER_BYTES + length..).unwrap_or_default();
    }
    false
}

/// Appends a fatal alert as a record without protection (RFC 8446 section 6).
pub(super) fn append_alert(alert: AlertDescription, out: &mut Vec<u8>) {
    const FATAL: u8 = 2;
    out.extend_from_slice(&[ALERT, 3, 3, 0, 2, FATAL, u8::from(alert)]);
}

/// The alert for a fault; `None` if the peer does not speak TLS or has ended the connection itself.
pub(super) fn alert_for(fault: Fault) -> Option<AlertDescription> {
    Some(match fault {
        Fault::PlainHttp | Fault::NotTls | Fault::Alert(_) => return None,
        // rustls sends no alert for a handshake message that is longer than 64 KiB.
        Fault::Oversized | Fault::Malformed => AlertDescription::DecodeError,
        Fault::Misbehaved => AlertDescription::UnexpectedMessage,
        Fault::Incompatible => AlertDescription::HandshakeFailure,
        Fault::NoProtocol => AlertDescription::NoApplicationProtocol,
        Fault::NameUnknown => AlertDescription::UnrecognisedName,
        Fault::Decrypt => AlertDescription::BadRecordMac,
        Fault::Certificate(_) => AlertDescription::BadCertificate,
        Fault::Exhausted | Fault::Bug => AlertDescription::InternalError,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlong_handshake_record_is_found_in_any_pieces() {
        let record = |kind: u8, length: usize| {
            let [high, low] = (length as u16).to_be_bytes();
            [&[kind, 3, 1, high, low][..], &vec![HANDSHAKE; length]].concat()
        };
        let [short, longest, overlong] =
            [1, 16_384, 16_385].map(|length| record(HANDSHAKE, length));
        let empty = record(HANDSHAKE, 0);
        for (records, content_bytes, expected) in [
            ([&short[..], &empty, &longest, &short].concat(), 16_386, false),
            ([&short[..], &empty, &longest, &overlong].concat(), 16_385, true),
            // Protected data that follows the ClientHello: early data.
            ([&short[..], &record(23, 16_640), &short].concat(), 2, false),
        ] {
            for size in [1, 4, 5, 6, 1000, records.len()] {
                let (mut plain, mut bytes) = (PlainRecords::default(), 0);
                let found = records
                    .chunks(size)
                    .any(|part| plain.find_overlong(part, |content| bytes += content.len()));
                assert_eq!(found, expected, "pieces of {size}");
                assert_eq!(bytes, content_bytes, "pieces of {size}");
            }
        }
    }
}
