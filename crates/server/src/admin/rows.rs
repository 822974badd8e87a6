//! Rows with named columns, as commands show them: as text with a heading, or as JSON.
//! In: values. Out: `# a b` and a line for each row, or an array of objects.

use core::borrow::Borrow;

use serde_json::{Map, Value};

use super::command::Outcome;
use super::command::Reply::Shown;

/// Rows that a command shows.
pub(super) struct Rows {
    columns: &'static [&'static str],
    rows: Vec<Vec<Value>>,
    /// Lines before the rows. Only the text has them, not the JSON.
    notes: String,
}

impl Rows {
    /// No rows.
    pub(super) fn new(columns: &'static [&'static str]) -> Self {
        Self { columns, rows: Vec::new(), notes: String::new() }
    }

    /// Adds a row: a value for each column.
    pub(super) fn push<const COLUMNS: usize>(&mut self, row: [Value; COLUMNS]) {
        debug_assert_eq!(COLUMNS, self.columns.len(), "a value for each column");
        self.rows.push(row.into());
    }

    /// Adds a line before the rows of the text.
    pub(super) fn note(&mut self, line: &str) {
        self.notes.push_str(line);
    }

    /// The reply of a command.
    pub(super) fn shown(self, is_json: bool) -> Outcome {
        Ok(Shown(if is_json { self.json() } else { self.text() }))
    }

    fn text(&self) -> String {
        let mut text = format!("{}# {}\n", self.notes, self.columns.join(" "));
        for row in &self.rows {
            let words: Vec<String> = row.iter().map(word).collect();
            text.push_str(&words.join(" "));
            text.push('\n');
        }
        text
    }

    fn json(&self) -> String {
        let object = |row: &Vec<Value>| {
            let names = self.columns.iter().map(|name| (*name).to_owned());
            Value::Object(names.zip(row.iter().cloned()).collect::<Map<_, _>>())
        };
        format!("{}\n", Value::Array(self.rows.iter().map(object).collect()))
    }
}

/// A value as one word.
fn word(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) if text.contains([' ', '"']) || text.contains(char::is_control) => {
            format!("\"{}\"", text.escape_debug())
        }
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => "-".to_owned(),
        Value::Array(values) => values.iter().map(word).collect::<Vec<_>>().join(","),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    }
}

/// The names that exist, for a message.
pub(super) fn listed<N: Borrow<str>>(names: &[N]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Whether a command whose only argument is `json` is to show JSON.
///
/// # Errors
/// There is another argument.
pub(super) fn wants_json(command: &str, arguments: &[&str]) -> Result<bool, String> {
    match arguments {
        [] => Ok(false),
        ["json"] => Ok(true),
        _ => {
            let given = arguments.join(" ");
            Err(format!(
                "`{command}` does not accept {given:?}; allowed: `{command}`, `{command} json`"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_words_or_objects() {
        let mut rows = Rows::new(&["name", "count", "list"]);
        rows.note("# a note\n");
        rows.push(["a b".into(), 3.into(), json!(["x", "y"])]);
        rows.push(["c".into(), Value::Null, json!([])]);
        assert_eq!(rows.text(), "# a note\n# name count list\n\"a b\" 3 x,y\nc - -\n");
        let json: Value = serde_json::from_str(&rows.json()).expect("it is JSON");
        assert_eq!(json[0], json!({"name": "a b", "count": 3, "list": ["x", "y"]}));
    }

    #[test]
    fn empty_list_is_stated() {
        assert_eq!((listed::<&str>(&[]), listed(&["a", "b"])), ("none".into(), "a, b".into()));
    }

    #[test]
    fn only_json_is_an_argument() {
        assert_eq!(wants_json("show tls", &[]), Ok(false));
        assert_eq!(wants_json("show tls", &["json"]), Ok(true));
        let error = wants_json("show tls", &["x", "y"]).expect_err("an error");
        assert_eq!(
            error,
            "`show tls` does not accept \"x y\"; allowed: `show tls`, `show tls json`"
        );
    }
}
