//! Finds the byte of a malformed head that shows the fault, for operators.
//! In: the bytes of the head, and the fault that the decoder has named. Out: the offset of a byte.
//! Never: decides anything about a message: the decoder has rejected it already.
//! Limits: reads the bytes a few times; called for messages that an operator inspects, not for each fault.

use crate::http1::scan::{split_field_line, without_line_end};
use crate::message::FaultKind;
use crate::message::syntax::{is_text, is_token_char};

/// The offset of the byte that shows the fault; `None` if no single byte does, such as for a missing field, or if it is
/// not among these bytes.
#[must_use]
pub fn locate(head: &[u8], fault: FaultKind) -> Option<usize> {
    find(head, fault).filter(|at| *at < head.len())
}

/// The same; the offset may be the end of the bytes.
fn find(head: &[u8], fault: FaultKind) -> Option<usize> {
    use FaultKind as Kind;
    match fault {
        Kind::BareCr => {
            let pairs = head.windows(2);
            pairs.into_iter().position(|pair| pair[0] == b'\r' && pair[1] != b'\n')
        }
        Kind::BareLf => (0..head.len())
            .find(|&at| head[at] == b'\n' && at.checked_sub(1).is_none_or(|it| head[it] != b'\r')),
        Kind::ControlByte => {
            head.iter().position(|&byte| !matches!(byte, b'\r' | b'\n') && !is_text(byte))
        }
        Kind::RequestLineMalformed => extra_word(head),
        Kind::MethodInvalid => {
            let (start, line) = start_line(head);
            let end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
            line[..end].iter().position(|&byte| !is_token_char(byte)).map(|at| start + at)
        }
        Kind::TargetInvalid => {
            let (start, target) = word(head, 1)?;
            target.iter().position(|byte| !is_target_byte(*byte)).map(|at| start + at)
        }
        Kind::TargetFormInvalid | Kind::TargetSchemeUnsupported | Kind::TargetAuthorityInvalid => {
            word(head, 1).map(|(start, _)| start)
        }
        Kind::VersionInvalid | Kind::VersionUnsupported => version(head),
        Kind::StatusLineMalformed => Some(start_line(head).0),
        Kind::StatusInvalid | Kind::SwitchNotRequested => word(head, 1).map(|(start, _)| start),
        Kind::HostRepeated => value(head, &["host"], 1),
        Kind::HostInvalid | Kind::HostTooLong => value(head, &["host"], 0),
        Kind::FieldNameEmpty
        | Kind::FieldNameInvalid
        | Kind::SpaceBeforeColon
        | Kind::ObsFold => field_name(head),
        Kind::ContentLengthInvalid => invalid_length(head),
        Kind::ContentLengthsDiffer | Kind::ContentLengthRepeated => {
            value(head, &["content-length"], 1).or_else(|| value(head, &["content-length"], 0))
        }
        Kind::ContentLengthWithTransferEncoding
        | Kind::TransferEncodingInvalid
        | Kind::TransferEncodingNotChunked
        | Kind::TransferEncodingUnsupported
        | Kind::TransferEncodingOnHttp10 => value(head, &["transfer-encoding"], 0),
        Kind::FramingFieldMisspelled => {
            misspelled(head)
        }
        // No byte is wrong: something is absent, or there is too much of something.
        Kind::EmptyLine
        | Kind::RequestLineTooLong
        | Kind::SwitchProtocolMissing
        | Kind::HostMissing
        | Kind::TooManyFields
        | Kind::HeadTooLarge
        | Kind::BodyTruncated
        // The bytes of a body do not begin where the decoder did.
        | Kind::ChunkSizeInvalid
        | Kind::ChunkSizeTooLarge
        | Kind::ChunkEndMissing
        | Kind::ChunkExtensionInvalid
        | Kind::ChunkExtensionTooLong
        | Kind::TrailerTooLarge => None,
    }
}

/// The start line without its end, and its offset: empty lines may precede it.
fn start_line(head: &[u8]) -> (usize, &[u8]) {
    let start = head.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(0);
    let rest = &head[start..];
    let end = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |at| at + 1);
    (start, without_line_end(&rest[..end]))
}

/// A word of the start line and its offset.
fn word(head: &[u8], number: usize) -> Option<(usize, &[u8])> {
    let (mut start, line) = start_line(head);
    for (at, word) in line.split(|&byte| byte == b' ').enumerate() {
        if at == number {
            return Some((start, word));
        }
        start += word.len() + 1;
    }
    None
}

/// The version of a request, which is its last word, or of a response, which begins with it.
fn version(head: &[u8]) -> Option<usize> {
    let (start, line) = start_line(head);
    match line.starts_with(b"HTTP/") {
        true => Some(start),
        false => word(head, 2).map(|(start, _)| start),
    }
}

/// The end of the words of a request line: the third space, two spaces in a row, or the end of a line with too few words.
fn extra_word(head: &[u8]) -> Option<usize> {
    let (start, line) = start_line(head);
    let spaces = (0..line.len()).filter(|&at| line[at] == b' ');
    let mut spaces = spaces.enumerate();
    let wrong =
        spaces.find(|&(count, at)| count == 2 || at == 0 || line.get(at + 1) == Some(&b' '));
    let wrong = wrong.map_or(line.len(), |(_, at)| at);
    Some(start + wrong)
}

/// Whether a byte may be in a request target (RFC 3986), as far as one byte shows it.
fn is_target_byte(byte: u8) -> bool {
    byte.is_ascii_graphic()
        && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b'#')
}

/// The field lines without their ends, and their offsets.
fn field_lines(head: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let (start, line) = start_line(head);
    let mut at = start + line.len();
    // The end of the start line.
    at += head[at..].iter().position(|&byte| byte == b'\n').map_or(head.len() - at, |end| end + 1);
    core::iter::from_fn(move || {
        let rest = head.get(at..).filter(|rest| !rest.is_empty())?;
        let end = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |end| end + 1);
        let start = at;
        at += end;
        Some((start, without_line_end(&rest[..end])))
    })
}

/// The byte of the first field line that cannot be in its name.
fn field_name(head: &[u8]) -> Option<usize> {
    let (start, line) = field_lines(head)
        .take_while(|(_, line)| !line.is_empty())
        .find(|(_, line)| split_field_line(line).is_err())?;
    let wrong = line.iter().position(|&byte| !is_token_char(byte)).unwrap_or(line.len());
    Some(start + wrong)
}

/// The offset of the value of a field; of the fields with one of these names, the one with this number.
fn value(head: &[u8], names: &[&str], number: usize) -> Option<usize> {
    values(head, names).nth(number).map(|(start, _)| start)
}

fn values<'h>(head: &'h [u8], names: &[&str]) -> impl Iterator<Item = (usize, &'h [u8])> {
    field_lines(head).take_while(|(_, line)| !line.is_empty()).filter_map(move |(start, line)| {
        let (name, value) = split_field_line(line).ok()?;
        let is_one = names.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(name));
        let blanks = line[name.len() + 1..].iter().take_while(|byte| matches!(byte, b' ' | b'\t'));
        is_one.then_some((start + name.len() + 1 + blanks.count(), value))
    })
}

/// The first byte of Content-Length that is not a digit.
fn invalid_length(head: &[u8]) -> Option<usize> {
    let mut lengths = values(head, &["content-length"]);
    let wrong =
        lengths.find(|(_, value)| value.is_empty() || !value.iter().all(u8::is_ascii_digit));
    let Some((start, value)) = wrong else { return value(head, &["content-length"], 0) };
    let at = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(0);
    Some(start + at)
}

/// The "_" in the name of a field that determines the length.
fn misspelled(head: &[u8]) -> Option<usize> {
    let (start, line) =
        field_lines(head).take_while(|(_, line)| !line.is_empty()).find(|(_, line)| {
            split_field_line(line).is_ok_and(|(name, _)| {
                let is = |other: &str| {
                    other.len() == name.len()
                        && other.bytes().zip(name).all(|(one, other)| {
                            let other =
                                if *other == b'_' { b'-' } else { other.to_ascii_lowercase() };
                            one == other
                        })
                };
                name.contains(&b'_') && (is("content-length") || is("transfer-encoding"))
            })
        })?;
    line.iter().position(|&byte| byte == b'_').map(|at| start + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{HeadDecoder, HeadLimits};
    use crate::message::FieldStorage;

    /// The fault of a request head that is rejected.
    fn fault_of(head: &[u8]) -> FaultKind {
        let mut storage = FieldStorage::new();
        let decoded =
            HeadDecoder::default().decode_request(head, &HeadLimits::default(), &mut storage);
        match decoded {
            Err(fault) => fault.kind,
            Ok(_) => panic!("{:?} is accepted", String::from_utf8_lossy(head)),
        }
    }

    #[test]
    fn byte_of_a_fault_is_found() {
        // The byte is after the mark.
        for head in [
            "GET / HTTP/1.1§\r\0\r\n",
            "GET / HTTP/1.1\r\nA: b§\n\r\n",
            "GET / HTTP/1.1\r\nA: b§\u{1}c\r\n\r\n",
            "GET / HTTP/1.1§ x\r\n\r\n",
            "GET§  / HTTP/1.1\r\n\r\n",
            "GET /§\r\n\r\n",
            "G§(T / HTTP/1.1\r\n\r\n",
            "GET /a§\u{7f} HTTP/1.1\r\n\r\n",
            "GET / §HTTQ/1.1\r\n\r\n",
            "GET / §HTTP/2.0\r\n\r\n",
            "\r\nGET / HTTP/1.1\r\nHost: a\r\nB§@d: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nBad§ : x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n§ fold\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n§: x\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nno§ colon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: §b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: §a b\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12§x\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\ncontent-length:§2\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: §gzip\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nContent§_Length: 1\r\n\r\n",
        ] {
            let expected = head.find('§');
            let bytes = head.replace('§', "");
            let fault = fault_of(bytes.as_bytes());
            assert_eq!(locate(bytes.as_bytes(), fault), expected, "{head:?}: {fault:?}");
        }
    }

    #[test]
    fn absent_parts_have_no_byte() {
        assert_eq!(locate(b"GET / HTTP/1.1\r\n\r\n", FaultKind::HostMissing), None);
        for &kind in FaultKind::ALL {
            for bytes in
                [&b""[..], b"\r\n", b"\n", b"a", b"GET", b"HTTP/1.1", b"\r", b"a\r\n:", b" "]
            {
                assert!(
                    locate(bytes, kind).is_none_or(|at| at < bytes.len()),
                    "{kind:?} {bytes:?}"
                );
            }
        }
    }
}
