//! The TOML that is written: blocks with settings, and comments about lines that were not translated.
//! In: blocks in their order; findings. Out: text, and which setting each line of it came from.
//! Never: writes a value that is not valid TOML, whatever its characters.

use core::fmt::Write as _;
use std::collections::BTreeMap;

use crate::finding::{Finding, LineResult};

/// A longer setting is written in several lines.
const COLUMNS_MAX: usize = 110;

/// A value of TOML.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
    List(Vec<Value>),
    Table(Vec<(String, Value)>),
}

impl Value {
    /// A string, or a list of several.
    pub(crate) fn one_or_many(mut texts: Vec<String>) -> Self {
        match texts.len() {
            1 => Self::Text(texts.pop().unwrap_or_default()),
            _ => Self::List(texts.into_iter().map(Self::Text).collect()),
        }
    }

    /// The text, if the value is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(_) | Self::Flag(_) | Self::List(_) | Self::Table(_) => None,
        }
    }

    /// The elements, if the value is a list.
    pub(crate) fn elements(&self) -> &[Self] {
        match self {
            Self::List(elements) => elements,
            Self::Text(_) | Self::Number(_) | Self::Flag(_) | Self::Table(_) => &[],
        }
    }

    /// The value of `name`, if this is a table that has it.
    pub(crate) fn entry(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Table(entries) => {
                entries.iter().find(|(own, _)| own == name).map(|(_, value)| value)
            }
            Self::Text(_) | Self::Number(_) | Self::Flag(_) | Self::List(_) => None,
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => out.push_str(&quoted(text)),
            Self::Number(number) => {
                let _ = write!(out, "{number}");
            }
            Self::Flag(flag) => {
                let _ = write!(out, "{flag}");
            }
            Self::List(values) => {
                out.push('[');
                for (index, value) in values.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    value.write(out);
                }
                out.push(']');
            }
            Self::Table(entries) if entries.is_empty() => out.push_str("{}"),
            Self::Table(entries) => {
                out.push_str("{ ");
                for (index, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if index == 0 { "" } else { ", " });
                    out.push_str(&key_text(key));
                    out.push_str(" = ");
                    value.write(out);
                }
                out.push_str(" }");
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A setting, and the line of the input that it came from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    pub(crate) key: String,
    pub(crate) value: Value,
    /// The line of the input; 0 if there is none.
    pub(crate) line: usize,
    /// Whether the entries of a table are written in a line each, so that errors name the entry.
    pub(crate) is_spread: bool,
}

impl Setting {
    pub(crate) fn new(key: &str, value: impl Into<Value>, line: usize) -> Self {
        Self { key: key.to_owned(), value: value.into(), line, is_spread: false }
    }
}

/// The kind of a block of the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum BlockKind {
    /// `[server]`, `[admin]` and the like.
    Process,
    Listener,
    Route,
    Pool,
    /// `[map.NAME]`, `[set.NAME]` or `[table.NAME]`.
    Lookup,
}

/// A table of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    /// The header, such as `[[route]]`.
    pub(crate) header: String,
    /// The settings, in their order.
    pub(crate) settings: Vec<Setting>,
    /// The line of the input that the block came from; 0 if there is none.
    pub(crate) line: usize,
}

impl Block {
    pub(crate) fn new(kind: BlockKind, header: impl Into<String>, line: usize) -> Self {
        Self { kind, header: header.into(), settings: Vec::new(), line }
    }

    /// The header of a table with a name, such as `[pool.app]`.
    pub(crate) fn named(kind: BlockKind, table: &str, name: &str, line: usize) -> Self {
        Self::new(kind, format!("[{table}.{}]", key_text(name)), line)
    }

    /// Sets `key`; a later value replaces an earlier one.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>, line: usize) {
        let setting = Setting::new(key, value, line);
        match self.settings.iter_mut().find(|own| own.key == key) {
            Some(own) => *own = setting,
            None => self.settings.push(setting),
        }
    }

    /// Sets `name` in the table `key`.
    pub(crate) fn set_in(&mut self, key: &str, name: &str, value: impl Into<Value>, line: usize) {
        let value = value.into();
        if !self.has(key) {
            self.set(key, Value::Table(Vec::new()), line);
        }
        let Some(own) = self.settings.iter_mut().find(|own| own.key == key) else { return };
        if let Value::Table(entries) = &mut own.value {
            match entries.iter_mut().find(|(own, _)| own == name) {
                Some((_, own)) => *own = value,
                None => entries.push((name.to_owned(), value)),
            }
        }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.settings.iter().any(|own| own.key == key)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.settings.iter().find(|own| own.key == key).map(|own| &own.value)
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.settings.retain(|own| own.key != key);
    }
}

/// Which part of the document a line of the text is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Origin {
    /// The index of the block.
    pub(crate) block: usize,
    /// The index of the setting; `None` for the header.
    pub(crate) setting: Option<usize>,
    /// The index of the element, in a list or table that is written in several lines.
    pub(crate) element: Option<usize>,
}

/// The file that is written.
#[derive(Default)]
pub(crate) struct Document {
    pub(crate) blocks: Vec<Block>,
}

impl Document {
    /// The text, and for each line, counted from 1, where it came from.
    pub(crate) fn render(
        &self,
        head: &str,
        name: &str,
        findings: &[Finding],
    ) -> (String, BTreeMap<usize, Origin>) {
        let mut text = Text { out: head.to_owned(), counted: (0, 0), origins: BTreeMap::new() };
        let mut places = self.places(findings);
        for (index, block) in self.blocks.iter().enumerate() {
            text.out.push('\n');
            for finding in places.remove(&index).unwrap_or_default() {
                text.comment(name, finding);
            }
            text.block(index, block);
        }
        let rest: Vec<_> = places.into_values().flatten().collect();
        if !rest.is_empty() {
            text.out.push('\n');
        }
        for finding in rest {
            text.comment(name, finding);
        }
        (text.out, text.origins)
    }

    /// The findings before each block: those about lines since the line of the block, up to the next block's.
    fn places<'f>(&self, findings: &'f [Finding]) -> BTreeMap<usize, Vec<&'f Finding>> {
        let mut starts: Vec<(usize, usize)> = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            if block.line > 0 && !starts.iter().any(|(line, _)| *line == block.line) {
                starts.push((block.line, index));
            }
        }
        starts.sort_unstable();
        let mut places: BTreeMap<usize, Vec<&Finding>> = BTreeMap::new();
        for finding in findings.iter().filter(|finding| finding.result != LineResult::Unneeded) {
            let before = starts.partition_point(|(line, _)| *line <= finding.line);
            let block = before.checked_sub(1).and_then(|at| starts.get(at)).map_or(0, |at| at.1);
            places.entry(block).or_default().push(finding);
        }
        places
    }
}

/// The text so far.
struct Text {
    out: String,
    /// The bytes and the lines that were counted so far.
    counted: (usize, usize),
    origins: BTreeMap<usize, Origin>,
}

impl Text {
    fn comment(&mut self, name: &str, finding: &Finding) {
        let Finding { line, text, result, why } = finding;
        let _ = match line {
            0 => writeln!(self.out, "# {name}: {}: {why}", result.words()),
            _ => writeln!(self.out, "# {name}:{line}: {}: {text}\n#   {why}", result.words()),
        };
    }

    /// Notes where the text since `start` came from.
    fn came_from(&mut self, start: usize, origin: Origin) {
        let (bytes, lines) = self.counted;
        let first = lines + self.out[bytes..start].matches('\n').count() + 1;
        let last = first + self.out[start..].matches('\n').count();
        self.counted = (self.out.len(), last - 1);
        for line in first..last {
            self.origins.insert(line, origin);
        }
    }

    fn block(&mut self, index: usize, block: &Block) {
        let start = self.out.len();
        let _ = writeln!(self.out, "{}", block.header);
        self.came_from(start, Origin { block: index, setting: None, element: None });
        let mut tables = Vec::new();
        for (at, setting) in block.settings.iter().enumerate() {
            let line = setting_text(&setting.key, &setting.value);
            let origin = Origin { block: index, setting: Some(at), element: None };
            match &setting.value {
                Value::List(values) if line.len() > COLUMNS_MAX => {
                    self.list(&setting.key, values, origin);
                }
                Value::Table(entries) if line.len() > COLUMNS_MAX || setting.is_spread => {
                    tables.push((&setting.key, entries, origin));
                }
                _ => {
                    let start = self.out.len();
                    self.out.push_str(&line);
                    self.came_from(start, origin);
                }
            }
        }
        for (key, entries, origin) in tables {
            let start = self.out.len();
            let name = block.header.trim_matches(['[', ']']);
            let _ = writeln!(self.out, "[{name}.{}]", key_text(key));
            self.came_from(start, origin);
            for (element, (key, value)) in entries.iter().enumerate() {
                let start = self.out.len();
                self.out.push_str(&setting_text(key, value));
                self.came_from(start, Origin { element: Some(element), ..origin });
            }
        }
    }

    fn list(&mut self, key: &str, values: &[Value], origin: Origin) {
        let start = self.out.len();
        let _ = writeln!(self.out, "{} = [", key_text(key));
        self.came_from(start, origin);
        for (element, value) in values.iter().enumerate() {
            let start = self.out.len();
            self.out.push_str("  ");
            value.write(&mut self.out);
            self.out.push_str(",\n");
            self.came_from(start, Origin { element: Some(element), ..origin });
        }
        let start = self.out.len();
        self.out.push_str("]\n");
        self.came_from(start, origin);
    }
}

fn setting_text(key: &str, value: &Value) -> String {
    let mut line = format!("{} = ", key_text(key));
    value.write(&mut line);
    line.push('\n');
    line
}

/// A key, in quotes if its characters require them.
pub(crate) fn key_text(key: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    match !key.is_empty() && key.bytes().all(is_bare) {
        true => key.to_owned(),
        false => quoted(key),
    }
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() && c != '\'';
    if text.contains(['\\', '"']) && text.chars().all(is_plain) {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
