//! The words of a command.
//! In: the text of a command. Out: its words; the table of `add route` and `add pool`, up to the end of its braces, is one word.

/// The commands that have a table.
const WITH_TABLE: [[&str; 2]; 2] = [["add", "pool"], ["add", "route"]];

/// The words of a command.
pub(super) fn words_of(command: &str) -> Vec<&str> {
    let Some(begin) = command.find('{') else {
        return command.split_ascii_whitespace().collect();
    };
    let mut words: Vec<&str> = command[..begin].split_ascii_whitespace().collect();
    // A table without an end: the reader of TOML says what is missing.
    let end = table_end(command.as_bytes(), begin).or_else(|| command.rfind('}').map(|at| at + 1));
    let end =
        end.filter(|end| begin < *end && WITH_TABLE.iter().any(|first| words.starts_with(first)));
    let Some(end) = end else {
        return command.split_ascii_whitespace().collect();
    };
    words.push(&command[begin..end]);
    words.extend(command[end..].split_ascii_whitespace());
    words
}

/// The end of the inline table that begins at `begin`, unless it has none. Braces in strings do not count.
fn table_end(text: &[u8], begin: usize) -> Option<usize> {
    let (mut at, mut depth) = (begin, 0_usize);
    loop {
        match *text.get(at)? {
            b'{' => depth += 1,
            b'}' if depth <= 1 => return Some(at + 1),
            b'}' => depth -= 1,
            quote @ (b'"' | b'\'') => {
                at = string_end(text, at, quote)?;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

/// The end of the TOML string that begins at `begin`, unless it has none.
fn string_end(text: &[u8], begin: usize, quote: u8) -> Option<usize> {
    let triple = [quote; 3];
    let mark = if text[begin..].starts_with(&triple) { &triple[..] } else { &triple[..1] };
    let mut at = begin + mark.len();
    loop {
        at += match text.get(at..)? {
            [] => return None,
            [b'\\', ..] if quote == b'"' => 2,
            rest if rest.starts_with(mark) => return Some(at + mark.len()),
            _ => 1,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_a_part_is_one_word() {
        let words = |text: &str| words_of(text).join("|");
        assert_eq!(
            words("add  route { host = \"a  b\", respond = {} } before a.example/x/*"),
            "add|route|{ host = \"a  b\", respond = {} }|before|a.example/x/*"
        );
        assert_eq!(words("add pool p {servers=[]}"), "add|pool|p|{servers=[]}");
        assert_eq!(
            words("add route { path = \"/u/1\", respond = {} } before /u/{id}"),
            "add|route|{ path = \"/u/1\", respond = {} }|before|/u/{id}"
        );
        // Braces in strings of all kinds.
        for table in [
            r#"{ path = "/{id} } \" }", a = '} \' }"#,
            r#"{ a = """ } "x" } """, b = "", c = '''}'} ''' }"#,
        ] {
            let text = format!("add route {table} before /{{id}}");
            assert_eq!(words(&text), format!("add|route|{table}|before|/{{id}}"));
        }
        for (text, expected) in [
            ("add route { host", "add|route|{|host"),
            ("add route } {", "add|route|}|{"),
            ("add route { a = \"} } b", "add|route|{ a = \"} }|b"),
            ("add map m {a b} c", "add|map|m|{a|b}|c"),
            ("{ add route }", "{|add|route|}"),
            (" show  info ", "show|info"),
            ("", ""),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }
}
