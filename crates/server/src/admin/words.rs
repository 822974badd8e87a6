//! The words of a command.
//! In: the text of a command. Out: its words; the table of `add route` and `add pool`, from the first brace to the last one, is one word.

/// The commands that have a table.
const WITH_TABLE: [[&str; 2]; 2] = [["add", "pool"], ["add", "route"]];

/// The words of a command.
pub(super) fn words_of(command: &str) -> Vec<&str> {
    let (Some(begin), Some(end)) = (command.find('{'), command.rfind('}')) else {
        return command.split_ascii_whitespace().collect();
    };
    let mut words: Vec<&str> = command[..begin].split_ascii_whitespace().collect();
    if begin > end || !WITH_TABLE.iter().any(|first| words.starts_with(first)) {
        return command.split_ascii_whitespace().collect();
    }
    words.push(&command[begin..=end]);
    words.extend(command[end + 1..].split_ascii_whitespace());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_a_part_is_one_word() {
        let words = |text| words_of(text).join("|");
        assert_eq!(
            words("add  route { host = \"a  b\", respond = {} } before a.example/x/*"),
            "add|route|{ host = \"a  b\", respond = {} }|before|a.example/x/*"
        );
        assert_eq!(words("add pool p {servers=[]}"), "add|pool|p|{servers=[]}");
        for (text, expected) in [
            ("add route { host", "add|route|{|host"),
            ("add route } {", "add|route|}|{"),
            ("add map m {a b} c", "add|map|m|{a|b}|c"),
            ("{ add route }", "{|add|route|}"),
            (" show  info ", "show|info"),
            ("", ""),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }
}
