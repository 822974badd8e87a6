//! A profile in the format of pprof: `go tool pprof FILE`, Grafana Pyroscope and others read it.
//! In: a profile. Out: the message `perftools.profiles.Profile` (github.com/google/pprof, proto/profile.proto), not compressed.

use std::collections::BTreeMap;

use crate::folded::{Profile, bare};

/// Encodes a profile.
#[must_use]
pub fn encode(profile: &Profile) -> Vec<u8> {
    let mut texts = Texts::default();
    let mut ids: BTreeMap<(&str, bool), u64> = BTreeMap::new();
    let nanos = 1_000_000_000 / u64::from(profile.facts.hertz.max(1));
    let mut message = Message::default();
    for (kind, unit) in [("samples", "count"), ("cpu", "nanoseconds")] {
        let mut value = Message::default();
        value.number(1, texts.id(kind)).number(2, texts.id(unit));
        message.message(1, &value);
    }
    for (stack, count) in profile.stacks() {
        // Innermost first.
        let places = stack.split(';').rev().map(|frame| {
            let next = ids.len() as u64 + 1;
            *ids.entry(bare(frame)).or_insert(next)
        });
        let mut sample = Message::default();
        sample.numbers(1, places).numbers(2, [count, count * nanos].into_iter());
        message.message(2, &sample);
    }
    // Mappings 1 and 2: the program and the kernel.
    for (id, name) in [(1, "tidegate"), (2, "[kernel]")] {
        let mut mapping = Message::default();
        mapping.number(1, id).number(5, texts.id(name)).number(7, 1);
        message.message(3, &mapping);
    }
    for ((name, is_kernel), id) in &ids {
        let mut line = Message::default();
        line.number(1, *id);
        let mut place = Message::default();
        place.number(1, *id).number(2, 1 + u64::from(*is_kernel)).message(4, &line);
        message.message(4, &place);
        let mut function = Message::default();
        function.number(1, *id).number(2, texts.id(name)).number(3, texts.id(name));
        message.message(5, &function);
    }
    let (cpu, unit) = (texts.id("cpu"), texts.id("nanoseconds"));
    for text in &texts.all {
        message.bytes(6, text.as_bytes());
    }
    let mut period = Message::default();
    period.number(1, cpu).number(2, unit);
    message.number(10, (profile.facts.seconds * 1e9) as u64).message(11, &period).number(12, nanos);
    message.0
}

/// The table of strings; the first is empty.
struct Texts {
    all: Vec<String>,
    ids: BTreeMap<String, u64>,
}

impl Default for Texts {
    fn default() -> Self {
        Self { all: vec![String::new()], ids: BTreeMap::from([(String::new(), 0)]) }
    }
}

impl Texts {
    fn id(&mut self, text: &str) -> u64 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.all.len() as u64;
        self.all.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// A message of Protocol Buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u64, value: u64) -> &mut Self {
        self.varint(field << 3).varint(value)
    }

    fn numbers(&mut self, field: u64, values: impl Iterator<Item = u64>) -> &mut Self {
        let mut packed = Self::default();
        for value in values {
            packed.varint(value);
        }
        self.bytes(field, &packed.0)
    }

    fn message(&mut self, field: u64, message: &Self) -> &mut Self {
        self.bytes(field, &message.0)
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2).varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn varint(&mut self, mut value: u64) -> &mut Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_has_the_fields_of_the_format() {
        let text = "# tidegate-profile seconds=1.00 hertz=100 .\na;b_[k] 300\n";
        let bytes = encode(&Profile::parse(text).expect("stacks"));
        // sample_type: samples (1) in count (2); cpu (3) in nanoseconds (4).
        assert!(bytes.starts_with(&[0x0a, 4, 8, 1, 16, 2, 0x0a, 4, 8, 3, 16, 4]), "{bytes:?}");
        // sample: locations b and a; 300 samples, 3 000 000 000 ns.
        let sample = [0x12, 13, 0x0a, 2, 1, 2, 0x12, 7, 0xac, 2, 0x80, 0xbc, 0xc1, 0x96, 0x0b];
        assert_eq!(bytes[12..27], sample);
        for name in ["tidegate", "[kernel]", "a", "b", "cpu"] {
            let field = [&[0x32, name.len() as u8], name.as_bytes()].concat();
            assert!(bytes.windows(field.len()).any(|part| part == field), "{name}");
        }
    }
}
