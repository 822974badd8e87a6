//! Queries and answers of DNS.
//! In: messages as servers send them, and damaged ones. Out: records, or why there are none.

use tidegate_wire::dns::{
    ALIASES_MAX, ANSWER_BYTES_MAX, Answer, Fault, Question, Record, RecordKind, decode_answer,
    decode_answer_within, encode_query,
};

const ID: u16 = 0x1234;
const NAME_ERROR: u16 = 3;

/// A message that is built up.
struct Message(Vec<u8>);

impl Message {
    /// The header and the question of an answer with so many records and such flags.
    fn answer(question: &Question, flags: u16, answers: u16, authorities: u16) -> Self {
        let mut query = Vec::new();
        encode_query(question, ID, &mut query);
        // Without the record of the query's last section.
        query.truncate(query.len() - 11);
        for (at, number) in [(2, 0x8180 | flags), (6, answers), (8, authorities), (10, 0)] {
            query[at..at + 2].copy_from_slice(&number.to_be_bytes());
        }
        Self(query)
    }

    /// Adds a record. `owner` is the place of its name in the message, or a name.
    fn record(mut self, owner: &str, number: u16, seconds: u32, data: &[u8]) -> Self {
        self.0.extend(name(owner));
        for part in [number, 1] {
            self.0.extend(part.to_be_bytes());
        }
        self.0.extend(seconds.to_be_bytes());
        self.0.extend((data.len() as u16).to_be_bytes());
        self.0.extend(data);
        self
    }
}

/// A name; "" is a pointer to that of the question.
fn name(text: &str) -> Vec<u8> {
    if text.is_empty() {
        return vec![0xc0, 12];
    }
    let labels = text.split('.').filter(|label| !label.is_empty());
    let mut bytes: Vec<u8> =
        labels.flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat()).collect();
    bytes.push(0);
    bytes
}

fn question(name: &str, kind: RecordKind) -> Question {
    Question::new(name, kind).expect("a name")
}

fn records(answer: Result<Answer, Fault>) -> (Vec<Record>, u32) {
    match answer {
        Ok(Answer::Records { records, seconds }) => (records, seconds),
        other => panic!("{other:?}"),
    }
}

fn address(text: &str) -> Record {
    Record::A(text.parse().expect("an address"))
}

#[test]
fn query_has_one_question_and_states_the_largest_answer() {
    let mut query = Vec::new();
    encode_query(&question("Api.Example.", RecordKind::Srv), ID, &mut query);
    let expected = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01\
        \x03api\x07example\x00\x00\x21\x00\x01\
        \x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
    assert_eq!(query, expected);
}

#[test]
fn names_are_checked() {
    let label = "a".repeat(63);
    let long = [&label[..]; 4].join(".");
    for good in ["a", "a.", "A-1._tcp.x", &label, &long[..253]] {
        assert!(Question::new(good, RecordKind::A).is_some(), "{good}");
    }
    let too_long = format!("{label}a");
    for bad in ["", ".", "a..b", ".a", "a b", "ä", "a\0", "a/b", &too_long, &long] {
        assert!(Question::new(bad, RecordKind::A).is_none(), "{bad}");
    }
}

#[test]
fn records_of_each_kind_are_read() {
    let of = |kind, data: &[&[u8]]| {
        let asked = question("a.example", kind);
        let number = [1, 28, 33, 16][RecordKind::ALL.iter().position(|one| *one == kind).unwrap()];
        let mut message = Message::answer(&asked, 0, data.len() as u16, 0);
        for (at, data) in data.iter().enumerate() {
            message = message.record(["", "A.EXAMPLE"][at % 2], number, 60 - at as u32, data);
        }
        records(decode_answer(&asked, ID, &message.0))
    };
    let found = of(RecordKind::A, &[&[10, 0, 0, 1], &[10, 0, 0, 2]]);
    assert_eq!(found, (vec![address("10.0.0.1"), address("10.0.0.2")], 59));
    let found = of(RecordKind::Aaaa, &[&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]]);
    assert_eq!(found, (vec![Record::Aaaa("::1".parse().unwrap())], 60));
    let target = [&[0, 10, 0, 5, 0x1f, 0x90][..], &name("Host")[..3], b"st", &[0xc0, 12]].concat();
    let found = of(RecordKind::Srv, &[&target]);
    let (priority, weight, port) = (10, 5, 8080);
    let target = "host.a.example".to_owned();
    assert_eq!(found, (vec![Record::Srv { priority, weight, port, target }], 60));
    let found = of(RecordKind::Txt, &[b"\x02a\xff\x00\x03bcd", b""]);
    assert_eq!(found.0, [Record::Txt(b"a\xffbcd".to_vec()), Record::Txt(Vec::new())]);
}

#[test]
fn aliases_lead_to_the_records() {
    let asked = question("www.example", RecordKind::A);
    let message = Message::answer(&asked, 0, 4, 0)
        .record("other.example", 1, 1, &[9, 9, 9, 9])
        .record("host.example", 1, 300, &[10, 0, 0, 1])
        .record("", 5, 100, &name("alias.example"))
        .record("alias.example", 5, 200, &name("host.example"));
    let found = records(decode_answer(&asked, ID, &message.0));
    assert_eq!(found, (vec![address("10.0.0.1")], 100), "not that of another name");
    let mut circle = Message::answer(&asked, 0, 2, 0);
    circle = circle.record("", 5, 1, &name("b")).record("b", 5, 1, &name("www.example"));
    assert_eq!(decode_answer(&asked, ID, &circle.0), Err(Fault::Malformed));
    for (count, is_read) in [(ALIASES_MAX, true), (ALIASES_MAX + 1, false)] {
        let mut chain = Message::answer(&asked, 0, count as u16 + 1, 0);
        for at in 0..count {
            let owner = if at == 0 { String::new() } else { format!("n{at}") };
            chain = chain.record(&owner, 5, 1, &name(&format!("n{}", at + 1)));
        }
        chain = chain.record(&format!("n{count}"), 1, 1, &[1, 2, 3, 4]);
        assert_eq!(decode_answer(&asked, ID, &chain.0).is_ok(), is_read, "{count} aliases");
    }
}

#[test]
fn absence_is_kept_as_long_as_the_zone_states() {
    let asked = question("none.example", RecordKind::A);
    let soa = [name("ns"), name("mail"), vec![0; 16], 30_u32.to_be_bytes().to_vec()].concat();
    for (seconds, expected) in [(20, 20), (60, 30), (u32::MAX, 0)] {
        for (flags, is_unknown) in [(0, false), (NAME_ERROR, true)] {
            let message = Message::answer(&asked, flags, 0, 1).record("example", 6, seconds, &soa);
            let answer = decode_answer(&asked, ID, &message.0);
            assert_eq!(answer, Ok(Answer::Nothing { is_unknown, seconds: expected }));
        }
    }
    let message = Message::answer(&asked, NAME_ERROR, 0, 0);
    let answer = decode_answer(&asked, ID, &message.0);
    assert_eq!(answer, Ok(Answer::Nothing { is_unknown: true, seconds: 0 }));
}

#[test]
fn failures_and_truncated_answers_are_told_apart() {
    let asked = question("a.example", RecordKind::A);
    let decode = |flags| decode_answer(&asked, ID, &Message::answer(&asked, flags, 0, 0).0);
    assert_eq!(decode(2), Ok(Answer::Failed(2)));
    assert_eq!(decode(0x0200), Ok(Answer::Truncated));
    let formerr = b"\x12\x34\x81\x81\x00\x00\x00\x00\x00\x00\x00\x00";
    assert_eq!(decode_answer(&asked, ID, formerr), Ok(Answer::Failed(1)));
}

#[test]
fn answer_to_another_question_is_foreign() {
    let asked = question("a.example", RecordKind::A);
    let good = Message::answer(&asked, 0, 1, 0).record("", 1, 60, &[1, 2, 3, 4]).0;
    assert!(decode_answer(&asked, ID, &good).is_ok());
    assert_eq!(decode_answer(&asked, ID + 1, &good), Err(Fault::Foreign));
    for other in [question("b.example", RecordKind::A), question("a.example", RecordKind::Aaaa)] {
        assert_eq!(decode_answer(&other, ID, &good), Err(Fault::Foreign), "{other:?}");
    }
    let mut query = good.clone();
    query[2] &= 0x7f;
    assert_eq!(decode_answer(&asked, ID, &query), Err(Fault::Foreign), "a query");
    assert_eq!(decode_answer(&asked, ID, b""), Err(Fault::Foreign));
}

#[test]
fn damaged_answers_are_refused() {
    let asked = question("a.example", RecordKind::A);
    let good = Message::answer(&asked, 0, 1, 0).record("", 1, 60, &[1, 2, 3, 4]).0;
    for length in 0..good.len() {
        assert!(decode_answer(&asked, ID, &good[..length]).is_err(), "{length} bytes");
    }
    // A name that points to itself, forwards, or to a pointer that leads back.
    let question_end = good.len() - 16;
    for target in [question_end, question_end + 2, 0x3fff] {
        let mut bad = good.clone();
        let pointer = 0xc000 | target as u16;
        bad[question_end..question_end + 2].copy_from_slice(&pointer.to_be_bytes());
        assert_eq!(decode_answer(&asked, ID, &bad), Err(Fault::Malformed), "{target}");
    }
    for (data, number) in [(&[1, 2, 3][..], 1), (&[1, 2, 3, 4, 5], 1)] {
        let bad = Message::answer(&asked, 0, 1, 0).record("", number, 60, data).0;
        assert_eq!(decode_answer(&asked, ID, &bad), Err(Fault::Malformed), "{data:?}");
    }
    let text = question("a.example", RecordKind::Txt);
    let bad = Message::answer(&text, 0, 1, 0).record("", 16, 60, b"\x05abc").0;
    assert_eq!(decode_answer(&text, ID, &bad), Err(Fault::Malformed));
    let many = Message::answer(&asked, 0, 129, 0).0;
    assert_eq!(decode_answer(&asked, ID, &many), Err(Fault::Malformed), "129 are stated");
}

#[test]
fn records_beyond_the_limit_are_ignored() {
    let asked = question("a.example", RecordKind::A);
    let answer = |count: u16, number: u16| {
        let message = Message::answer(&asked, 0, count, 0);
        let message =
            (0..count).fold(message, |message, _| message.record("", number, 60, &[10, 0, 0, 1]));
        decode_answer_within(&asked, ID, 65_535, &message.0)
    };
    for (count, read) in [(129, 129), (1024, 1024), (1025, 1024), (3000, 1024)] {
        assert_eq!(records(answer(count, 1)).0.len(), read, "{count}");
    }
    // Of another kind: its own may be among those that were ignored.
    assert!(matches!(answer(1024, 99), Ok(Answer::Nothing { .. })));
    assert_eq!(answer(1025, 99), Err(Fault::Malformed));
}

#[test]
fn answer_that_is_longer_than_the_query_states_counts_as_truncated() {
    let asked = question("a.example", RecordKind::Txt);
    let of_bytes = |bytes: usize| {
        let message = Message::answer(&asked, 0, 1, 0);
        // A record has 12 bytes beside its data, and each string one byte for its length.
        let mut left = bytes - message.0.len() - 12;
        let mut data = Vec::new();
        while left > 0 {
            let length = (left - 1).min(255);
            data.push(length as u8);
            data.resize(data.len() + length, b'x');
            left -= length + 1;
        }
        let message = message.record("", 16, 60, &data);
        assert_eq!(message.0.len(), bytes);
        decode_answer(&asked, ID, &message.0)
    };
    let most = usize::from(ANSWER_BYTES_MAX);
    assert_eq!(records(of_bytes(most)).0.len(), 1);
    assert_eq!(of_bytes(most + 1), Ok(Answer::Truncated));
    assert_eq!(of_bytes(60_000), Ok(Answer::Truncated));
}

#[test]
fn records_are_read_although_what_follows_them_is_malformed() {
    let asked = question("a.example", RecordKind::A);
    let message = Message::answer(&asked, 0, 2, 3).record("", 5, 100, &name("b.example")).record(
        "b.example",
        1,
        60,
        &[10, 0, 0, 1],
    );
    for rest in [&b""[..], b"\xff", b"\x00\x00\x06\x00\x01"] {
        let bytes = [&message.0[..], rest].concat();
        let found = records(decode_answer(&asked, ID, &bytes));
        assert_eq!(found, (vec![address("10.0.0.1")], 60), "{rest:?}");
    }
    // Without records, the authority section says how long that may be kept.
    let nothing = Message::answer(&asked, NAME_ERROR, 0, 1).0;
    assert_eq!(decode_answer(&asked, ID, &nothing), Err(Fault::Malformed));
}
