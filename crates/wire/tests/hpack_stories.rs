//! Header blocks of other HPACK encoders decode to the fields that were encoded.
//! `data/hpack_stories.txt` comes from `data/hpack_stories.py`, which explains the format.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use tidegate_wire::http2::hpack::{Decoder, Encoder, Field, Indexing, Limits, Scratch};

const LIMITS: Limits = Limits { fields_max: 1000, crumbs_max: 1000, list_bytes_max: 1 << 20 };

type List = Vec<(Vec<u8>, Vec<u8>, bool)>;

fn bytes_of(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn decode(decoder: &mut Decoder, scratch: &mut Scratch, block: &[u8]) -> List {
    let mut list = List::new();
    let mut sink = |field: Field<'_>| {
        list.push((field.name.to_vec(), field.value.to_vec(), field.is_sensitive));
        ControlFlow::Continue(())
    };
    let decoded = decoder.decode(block, &LIMITS, scratch, &mut sink).unwrap();
    assert_eq!(decoded.undelivered, None);
    list
}

fn without_marks(list: &List) -> Vec<(&[u8], &[u8])> {
    list.iter().map(|(name, value, _)| (&name[..], &value[..])).collect()
}

/// Decodes the stories in `text`. Returns how many stories and blocks there were.
fn run(text: &str, has_marks: bool) -> (usize, usize) {
    let mut lists = Vec::new();
    let (mut stories, mut blocks) = (0, 0);
    let (mut decoder, mut scratch) = (Decoder::new(), Scratch::new());
    let mut expected = Vec::new().into_iter();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some((field, value)) = line.split_once('\t') {
            let name = field.strip_prefix('!').unwrap_or(field);
            let list: &mut List = lists.last_mut().unwrap();
            list.push((name.into(), value.into(), name != field));
            continue;
        }
        match line.split_once(' ').unwrap_or((line, "")) {
            ("list", _) => lists.push(List::new()),
            ("encoder", _) => {
                (decoder, expected) = (Decoder::new(), lists.clone().into_iter());
                stories += 1;
            }
            ("limit", bytes) => decoder.acknowledge_table_limit(bytes.parse().unwrap()),
            ("block", hex) => {
                let list = decode(&mut decoder, &mut scratch, &bytes_of(hex));
                let expected = expected.next().unwrap();
                assert_eq!(without_marks(&list), without_marks(&expected), "block {hex}");
                assert!(
                    !has_marks || has_all_marks(&list, &expected),
                    "block {hex}: sensitive fields"
                );
                blocks += 1;
                decoder.shrink();
            }
            other => panic!("unknown line {other:?}"),
        }
    }
    check_own_encoder(&lists);
    (stories, blocks)
}

/// Encoders may mark more fields than the caller requested.
fn has_all_marks(list: &List, expected: &List) -> bool {
    list.iter().zip(expected).all(|(field, wanted)| field.2 || !wanted.2)
}

/// Encodes `lists` with this crate's encoder as one story and decodes it.
fn check_own_encoder(lists: &[List]) {
    let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::new());
    let mut scratch = Scratch::new();
    for (number, list) in lists.iter().enumerate() {
        if number % 10 == 9 {
            encoder.release();
        }
        let mut block = Vec::new();
        let mut fields = encoder.begin(&mut block);
        for (name, value, is_sensitive) in list {
            let indexing = if *is_sensitive { Indexing::Never } else { Indexing::Auto };
            fields.encode_field(name, value, indexing);
        }
        let again = decode(&mut decoder, &mut scratch, &block);
        assert_eq!(without_marks(&again), without_marks(list));
        assert!(has_all_marks(&again, list));
    }
}

#[test]
fn header_blocks_of_three_encoders_are_decoded() {
    let (stories, blocks) = run(include_str!("data/hpack_stories.txt"), true);
    assert_eq!((stories, blocks), (3, 72));
    // The stories of github.com/http2jp/hpack-test-case, converted by `data/hpack_stories.py FOLDER TARGET`, are
    // decoded too if HPACK_STORIES names their folder.
    if let Some(folder) = std::env::var_os("HPACK_STORIES") {
        run_folder(Path::new(&folder));
    }
}

/// Decodes the stories in `folder`.
fn run_folder(folder: &Path) {
    let (mut files, mut stories, mut blocks) = (0, 0, 0);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let outcome = std::panic::catch_unwind(|| run(&fs::read_to_string(&path).unwrap(), false));
        let (some_stories, some_blocks) = outcome.unwrap_or_else(|_| panic!("{}", path.display()));
        files += 1;
        stories += some_stories;
        blocks += some_blocks;
    }
    assert!(files > 0);
    eprintln!("{files} files, {stories} stories of other encoders, {blocks} blocks");
}
