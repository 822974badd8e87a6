//! The wire format of Protocol Buffers: tagged fields, varints, and messages with their lengths.
//! In: bytes of a peer; numbers, strings and nested messages. Out: fields in the order of the bytes; bytes.
//! Never: panics; reads beyond a length; allocates memory for a length that a peer sends (fields borrow their bytes).
//! Limits: those of the message that contains the bytes. Groups, which proto3 does not have, are malformed.
//! Invariant: a value of 0, false or empty is not encoded, as proto3 defines it; a nested message is encoded even if it is empty.

/// The bytes are not in the wire format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// The value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// A string, a message or bytes.
    Bytes(&'a [u8]),
    /// A number of fixed size. No message that this program knows has such a field.
    Fixed,
}

/// The fields of a message.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    /// The bytes after the fields that were read.
    rest: &'a [u8],
}

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

impl<'a> Fields<'a> {
    /// The fields of the message in `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field and its number; `None` at the end.
    ///
    /// # Errors
    /// The bytes are not a field.
    pub fn next_field(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = take_varint(&mut self.rest)?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| *number > 0).ok_or(Malformed)?;
        let value = match tag & 7 {
            VARINT => Value::Number(take_varint(&mut self.rest)?),
            BYTES => Value::Bytes(take_delimited(&mut self.rest)?),
            FIXED_64 => self.skip(8)?,
            FIXED_32 => self.skip(4)?,
            _ => return Err(Malformed),
        };
        Ok(Some((number, value)))
    }

    fn skip(&mut self, bytes: usize) -> Result<Value<'a>, Malformed> {
        self.rest = self.rest.get(bytes..).ok_or(Malformed)?;
        Ok(Value::Fixed)
    }
}

impl<'a> Value<'a> {
    /// The number.
    ///
    /// # Errors
    /// The value is not a number.
    pub const fn number(self) -> Result<u64, Malformed> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Bytes(_) | Self::Fixed => Err(Malformed),
        }
    }

    /// The bytes.
    ///
    /// # Errors
    /// The value is a number.
    pub const fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) | Self::Fixed => Err(Malformed),
        }
    }

    /// The text.
    ///
    /// # Errors
    /// The value is a number, or is not UTF-8.
    pub fn text(self) -> Result<&'a str, Malformed> {
        core::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// The fields of the message.
    ///
    /// # Errors
    /// The value is a number.
    pub fn fields(self) -> Result<Fields<'a>, Malformed> {
        self.bytes().map(Fields::new)
    }
}

/// Takes a varint: 7 bits in each byte, the lowest bits first.
fn take_varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0_u64;
    for place in 0..10 {
        let (&byte, after) = rest.split_first().ok_or(Malformed)?;
        *rest = after;
        // The tenth byte has room for one bit.
        if place == 9 && byte > 1 {
            return Err(Malformed);
        }
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

/// Takes bytes that follow their length.
///
/// # Errors
/// The length is malformed, or there are fewer bytes.
pub fn take_delimited<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Malformed> {
    let length = usize::try_from(take_varint(rest)?).map_err(|_| Malformed)?;
    let (bytes, after) = rest.split_at_checked(length).ok_or(Malformed)?;
    *rest = after;
    Ok(bytes)
}

/// Appends a number, unless it is 0.
pub fn put_number(out: &mut Vec<u8>, field: u32, number: u64) {
    if number > 0 {
        put_varint(out, u64::from(field) << 3 | VARINT);
        put_varint(out, number);
    }
}

/// Appends a number that may be negative (`sint32` or `sint64`), unless it is 0.
pub fn put_signed(out: &mut Vec<u8>, field: u32, number: i64) {
    put_number(out, field, zigzag(number));
}

/// Appends a packed list of numbers that may be negative.
pub fn put_all_signed(out: &mut Vec<u8>, field: u32, numbers: &[i64]) {
    put_message(out, field, |out| {
        numbers.iter().for_each(|number| put_varint(out, zigzag(*number)))
    });
}

/// A number whose lowest bit is the sign, so that small negative numbers are short.
const fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// Appends a `double`, unless it is 0.
pub fn put_double(out: &mut Vec<u8>, field: u32, number: f64) {
    if number != 0.0 {
        put_varint(out, u64::from(field) << 3 | FIXED_64);
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// Appends `true`, unless the value is false.
pub fn put_flag(out: &mut Vec<u8>, field: u32, flag: bool) {
    put_number(out, field, flag.into());
}

/// Appends bytes or a string, unless they are empty.
pub fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_varint(out, u64::from(field) << 3 | BYTES);
        put_varint(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
}

/// Appends a message, whose fields `write` appends.
pub fn put_message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    put_varint(out, u64::from(field) << 3 | BYTES);
    put_delimited(out, write);
}

/// Appends the output of `write`, after its length.
pub fn put_delimited(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    write(out);
    let end = out.len();
    put_varint(out, (end - begin) as u64);
    let prefix = out.len() - end;
    out[begin..].rotate_right(prefix);
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, Malformed> {
        let mut fields = Fields::new(bytes);
        let mut found = Vec::new();
        while let Some(field) = fields.next_field()? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn examples_of_the_specification_are_read_and_written() {
        // protobuf.dev/programming-guides/encoding
        let mut out = Vec::new();
        put_number(&mut out, 1, 150);
        put_bytes(&mut out, 2, b"testing");
        put_message(&mut out, 3, |out| put_number(out, 1, 150));
        put_flag(&mut out, 4, false);
        let expected = b"\x08\x96\x01\x12\x07testing\x1a\x03\x08\x96\x01";
        assert_eq!(out, expected);
        let found = all(expected).expect("fields");
        let inner = Value::Bytes(b"\x08\x96\x01");
        let wanted = [(1, Value::Number(150)), (2, Value::Bytes(b"testing")), (3, inner)];
        assert_eq!(found, wanted);
        let mut signed = Vec::new();
        for number in [0, -1, 1, -2, i64::MIN] {
            put_signed(&mut signed, 1, number);
        }
        let wanted = [1, 2, 3, u64::MAX].map(|number| (1, Value::Number(number)));
        assert_eq!(all(&signed), Ok(wanted.into()));
        let mut packed = Vec::new();
        put_all_signed(&mut packed, 13, &[0, -1, 64]);
        assert_eq!(all(&packed), Ok(vec![(13, Value::Bytes(b"\0\x01\x80\x01"))]));
        let mut real = Vec::new();
        put_double(&mut real, 2, 0.0);
        put_double(&mut real, 2, -2.0);
        assert_eq!(real, b"\x11\0\0\0\0\0\0\0\xc0");
    }

    #[test]
    fn malformed_bytes_are_rejected() {
        for (bytes, what) in [
            (&b"\x08"[..], "a number is missing"),
            (b"\x08\x80", "a number ends early"),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "more than 64 bits"),
            (b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", "more than ten bytes"),
            (b"\x00\x01", "field 0"),
            (b"\x0b", "a group"),
            (b"\x0e", "a wire type that does not exist"),
            (b"\x12\x02a", "bytes end early"),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a length beyond the memory"),
            (b"\x09abcdefg", "a fixed number ends early"),
            (b"\x0dabc", "a short fixed number ends early"),
        ] {
            assert_eq!(all(bytes), Err(Malformed), "{what}");
        }
        assert_eq!(all(b"\x0dabcd\x09abcdefgh"), Ok(vec![(1, Value::Fixed); 2]));
        assert_eq!(
            all(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").map(|all| all.len()),
            Ok(1)
        );
    }

    proptest! {
        #[test]
        fn fields_survive_a_round_trip(
            wanted in proptest::collection::vec((1_u32..1 << 29, proptest::option::of(1_u64..),
                proptest::collection::vec(any::<u8>(), 1..300)), 0..20),
        ) {
            let mut out = Vec::new();
            for (field, number, bytes) in &wanted {
                match number {
                    Some(number) => put_number(&mut out, *field, *number),
                    None => put_bytes(&mut out, *field, bytes),
                }
            }
            let expected: Vec<_> = wanted
                .iter()
                .map(|(field, number, bytes)| match number {
                    Some(number) => (*field, Value::Number(*number)),
                    None => (*field, Value::Bytes(bytes)),
                })
                .collect();
            prop_assert_eq!(all(&out), Ok(expected));
        }

        #[test]
        fn messages_survive_a_round_trip(parts in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..400), 0..20)) {
            let mut out = Vec::new();
            for part in &parts {
                put_delimited(&mut out, |out| out.extend_from_slice(part));
            }
            let mut rest = out.as_slice();
            for part in &parts {
                prop_assert_eq!(take_delimited(&mut rest), Ok(part.as_slice()));
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = all(&bytes);
        }
    }
}
