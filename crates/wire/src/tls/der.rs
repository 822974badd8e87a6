//! Reads parts of certificates that rustls does not expose: DER values, and the end of validity.
//! In: DER (X.690). Out: tag, content and remaining bytes; seconds since 1970.
//! Never: verifies a certificate; callers that rely on its content must have verified it.

/// Splits off the first DER value: its tag, its content, and the remaining bytes.
pub(super) fn split_value(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81 => (usize::from(*rest.first()?), rest.get(1..)?),
        0x83 => {
            let [high, middle, low, ..] = *rest else { return None };
            (u32::from_be_bytes([0, high, middle, low]) as usize, rest.get(3..)?)
        }
        0x82 => (usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?])), rest.get(2..)?),
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The end of a certificate's validity (RFC 5280 section 4.1.2.5), in seconds since 1970; `None` if it cannot
/// be read.
pub(super) fn read_not_after(certificate: &[u8]) -> Option<u64> {
    let (_, certificate, _) = split_value(certificate)?;
    let (_, mut fields, _) = split_value(certificate)?;
    // An optional version, then serial number, signature algorithm and issuer.
    if let Some((0xa0, _, rest)) = split_value(fields) {
        fields = rest;
    }
    for _ in 0..3 {
        fields = split_value(fields)?.2;
    }
    let (_, validity, _) = split_value(fields)?;
    let (_, _, not_after) = split_value(validity)?;
    let (tag, time, _) = split_value(not_after)?;
    unix_seconds(tag, time)
}

/// The subject of a certificate (RFC 5280 section 4.1.2.6): the content of the DER value; `None` if it cannot be read.
pub(super) fn read_subject(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = split_value(certificate)?;
    let (_, mut fields, _) = split_value(certificate)?;
    // An optional version, then serial number, signature algorithm, issuer and validity.
    if let Some((0xa0, _, rest)) = split_value(fields) {
        fields = rest;
    }
    for _ in 0..4 {
        fields = split_value(fields)?.2;
    }
    let (_, subject, _) = split_value(fields)?;
    Some(subject)
}

/// The time at which a revocation list was issued (RFC 5280 section 5.1.2.4), in seconds since 1970, and the content of its
/// issuer; `None` if they cannot be read.
pub(super) fn read_list_head(list: &[u8]) -> Option<(u64, &[u8])> {
    const INTEGER: u8 = 0x02;
    let (_, list, _) = split_value(list)?;
    let (_, mut fields, _) = split_value(list)?;
    // An optional version, then the signature algorithm, the issuer and the time.
    if let Some((INTEGER, _, rest)) = split_value(fields) {
        fields = rest;
    }
    let (_, _, fields) = split_value(fields)?;
    let (_, issuer, fields) = split_value(fields)?;
    let (tag, time, _) = split_value(fields)?;
    Some((unix_seconds(tag, time)?, issuer))
}

/// Whether the bytes are one successful OCSP response (RFC 6960 section 4.2.1) and nothing else.
pub(super) fn is_ocsp_response(der: &[u8]) -> bool {
    const SEQUENCE: u8 = 0x30;
    const ENUMERATED: u8 = 0x0a;
    // The explicit tag 0.
    const RESPONSE_BYTES: u8 = 0xa0;
    let Some((SEQUENCE, fields, [])) = split_value(der) else { return false };
    let Some((ENUMERATED, [0], rest)) = split_value(fields) else { return false };
    matches!(split_value(rest), Some((RESPONSE_BYTES, _, [])))
}

/// Splits a signed structure (RFC 5280 section 4.1) into the signed bytes, the content of the algorithm identifier and the
/// signature; `None` if it cannot be read.
pub(super) fn split_signed(der: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (_, fields, _) = split_value(der)?;
    let (_, _, rest) = split_value(fields)?;
    let signed = &fields[..fields.len() - rest.len()];
    let (_, algorithm, rest) = split_value(rest)?;
    Some((signed, algorithm, split_bits(rest)?))
}

/// Splits the content of a SubjectPublicKeyInfo (RFC 5280 section 4.1) into the content of the algorithm identifier and the
/// key; `None` if it cannot be read.
pub(super) fn split_public_key(content: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, algorithm, rest) = split_value(content)?;
    Some((algorithm, split_bits(rest)?))
}

/// The bytes of a BIT STRING that consists of whole bytes.
fn split_bits(der: &[u8]) -> Option<&[u8]> {
    const BIT_STRING: u8 = 0x03;
    match split_value(der)? {
        (BIT_STRING, [0, bytes @ ..], _) => Some(bytes),
        _ => None,
    }
}

/// Decodes a UTCTime or GeneralizedTime; both end in seconds and Z (RFC 5280 section 4.1.2.5).
fn unix_seconds(tag: u8, time: &[u8]) -> Option<u64> {
    const UTC_TIME: u8 = 0x17;
    const GENERALIZED_TIME: u8 = 0x18;
    let mut pairs = time.strip_suffix(b"Z")?.chunks(2).map(|pair| match pair {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
            Some(u64::from((tens - b'0') * 10 + ones - b'0'))
        }
        _ => None,
    });
    let mut next = || pairs.next()?;
    let year = match (tag, next()?) {
        (UTC_TIME, year @ 50..) => 1900 + year,
        (UTC_TIME, year) => 2000 + year,
        (GENERALIZED_TIME, century) => century * 100 + next()?,
        _ => return None,
    };
    let (month, day) = (next()?, next()?);
    let seconds = next()? * 3600 + next()? * 60 + next()?;
    Some(days_since_1970(year, month, day)? * 86_400 + seconds)
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    const DAYS_BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let past_years = year.checked_sub(1970)?;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let before_month = DAYS_BEFORE_MONTH.get(month.checked_sub(1)? as usize)?;
    let leap_day = u64::from(is_leap && month > 2);
    let past_days = past_years * 365 + leaps(year - 1) - leaps(1969);
    Some(past_days + before_month + leap_day + day.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_times_are_converted_to_seconds_since_1970() {
        for (tag, time, seconds) in [
            (0x17, "700101000000Z", 0),
            (0x17, "491231235959Z", 2_524_607_999),
            (0x17, "240301000001Z", 1_709_251_201),
            (0x17, "231115000000Z", 1_700_006_400),
            (0x18, "21000301000000Z", 4_107_542_400),
            (0x18, "99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(unix_seconds(tag, time.as_bytes()), Some(seconds), "{time}");
        }
        for time in ["", "Z", "2401Z", "24010100000aZ", "240101000000", "241301000000Z"] {
            assert_eq!(unix_seconds(0x17, time.as_bytes()), None, "{time}");
        }
        assert_eq!(unix_seconds(0x17, b"500101000000Z"), None, "before 1970");
    }

    #[test]
    fn end_of_validity_is_read_and_truncated_certificates_give_none() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2023, 11, 15);
        let der = params.self_signed(&key).unwrap().der().to_vec();
        assert_eq!(read_not_after(&der), Some(1_700_006_400));
        assert!((0..der.len()).all(|at| read_not_after(&der[..at]).is_none()));
    }
}
