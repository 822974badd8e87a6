//! The body of the fuzz target `dns`. The test that replays the corpus runs it too.
//! In: any bytes, as an answer to the question that they state. Out: nothing; panics if a check fails.
//! Checks: no panic; an answer is that to one query only; records are within the limits.
//! Never: called on the data path.

use super::{
    Answer, Fault, NAME_BYTES_MAX, Question, RECORDS_MAX, Record, RecordKind, decode_answer,
    encode_query, name,
};

/// Decodes `data` as the answer to the query that it repeats, for each kind of record.
pub fn fuzz_dns(data: &[u8]) {
    let id = data.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
    let stated = name::decode(data, 12).map_or_else(|| "a".to_owned(), |(stated, _)| stated);
    for kind in RecordKind::ALL {
        let Some(question) = Question::new(&stated, kind) else { continue };
        let answer = decode_answer(&question, id, data);
        assert_eq!(decode_answer(&question, !id, data), Err(Fault::Foreign), "another query");
        if let Ok(Answer::Records { records, .. }) = &answer {
            assert!((1..=RECORDS_MAX).contains(&records.len()), "{} records", records.len());
            for record in records {
                check(record, kind);
            }
        }
        let mut query = Vec::new();
        encode_query(&question, id, &mut query);
        assert_eq!(decode_answer(&question, id, &query), Err(Fault::Foreign), "a query");
        let (asked, _) = name::decode(&query, 12).expect("the name of a query");
        assert_eq!(asked, question.name());
    }
}

fn check(record: &Record, asked: RecordKind) {
    let kind = match record {
        Record::A(_) => RecordKind::A,
        Record::Aaaa(_) => RecordKind::Aaaa,
        Record::Srv { target, .. } => {
            assert!(target.len() <= NAME_BYTES_MAX, "{} bytes", target.len());
            RecordKind::Srv
        }
        Record::Txt(_) => RecordKind::Txt,
    };
    assert_eq!(kind, asked);
}
