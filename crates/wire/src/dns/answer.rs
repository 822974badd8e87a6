//! The decoder of answers.
//! In: the question, the number of its query, the bytes of a datagram. Out: the content of the answer, or why it is not an
//! answer.
//! Never: takes a record of another name than that of the question or of one of its aliases; reads the bytes after the records.
//! Limits: those of `mod.rs`. A longer answer counts as truncated.

use core::net::{Ipv4Addr, Ipv6Addr};

use super::{
    ALIASES_MAX, ANSWER_BYTES_MAX, Answer, CLASS_IN, Question, RECORDS_MAX, Record, RecordKind,
    name,
};

const HEADER_BYTES: usize = 12;
const TYPE_CNAME: u16 = 5;
const TYPE_SOA: u16 = 6;

const CODE_NAME_ERROR: u8 = 3;

/// Why a datagram is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It answers another question, or is not an answer at all. The true answer may still arrive.
    Foreign,
    /// It answers the question, but cannot be decoded.
    Malformed,
}

/// One record of a message.
struct RawRecord {
    owner: String,
    number: u16,
    seconds: u32,
    /// The place of its data.
    data: core::ops::Range<usize>,
}

/// Reads the answer to a query with the number `id`.
///
/// # Errors
/// The datagram is no answer to it.
pub fn decode_answer(question: &Question, id: u16, message: &[u8]) -> Result<Answer, Fault> {
    decode_answer_within(question, id, usize::from(ANSWER_BYTES_MAX), message)
}

/// As [`decode_answer`]. An answer of more than `bytes_max` bytes counts as truncated.
///
/// # Errors
/// As [`decode_answer`].
pub fn decode_answer_within(
    question: &Question,
    id: u16,
    bytes_max: usize,
    message: &[u8],
) -> Result<Answer, Fault> {
    const RESPONSE: u16 = 0x8000;
    const OPCODE: u16 = 0x7800;
    const TRUNCATED: u16 = 0x0200;
    let header = |at: usize| number(message, 2 * at).ok_or(Fault::Foreign);
    let (own_id, flags) = (header(0)?, header(1)?);
    let [questions, answers, authorities] = [header(2)?, header(3)?, header(4)?];
    if own_id != id || flags & (RESPONSE | OPCODE) != RESPONSE || message.len() < HEADER_BYTES {
        return Err(Fault::Foreign);
    }
    let code = (flags & 0xf) as u8;
    if questions == 0 && code != 0 {
        // A server that cannot read the query may not repeat it.
        return Ok(Answer::Failed(code));
    }
    let (asked, place) = name::decode(message, HEADER_BYTES).ok_or(Fault::Foreign)?;
    let is_own = questions == 1
        && asked == question.name
        && number(message, place) == Some(question.kind.number())
        && number(message, place + 2) == Some(CLASS_IN);
    if !is_own {
        return Err(Fault::Foreign);
    }
    // A server that ignores the size which the query announces could fill the memory of all that keep answers.
    if flags & TRUNCATED != 0 || message.len() > bytes_max {
        return Ok(Answer::Truncated);
    }
    if code != 0 && code != CODE_NAME_ERROR {
        return Ok(Answer::Failed(code));
    }
    let mut place = place + 4;
    let found = read_records(message, &mut place, answers)?;
    let (records, seconds) = find_records(question, message, &found)?;
    if !records.is_empty() {
        // The other sections are not needed, so a fault in them does not matter.
        return Ok(Answer::Records { records, seconds });
    }
    if usize::from(answers) > RECORDS_MAX {
        // Its own records may be among those that were ignored.
        return Err(Fault::Malformed);
    }
    let others = read_records(message, &mut place, authorities)?;
    let seconds = seconds.min(negative_seconds(message, &others));
    Ok(Answer::Nothing { is_unknown: code == CODE_NAME_ERROR, seconds })
}

/// The records of the question, and how long they may be kept; none, and how long the aliases that lead to the absent ones may be
/// kept.
fn find_records(
    question: &Question,
    message: &[u8],
    found: &[RawRecord],
) -> Result<(Vec<Record>, u32), Fault> {
    let (mut owner, mut seconds) = (question.name.clone(), u32::MAX);
    for _ in 0..=ALIASES_MAX {
        let of_kind =
            |record: &&RawRecord| record.owner == owner && record.number == question.kind.number();
        let mut records = Vec::new();
        for record in found.iter().filter(of_kind) {
            seconds = seconds.min(record.seconds);
            let data = record.data.clone();
            records.push(read_data(question.kind, message, data).ok_or(Fault::Malformed)?);
        }
        let alias = found.iter().find(|one| one.owner == owner && one.number == TYPE_CNAME);
        let Some(alias) = alias.filter(|_| records.is_empty()) else {
            return Ok((records, seconds));
        };
        seconds = seconds.min(alias.seconds);
        (owner, _) = name::decode(message, alias.data.start).ok_or(Fault::Malformed)?;
    }
    Err(Fault::Malformed)
}

/// How long it may be kept that there is nothing; 0 if the answer does not state it (RFC 2308 section 5).
fn negative_seconds(message: &[u8], records: &[RawRecord]) -> u32 {
    let Some(record) = records.iter().find(|record| record.number == TYPE_SOA) else { return 0 };
    let minimum = record.data.end.checked_sub(4).filter(|at| *at >= record.data.start);
    let minimum = minimum.and_then(|at| seconds_at(message, at)).unwrap_or(0);
    minimum.min(record.seconds)
}

fn read_records(message: &[u8], place: &mut usize, count: u16) -> Result<Vec<RawRecord>, Fault> {
    let count = usize::from(count).min(RECORDS_MAX);
    let records = (0..count).map(|_| read_record(message, place).ok_or(Fault::Malformed));
    // Records of other classes belong to other trees of names.
    Ok(records.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// The record at `place`; `Some(None)` if it has another class.
fn read_record(message: &[u8], place: &mut usize) -> Option<Option<RawRecord>> {
    let (owner, at) = name::decode(message, *place)?;
    let (of, class) = (number(message, at)?, number(message, at + 2)?);
    let seconds = seconds_at(message, at + 4)?;
    let length = usize::from(number(message, at + 8)?);
    let data = at + 10..at + 10 + length;
    message.get(data.clone())?;
    *place = data.end;
    Some((class == CLASS_IN).then_some(RawRecord { owner, number: of, seconds, data }))
}

fn read_data(kind: RecordKind, message: &[u8], data: core::ops::Range<usize>) -> Option<Record> {
    let bytes = message.get(data.clone())?;
    match kind {
        RecordKind::A => Some(Record::A(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?))),
        RecordKind::Aaaa => Some(Record::Aaaa(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?))),
        RecordKind::Srv => {
            let [priority, weight, port] =
                [number(bytes, 0)?, number(bytes, 2)?, number(bytes, 4)?];
            let (target, end) = name::decode(message, data.start + 6)?;
            (end == data.end).then_some(Record::Srv { priority, weight, port, target })
        }
        RecordKind::Txt => {
            let (mut text, mut rest) = (Vec::new(), bytes);
            while let Some((length, others)) = rest.split_first() {
                let (string, others) = others.split_at_checked(usize::from(*length))?;
                text.extend_from_slice(string);
                rest = others;
            }
            Some(Record::Txt(text))
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A time; one with the highest bit counts as zero (RFC 2181 section 8).
fn seconds_at(bytes: &[u8], at: usize) -> Option<u32> {
    let seconds = u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
    Some(if seconds > i32::MAX as u32 { 0 } else { seconds })
}
