//! Checks parsed TOML against the table of settings: unknown names, wrong types and values out of range.
//! In: a spanned TOML value and its `Section`. Out: checked scalars; a note for each mistake.
//! Never: stops at the first mistake.
//! Invariant: a getter is called only with names that the section contains.

use core::ops::Range;

use tidegate_base::Span;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::foreign;
use crate::keys::{Key, Preset, Section, Shape, sections};
use crate::model::MemoryMax;
use crate::nearest::nearest;
use crate::pattern;
use crate::report::{Kind, Note, Notes, quoted};
use crate::template::{self, Paths, Place};
use crate::units;
use crate::words::Keyword;

/// Maximum number of sections that a message names as the place of a setting.
const PLACES_MAX: usize = 3;

/// A value with its byte range in the text.
pub(crate) type Value<'t> = Spanned<DeValue<'t>>;

/// A string of the file with its place.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// The string, unescaped.
    pub(crate) text: String,
    /// Byte range of the string in the file.
    pub(crate) place: Range<usize>,
}

impl Located {
    /// The string, if it can be the name of a field; otherwise an error is noted.
    pub(crate) fn field_name(&self, notes: &mut Notes) -> Option<&str> {
        if pattern::is_token(&self.text) {
            return Some(&self.text);
        }
        let what = format!("{} is not a field name", quoted(&self.text));
        let note = Note::new(Kind::Value, self.place.clone(), what);
        notes.error(note.allowed(TOKEN_FORM));
        None
    }
}

/// The form of a token (RFC 9110 section 5.6.2), in messages.
pub(crate) const TOKEN_FORM: &str = "letters, digits and !#$%&'*+-.^_`|~";

/// A table of the file and the section that describes its settings.
pub(crate) struct Table<'t> {
    /// The settings that the table may contain.
    section: &'static Section,
    /// The entries of the table, as parsed.
    entries: &'t DeTable<'t>,
    /// Byte range of the table: its header, or its braces.
    pub(crate) place: Range<usize>,
}

/// A value that conforms to its shape. `NoNumber` is a word in place of a number, such as "unlimited".
pub(crate) enum Scalar {
    Text(String),
    Word(String),
    Name,
    NoNumber,
    Boolean(bool),
    Number(u64),
    Duration(Span),
    Size(u64),
}

impl<'t> Table<'t> {
    /// Opens `value` as a table, and notes unknown names and missing required settings.
    pub(crate) fn open(
        section: &'static Section,
        value: &'t Value<'t>,
        notes: &mut Notes,
    ) -> Option<Self> {
        let Some(entries) = value.get_ref().as_table() else {
            let note =
                wrong_type(section.path, value, &format!("a table with: {}", section.names()));
            let is_rows = value.get_ref().as_array().is_some_and(|rows| {
                !rows.is_empty() && rows.iter().all(|row| row.get_ref().as_table().is_some())
            });
            let shown = value.get_ref().as_str().map_or_else(String::new, quoted);
            notes.error(match is_rows {
                true => note.help("write the header with single brackets: [ ] instead of [[ ]]"),
                false => match foreign::table(section.path, &shown) {
                    Some(help) => note.help(help),
                    None => note,
                },
            });
            return None;
        };
        let table = Self { section, entries, place: value.span() };
        table.check_names(notes);
        Some(table)
    }

    /// Opens the whole file.
    pub(crate) fn open_root(
        section: &'static Section,
        root: &'t Spanned<DeTable<'t>>,
        notes: &mut Notes,
    ) -> Self {
        let table = Self { section, entries: root.get_ref(), place: 0..0 };
        table.check_names(notes);
        table
    }

    fn check_names(&self, notes: &mut Notes) {
        for (name, value) in self.entries {
            if self.section.key(name.get_ref()).is_none() {
                notes.error(unknown(self.section, name, value));
            }
        }
        for key in self.section.keys {
            if matches!(key.preset, Preset::Required)
                && self.value(key.name).is_none()
                && !self.has_word_for(key.name)
            {
                let what = format!("{} has no `{}`", self.section.path, key.name);
                let note = Note::new(Kind::Missing, self.place.clone(), what);
                notes.error(
                    note.allowed(describe(&key.shape)).help(example(self.section.path, key)),
                );
            }
        }
    }

    /// Whether the table has a setting of a later version; an error for it is already noted.
    pub(crate) fn has_later(&self) -> bool {
        self.section.later.iter().any(|(name, _)| self.entries.contains_key(*name))
    }

    /// Whether the table has an unknown name; an error for it is already noted.
    pub(crate) fn has_unknown(&self) -> bool {
        self.entries.keys().any(|name| self.section.key(name.get_ref()).is_none())
    }

    /// Whether the table has a word of another program for the setting `name`; an error for it is already noted.
    pub(crate) fn has_word_for(&self, name: &str) -> bool {
        let instead = format!("write {name} = ");
        let helps = self.entries.keys().filter_map(|word| {
            let word = word.get_ref();
            foreign::setting(self.section.path, word).filter(|_| self.section.key(word).is_none())
        });
        helps.into_iter().any(|help| help.starts_with(&instead))
    }

    /// The value under `name`, unchecked.
    pub(crate) fn value(&self, name: &str) -> Option<&'t Value<'t>> {
        debug_assert!(self.section.key(name).is_some(), "{name} is not a setting of this section");
        self.entries.get(name)
    }

    /// The place of the name of a setting; the place of the table if the setting is absent.
    pub(crate) fn key_place(&self, name: &str) -> Range<usize> {
        self.entries.get_key_value(name).map_or(self.place.clone(), |(key, _)| key.span())
    }

    /// Every name and value in file order, for tables whose keys the user chooses.
    pub(crate) fn open_fields(
        &self,
        name: &str,
        notes: &mut Notes,
    ) -> Vec<(Located, &'t Value<'t>)> {
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        let Some(entries) = value.get_ref().as_table() else {
            let note = wrong_type(&format!("`{name}`"), value, "a table");
            let has_names =
                self.section.key(name).is_some_and(|key| matches!(key.shape, Shape::Named(_)));
            notes.error(match has_names {
                true => note.help(match self.section.path {
                    "the file" => format!("write [{name}.NAME], with a name of your choice"),
                    path => format!(
                        "write {}.{name}.NAME], with a name of your choice",
                        path.trim_end_matches(']')
                    ),
                }),
                false => note,
            });
            return Vec::new();
        };
        let mut fields: Vec<_> = entries
            .iter()
            .map(|(key, value)| {
                (Located { text: key.get_ref().to_string(), place: key.span() }, value)
            })
            .collect();
        fields.sort_by_key(|(name, _)| name.place.start);
        fields
    }

    /// The tables of `[[name]]`, in file order.
    pub(crate) fn open_rows(&self, name: &str, notes: &mut Notes) -> Vec<Self> {
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        let Some(section) = self.section.key(name).and_then(|key| key.shape.section()) else {
            return Vec::new();
        };
        let Some(rows) = value.get_ref().as_array() else {
            let note = wrong_type(&format!("`{name}`"), value, "an array of tables");
            notes.error(note.help(format!("write [[{name}]], with two brackets")));
            return Vec::new();
        };
        rows.iter().filter_map(|row| Self::open(section, row, notes)).collect()
    }

    /// The table under `name`, if it is present.
    pub(crate) fn open_table(&self, name: &str, notes: &mut Notes) -> Option<Self> {
        let section = self.section.key(name)?.shape.section()?;
        Self::open(section, self.value(name)?, notes)
    }

    /// The string under `name`.
    pub(crate) fn text(&self, name: &str, notes: &mut Notes) -> Option<Located> {
        let place = self.value(name)?.span();
        self.read(name, notes, |scalar| match scalar {
            Scalar::Text(text) => Some(Located { text, place }),
            _ => None,
        })
    }

    /// The variant of the word under `name`.
    pub(crate) fn word<T: Keyword>(&self, name: &str, notes: &mut Notes) -> Option<T> {
        self.read(name, notes, |scalar| match scalar {
            Scalar::Word(word) => T::from_word(&word),
            _ => None,
        })
    }

    /// Stores the variant of the word under `name` in `target`, if it is present and valid.
    pub(crate) fn set_word<T: Keyword>(&self, name: &str, target: &mut T, notes: &mut Notes) {
        if let Some(variant) = self.word(name, notes) {
            *target = variant;
        }
    }

    /// Whether a setting whose only value is `true` (such as `synthetic`) is present and valid.
    pub(crate) fn flag(&self, name: &str, notes: &mut Notes) -> bool {
        self.is_true(name, notes) == Some(true)
    }

    /// The boolean under `name`.
    pub(crate) fn is_true(&self, name: &str, notes: &mut Notes) -> Option<bool> {
        self.read(name, notes, |scalar| match scalar {
            Scalar::Boolean(truth) => Some(truth),
            _ => None,
        })
    }

    /// The string under `name`; `None` if the section has no such setting.
    pub(crate) fn text_if_known(&self, name: &str, notes: &mut Notes) -> Option<Located> {
        self.section.key(name)?;
        self.text(name, notes)
    }

    /// The strings under `name`: one string, or an array of strings.
    pub(crate) fn texts(&self, name: &str, notes: &mut Notes) -> Vec<Located> {
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        texts_of(&format!("`{name}`"), value, notes)
    }

    /// Stores the boolean under `name` in `target`, if it is present and valid.
    pub(crate) fn set_flag(&self, name: &str, target: &mut bool, notes: &mut Notes) {
        if let Some(truth) = self.is_true(name, notes) {
            *target = truth;
        }
    }

    /// Stores the number under `name` in `target`, if it is present and valid.
    pub(crate) fn set_number<T: TryFrom<u64>>(
        &self,
        name: &str,
        target: &mut T,
        notes: &mut Notes,
    ) {
        let number = self.read(name, notes, |scalar| match scalar {
            Scalar::Number(number) => T::try_from(number).ok(),
            _ => None,
        });
        if let Some(number) = number {
            *target = number;
        }
    }

    /// Stores the number or size under `name` in `target`. Its word ("unlimited", "auto") sets `None`.
    pub(crate) fn set_bound<T: TryFrom<u64>>(
        &self,
        name: &str,
        target: &mut Option<T>,
        notes: &mut Notes,
    ) {
        let bound = self.read(name, notes, |scalar| match scalar {
            Scalar::Number(number) | Scalar::Size(number) => T::try_from(number).ok().map(Some),
            Scalar::NoNumber => Some(None),
            _ => None,
        });
        if let Some(bound) = bound {
            *target = bound;
        }
    }

    /// Stores the duration under `name` in `target`, if it is present and valid.
    pub(crate) fn set_duration(&self, name: &str, target: &mut Span, notes: &mut Notes) {
        let span = self.read(name, notes, |scalar| match scalar {
            Scalar::Duration(span) => Some(span),
            _ => None,
        });
        if let Some(span) = span {
            *target = span;
        }
    }

    /// Stores the duration under `name` in `target`. Its word ("off") sets `None`.
    pub(crate) fn set_timeout(&self, name: &str, target: &mut Option<Span>, notes: &mut Notes) {
        let timeout = self.read(name, notes, |scalar| match scalar {
            Scalar::Duration(span) => Some(Some(span)),
            Scalar::NoNumber => Some(None),
            _ => None,
        });
        if let Some(timeout) = timeout {
            *target = timeout;
        }
    }

    /// Stores the size under `name` in `target`, in bytes, if it is present and valid.
    pub(crate) fn set_size(&self, name: &str, target: &mut usize, notes: &mut Notes) {
        let bytes = self.read(name, notes, |scalar| match scalar {
            Scalar::Size(bytes) => usize::try_from(bytes).ok(),
            _ => None,
        });
        if let Some(bytes) = bytes {
            *target = bytes;
        }
    }

    /// The amount of memory under `name`: a size, or a percentage.
    pub(crate) fn memory_max(&self, name: &str, notes: &mut Notes) -> Option<MemoryMax> {
        self.read(name, notes, |scalar| match scalar {
            Scalar::Size(bytes) => Some(MemoryMax::Bytes(bytes)),
            Scalar::Text(text) => {
                let percent = text.strip_suffix('%')?.parse::<u8>().ok();
                percent.filter(|percent| (1..=100).contains(percent)).map(MemoryMax::Percent)
            }
            _ => None,
        })
    }

    /// The value under `name`, converted by `take`. A value that does not fit its shape is an error. A value that fits but
    /// that `take` cannot convert is an error, too, so that no value is ignored.
    fn read<T>(
        &self,
        name: &str,
        notes: &mut Notes,
        take: impl FnOnce(Scalar) -> Option<T>,
    ) -> Option<T> {
        let (key, value) = (self.section.key(name)?, self.value(name)?);
        let inserted = || {
            let text = value.get_ref().as_str()?;
            let is_inserted = notes.inserted.contains(&value.span().start);
            conform_text(&key.shape, text).filter(|_| is_inserted)
        };
        let taken = conform(&key.shape, value.get_ref()).or_else(inserted).and_then(take);
        if taken.is_none() {
            notes.error(refused(self.section, key, value));
        }
        taken
    }
}

/// The strings of a value that is a string or an array of strings; `subject` names it in messages.
pub(crate) fn texts_of(subject: &str, value: &Value<'_>, notes: &mut Notes) -> Vec<Located> {
    if let Some(text) = value.get_ref().as_str() {
        return vec![Located { text: text.to_owned(), place: value.span() }];
    }
    let Some(items) = value.get_ref().as_array() else {
        notes.error(wrong_type(subject, value, "a string, or an array of strings"));
        return Vec::new();
    };
    let mut texts = Vec::with_capacity(items.len());
    for item in items.iter() {
        match item.get_ref().as_str() {
            Some(text) => texts.push(Located { text: text.to_owned(), place: item.span() }),
            None => notes.error(wrong_type(&format!("an entry of {subject}"), item, "a string")),
        }
    }
    texts
}

/// An error note: the value of `subject` has the wrong type.
pub(crate) fn wrong_type(subject: &str, value: &Value<'_>, wanted: &str) -> Note {
    let found = type_name(value.get_ref());
    Note::new(Kind::Type, value.span(), format!("{subject} cannot be {found}")).allowed(wanted)
}

/// Describes the values that a shape accepts.
pub(crate) fn describe(shape: &Shape) -> String {
    match shape {
        Shape::Boolean => "true or false".to_owned(),
        Shape::True => "true".to_owned(),
        Shape::Text(form) => (*form).to_owned(),
        Shape::Word(words) | Shape::Name(words) => describe_words(words),
        Shape::NoNumber(word) => describe_words(&[word]),
        Shape::Number(min, max) => format!("an integer from {min} to {max}"),
        Shape::Duration(min, max) => format!(
            "a duration from \"{}\" to \"{}\" (a string; units: {})",
            units::write_duration(*min),
            units::write_duration(*max),
            units::DURATION_UNITS
        ),
        Shape::Size(min, max) => format!(
            "a size from \"{}\" to \"{}\" (a string; units: {})",
            units::write_size(*min),
            units::write_size(*max),
            units::SIZE_UNITS
        ),
        Shape::OneOf(shapes) => shapes.iter().map(describe).collect::<Vec<_>>().join(", or "),
        Shape::List(shape) => format!("an array of: {}", describe(shape)),
        Shape::Fields(shape) => format!("a table that maps names to: {}", describe(shape)),
        Shape::Table(section) => format!("a table with: {}", section.names()),
        Shape::Rows(section) => format!("{} with: {}", section.path, section.names()),
        Shape::Named(section) => format!("{} with: {}", section.path, section.names()),
    }
}

/// The words in quotes: `"a", "b" or "c"`.
fn describe_words(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.join(""),
    }
}

/// The TOML type of a value, with its article.
fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a floating-point number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

pub(crate) fn conform(shape: &Shape, value: &DeValue<'_>) -> Option<Scalar> {
    match shape {
        Shape::Boolean => value.as_bool().map(Scalar::Boolean),
        Shape::True => value.as_bool().filter(|truth| *truth).map(Scalar::Boolean),
        Shape::Text(_) => value.as_str().map(|text| Scalar::Text(text.to_owned())),
        Shape::Word(words) => {
            let word = value.as_str().filter(|word| words.contains(word))?;
            Some(Scalar::Word(word.to_owned()))
        }
        Shape::Name(names) => {
            value.as_str().filter(|name| names.contains(name)).map(|_| Scalar::Name)
        }
        Shape::NoNumber(word) => (value.as_str()? == *word).then_some(Scalar::NoNumber),
        Shape::Number(min, max) => {
            number(value).filter(|n| (min..=max).contains(&n)).map(Scalar::Number)
        }
        Shape::Duration(min, max) => units::parse_duration(value.as_str()?)
            .filter(|span| (u128::from(*min)..=u128::from(*max)).contains(&span.as_millis()))
            .map(Scalar::Duration),
        Shape::Size(min, max) => units::parse_size(value.as_str()?)
            .filter(|bytes| (min..=max).contains(&bytes))
            .map(Scalar::Size),
        Shape::OneOf(shapes) => shapes.iter().find_map(|shape| conform(shape, value)),
        Shape::List(_) | Shape::Fields(_) | Shape::Table(_) | Shape::Rows(_) | Shape::Named(_) => {
            None
        }
    }
}

/// As `conform`, of the value of a variable of the environment or of a file in place of a number or a boolean.
fn conform_text(shape: &Shape, text: &str) -> Option<Scalar> {
    match shape {
        Shape::Boolean => text.parse().ok().map(Scalar::Boolean),
        Shape::True => (text == "true").then_some(Scalar::Boolean(true)),
        Shape::Number(min, max) => {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| is_plain);
            number.filter(|n| (min..=max).contains(&n)).map(Scalar::Number)
        }
        Shape::OneOf(shapes) => shapes.iter().find_map(|shape| conform_text(shape, text)),
        Shape::Text(_)
        | Shape::Word(_)
        | Shape::Name(_)
        | Shape::NoNumber(_)
        | Shape::Duration(..)
        | Shape::Size(..)
        | Shape::List(_)
        | Shape::Fields(_)
        | Shape::Table(_)
        | Shape::Rows(_)
        | Shape::Named(_) => None,
    }
}

fn number(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// An error note: the value does not fit its setting. Suggests the value that was most likely meant.
fn refused(section: &Section, key: &Key, value: &Value<'_>) -> Note {
    let found = match value.get_ref() {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        other => type_name(other).to_owned(),
    };
    let what = format!("`{}` cannot be {found}", key.name);
    let note = Note::new(Kind::Value, value.span(), what).allowed(describe(&key.shape));
    if let Some(number) = bare_number(value.get_ref()).filter(|_| is_duration(&key.shape)) {
        let fits =
            |text: &String| conform(&key.shape, &DeValue::String(text.as_str().into())).is_some();
        let forms = ["ms", "s"].map(|unit| format!("{number}{unit}"));
        let forms = forms.iter().filter(|text| fits(text));
        let forms: Vec<String> = forms.map(|text| format!("{} = {text:?}", key.name)).collect();
        return match forms.is_empty() {
            true => note,
            false => note.help(format!("add the unit: {}", forms.join(" or "))),
        };
    }
    if let Some(help) = suggest(&key.shape, value.get_ref()) {
        return note.help(format!("write {} = {help}", key.name));
    }
    if let Some(port) = number(value.get_ref()).filter(|_| key.name == "bind") {
        // The admin interface is for this host, unless a token protects it.
        let address = if section.path == "[admin]" { "127.0.0.1" } else { "0.0.0.0" };
        return match port {
            1..=65_535 => note.help(format!("write bind = \"{address}:{port}\"")),
            _ => note,
        };
    }
    let word = value.get_ref().as_str().map(str::to_owned);
    let word = word.or_else(|| value.get_ref().as_bool().map(|truth| truth.to_string()));
    match word.and_then(|word| foreign::value(key.name, &word)) {
        Some(instead) => note.help(format!("write {} = {instead}", key.name)),
        None => note,
    }
}

/// The number of a value without a unit.
fn bare_number(value: &DeValue<'_>) -> Option<u64> {
    number(value).or_else(|| value.as_str()?.trim().parse().ok())
}

fn is_duration(shape: &Shape) -> bool {
    match shape {
        Shape::Duration(..) => true,
        Shape::OneOf(shapes) => {
            shapes.iter().any(is_duration)
                && !shapes.iter().any(|shape| matches!(shape, Shape::Number(..)))
        }
        _ => false,
    }
}

/// The value that was most likely meant, in the syntax of the file; `None` if there is no good guess.
fn suggest(shape: &Shape, value: &DeValue<'_>) -> Option<String> {
    let text =
        value.as_str().map(str::to_owned).or_else(|| number(value).map(|n| n.to_string()))?;
    let fits =
        |suggested: &String| conform(shape, &DeValue::String(suggested.as_str().into())).is_some();
    match shape {
        Shape::Duration(..) => {
            units::suggest_duration(&text).filter(fits).map(|m| format!("{m:?}"))
        }
        Shape::Size(..) => units::suggest_size(&text).filter(fits).map(|m| format!("{m:?}")),
        Shape::Word(words) | Shape::Name(words) => {
            nearest(&text, words.iter().copied()).map(|m| format!("{m:?}"))
        }
        Shape::NoNumber(word) => nearest(&text, [*word]).map(|m| format!("{m:?}")),
        Shape::Number(min, max) => {
            value.as_str()?;
            let number = text.parse::<u64>().ok().filter(|n| (min..=max).contains(&n))?;
            Some(number.to_string())
        }
        Shape::OneOf(shapes) => shapes.iter().find_map(|shape| suggest(shape, value)),
        Shape::Boolean | Shape::True => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some("true".to_owned()),
            "false" | "no" | "off" | "0" if matches!(shape, Shape::Boolean) => {
                Some("false".to_owned())
            }
            _ => None,
        },
        Shape::Text(_)
        | Shape::List(_)
        | Shape::Fields(_)
        | Shape::Table(_)
        | Shape::Rows(_)
        | Shape::Named(_) => None,
    }
}

fn unknown(section: &Section, name: &Spanned<toml::de::DeString<'_>>, value: &Value<'_>) -> Note {
    let (word, place) = (name.get_ref().as_ref(), name.span());
    if let Some((_, instead)) = section.later.iter().find(|(later, _)| *later == word) {
        let version = env!("CARGO_PKG_VERSION");
        let what = format!(
            "`{word}` in {} is not supported by this version ({version}) yet",
            section.path
        );
        let note = Note::new(Kind::NotYet, place, what).allowed(section.names());
        return note.help(format!("remove it: {instead}"));
    }
    let what = format!("unknown setting `{}` in {}", word.escape_debug(), section.path);
    let note = Note::new(Kind::UnknownKey, place, what).allowed(section.names());
    let renamed = EARLIER_NAMES.iter().find(|(earlier, _)| *earlier == word).map(|(_, now)| *now);
    if let Some(name) = renamed.filter(|name| section.key(name).is_some()) {
        return note.help(format!("write `{name}`"));
    }
    if let Some(help) = foreign::setting(section.path, word) {
        return note.help(help);
    }
    if let Some(help) = edit_of_field(section, word, value) {
        return note.help(help);
    }
    let near = nearest(word, section.keys.iter().map(|key| key.name));
    let near = near.map(|name| (name, format!("write `{name}`")));
    let folded = word.to_ascii_lowercase().replace('_', "-");
    let is_same = |name: &str| name.trim_end_matches('s') == folded.trim_end_matches('s');
    match (near, elsewhere(section, &folded)) {
        (Some((name, help)), _) if is_same(name) => note.help(help),
        (_, Some(help)) | (Some((_, help)), None) => note.help(help),
        (None, None) => note,
    }
}

/// How to write a field of `request-headers` or `response-headers` that was given without `set`, `add` or `remove`.
fn edit_of_field(section: &Section, word: &str, value: &Value<'_>) -> Option<String> {
    let text = value.get_ref().as_str()?;
    let setting = match section.path {
        "[route.request-headers]" => "request-headers",
        "[route.response-headers]" => "response-headers",
        _ => return None,
    };
    // If the text is not a valid value, the help shows an example that is valid.
    let is_usable = template::parse(text, Place::Field, Paths(&[])).is_ok();
    let text = if is_usable { text } else { "{client}" };
    let name = if pattern::is_token(word) { word } else { "x-name" };
    Some(format!("write {setting} = {{ set = {{ {name} = {} }} }}", quoted(text)))
}

/// The sections to which a misplaced setting belongs. Sections inside of this one are preferred, then those that are not
/// inside of another one.
fn elsewhere(section: &Section, word: &str) -> Option<String> {
    let all = sections().into_iter().filter(|other| other.key(word).is_some());
    let mut places: Vec<&str> = all.map(|other| other.path).collect();
    let stem = section.path.trim_matches(['[', ']']);
    let is_inner = |path: &str| path.trim_matches(['[', ']']).starts_with(&format!("{stem}."));
    if places.iter().any(|path| is_inner(path)) {
        places.retain(|path| is_inner(path));
    }
    places.sort_by_key(|path| path.replace(".NAME", "").matches('.').count());
    let others = if places.len() > PLACES_MAX { ", and of others" } else { "" };
    places.truncate(PLACES_MAX);
    let last = places.pop()?;
    let before: String = places.iter().map(|path| format!("{path}, of ")).collect();
    let before = match (before.strip_suffix(", of "), others) {
        (None, _) => String::new(),
        (Some(before), "") => format!("{before} and of "),
        (Some(before), _) => format!("{before}, of "),
    };
    Some(format!("move it: `{word}` is a setting of {before}{last}{others}"))
}

/// Earlier names of settings, each with the current one.
const EARLIER_NAMES: &[(&str, &str)] = &[("maxconn", "connections-max")];

/// How to add a missing setting.
fn example(section: &str, key: &Key) -> String {
    match (section, key.name) {
        (_, "listener") => "add [[listener]] with bind = \"127.0.0.1:8080\"".to_owned(),
        ("[admin]", "bind") => "add bind = \"127.0.0.1:9901\"".to_owned(),
        (_, "bind") => "add bind = \"127.0.0.1:8080\"".to_owned(),
        (_, "servers") => "add servers = [\"127.0.0.1:8000\"]".to_owned(),
        (_, "address") => "add address = \"127.0.0.1:8000\"".to_owned(),
        ("[log.access]", "to") => "add to = \"file:/var/log/tidegate/access.log\"".to_owned(),
        (_, "to") => "add to = \"https://example.com{path}{query}\"".to_owned(),
        (_, "hash") => "add hash = \"path\"".to_owned(),
        (_, "cert") => "add cert = \"site.pem\"".to_owned(),
        ("[route.proxy.pool]", "key") => "add key = \"{host}\"".to_owned(),
        (_, "key") => "add key = \"site.key\"".to_owned(),
        (_, "pool") => "add pool = \"NAME\", the name of a [pool.NAME]".to_owned(),
        (_, "from") => "add from = [\"10.0.0.0/8\"]".to_owned(),
        (_, "limit") => "add limit = \"100/10s\"".to_owned(),
        (_, "origins") => "add origins = [\"https://example.com\"]".to_owned(),
        (_, "sni") => {
            "add sni = { \"a.example\" = \"NAME\" }, where NAME is the name of a [pool.NAME]"
                .to_owned()
        }
        (_, "lua") => "add lua = \"NAME\", the name of a [lua.NAME]".to_owned(),
        (_, "hub") => "add hub = \"NAME\", the name of a [push.NAME]".to_owned(),
        (_, "map") => "add map = \"NAME\", the name of a [map.NAME]".to_owned(),
        (_, "script") => "add script = \"apps/NAME.lua\"".to_owned(),
        (_, "pools") => "add pools = { stable = 95, canary = 5 }".to_owned(),
        (_, name) => format!("add {name}"),
    }
}
