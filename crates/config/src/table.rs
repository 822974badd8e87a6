//! Walks the parsed TOML by the table of settings: unknown names, wrong sorts and values out of range.
//! In: a spanned TOML value and its `Section`. Out: checked scalars; a note for everything else.
//! Never: stops at the first mistake.
//! Invariant: a getter is asked only for names that its section has.

use core::ops::Range;

use tidegate_base::Span;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::keys::{Key, Preset, Section, Shape};
use crate::nearest::nearest;
use crate::report::{Kind, Note, Notes, quoted};
use crate::units;

/// A value with its place in the text.
pub(crate) type Value<'t> = Spanned<DeValue<'t>>;

/// A string of the file and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    pub(crate) text: String,
    pub(crate) place: Range<usize>,
}

/// A table of the file under the section that says what may stand in it.
pub(crate) struct Table<'t> {
    section: &'static Section,
    entries: &'t DeTable<'t>,
    /// Where it begins: its header or its opening brace.
    pub(crate) place: Range<usize>,
}

enum Scalar {
    Text(String),
    Word,
    Number(u64),
    Duration(Span),
    Size(u64),
}

impl<'t> Table<'t> {
    /// Opens `value` as a table and notes every name that has no business there.
    pub(crate) fn open(
        section: &'static Section,
        value: &'t Value<'t>,
        notes: &mut Notes,
    ) -> Option<Self> {
        let Some(entries) = value.get_ref().as_table() else {
            notes.error(wrong_sort(&format!("{} is", section.path), value, "a table"));
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
        for (name, _) in self.entries {
            if self.section.key(name.get_ref()).is_none() {
                notes.error(unknown(self.section, name));
            }
        }
        for key in self.section.keys {
            if matches!(key.preset, Preset::Required) && self.value(key.name).is_none() {
                let what = format!("{} has no `{}`", self.section.path, key.name);
                let note = Note::new(Kind::Missing, self.place.clone(), what);
                notes.error(note.allowed(describe(&key.shape)).mend(example(key)));
            }
        }
    }

    /// Whether a setting is here that only a later version knows; a note says so already.
    pub(crate) fn has_later(&self) -> bool {
        self.section.later.iter().any(|(name, _)| self.entries.contains_key(*name))
    }

    /// The value under `name`, unchecked.
    pub(crate) fn value(&self, name: &str) -> Option<&'t Value<'t>> {
        debug_assert!(self.section.key(name).is_some(), "{name} is in no table of keys");
        self.entries.get(name)
    }

    /// Where the name itself stands.
    pub(crate) fn key_place(&self, name: &str) -> Range<usize> {
        self.entries.get_key_value(name).map_or(self.place.clone(), |(key, _)| key.span())
    }

    /// Every name and value in file order: for tables whose names the user chooses.
    pub(crate) fn open_fields(
        &self,
        name: &str,
        notes: &mut Notes,
    ) -> Vec<(Located, &'t Value<'t>)> {
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        let Some(entries) = value.get_ref().as_table() else {
            notes.error(wrong_sort(&format!("`{name}` is"), value, "a table"));
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
            let note = wrong_sort(&format!("`{name}` is"), value, "an array of tables");
            notes.error(note.mend(format!("write [[{name}]], with two brackets")));
            return Vec::new();
        };
        rows.iter().filter_map(|row| Self::open(section, row, notes)).collect()
    }

    /// The table under `name`, if it is there.
    pub(crate) fn open_table(&self, name: &str, notes: &mut Notes) -> Option<Self> {
        let section = self.section.key(name)?.shape.section()?;
        Self::open(section, self.value(name)?, notes)
    }

    /// A string.
    pub(crate) fn text(&self, name: &str, notes: &mut Notes) -> Option<Located> {
        let place = self.value(name)?.span();
        match self.scalar(name, notes)? {
            Scalar::Text(text) => Some(Located { text, place }),
            Scalar::Word | Scalar::Number(_) | Scalar::Duration(_) | Scalar::Size(_) => None,
        }
    }

    /// One of the words that the table of settings lists, by its place there.
    pub(crate) fn word(&self, name: &str, notes: &mut Notes) -> Option<&'t str> {
        self.scalar(name, notes)?;
        self.value(name)?.get_ref().as_str()
    }

    /// Checks a value whose content says nothing more (`synthetic = true`).
    pub(crate) fn flag(&self, name: &str, notes: &mut Notes) -> bool {
        self.value(name).is_some() && self.scalar(name, notes).is_some()
    }

    /// `true` or `false`.
    pub(crate) fn is_true(&self, name: &str, notes: &mut Notes) -> Option<bool> {
        self.scalar(name, notes)?;
        self.value(name)?.get_ref().as_bool()
    }

    /// A string under a name that not every section read by the caller has.
    pub(crate) fn text_if_known(&self, name: &str, notes: &mut Notes) -> Option<Located> {
        self.section.key(name)?;
        self.text(name, notes)
    }

    /// Strings: one, or an array of them.
    pub(crate) fn texts(&self, name: &str, notes: &mut Notes) -> Vec<Located> {
        let Some(value) = self.value(name) else {
            return Vec::new();
        };
        texts_of(&format!("`{name}`"), value, notes)
    }

    /// `true` or `false` into `target`, when it is there.
    pub(crate) fn set_flag(&self, name: &str, target: &mut bool) {
        if let Some(flag) = self.value(name).and_then(|value| value.get_ref().as_bool()) {
            *target = flag;
        }
    }

    /// A number into `target`, when it is there and right.
    pub(crate) fn set_number<T: TryFrom<u64>>(
        &self,
        name: &str,
        target: &mut T,
        notes: &mut Notes,
    ) {
        if let Some(Scalar::Number(number)) = self.scalar(name, notes)
            && let Ok(number) = T::try_from(number)
        {
            *target = number;
        }
    }

    /// A number or size into `target`; a word ("unlimited", "auto") leaves it `None`.
    pub(crate) fn set_bound<T: TryFrom<u64>>(
        &self,
        name: &str,
        target: &mut Option<T>,
        notes: &mut Notes,
    ) {
        match self.scalar(name, notes) {
            Some(Scalar::Number(number) | Scalar::Size(number)) => {
                *target = T::try_from(number).ok()
            }
            Some(Scalar::Word) => *target = None,
            Some(Scalar::Text(_) | Scalar::Duration(_)) | None => {}
        }
    }

    /// A duration into `target`, when it is there and right.
    pub(crate) fn set_duration(&self, name: &str, target: &mut Span, notes: &mut Notes) {
        if let Some(Scalar::Duration(span)) = self.scalar(name, notes) {
            *target = span;
        }
    }

    /// A size in bytes into `target`, when it is there and right.
    pub(crate) fn set_size(&self, name: &str, target: &mut usize, notes: &mut Notes) {
        if let Some(Scalar::Size(bytes)) = self.scalar(name, notes)
            && let Ok(bytes) = usize::try_from(bytes)
        {
            *target = bytes;
        }
    }

    fn scalar(&self, name: &str, notes: &mut Notes) -> Option<Scalar> {
        let (key, value) = (self.section.key(name)?, self.value(name)?);
        let scalar = conform(&key.shape, value.get_ref());
        if scalar.is_none() {
            notes.error(refused(key, value));
        }
        scalar
    }
}

/// Strings out of a value that is one or an array of them; `subject` names it in messages.
pub(crate) fn texts_of(subject: &str, value: &Value<'_>, notes: &mut Notes) -> Vec<Located> {
    if let Some(text) = value.get_ref().as_str() {
        return vec![Located { text: text.to_owned(), place: value.span() }];
    }
    let Some(items) = value.get_ref().as_array() else {
        notes.error(wrong_sort(
            &format!("{subject} is"),
            value,
            "a string, or an array of strings",
        ));
        return Vec::new();
    };
    let mut texts = Vec::with_capacity(items.len());
    for item in items.iter() {
        match item.get_ref().as_str() {
            Some(text) => texts.push(Located { text: text.to_owned(), place: item.span() }),
            None => notes.error(wrong_sort(&format!("an entry of {subject} is"), item, "a string")),
        }
    }
    texts
}

/// A note that a value is of the wrong sort.
pub(crate) fn wrong_sort(subject: &str, value: &Value<'_>, wanted: &str) -> Note {
    let sort = sort_of(value.get_ref());
    Note::new(Kind::Type, value.span(), format!("{subject} {sort}")).allowed(wanted)
}

/// Says what may stand in a place of this shape.
pub(crate) fn describe(shape: &Shape) -> String {
    match shape {
        Shape::Boolean => "true or false".to_owned(),
        Shape::True => "true".to_owned(),
        Shape::Text(form) => (*form).to_owned(),
        Shape::Word(words) => {
            words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(" or ")
        }
        Shape::Number(min, max) => format!("a whole number from {min} to {max}"),
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
        Shape::Fields(shape) => format!("a table from field names to: {}", describe(shape)),
        Shape::Table(section) => format!("a table of: {}", section.names()),
        Shape::Rows(section) => format!("{} with: {}", section.path, section.names()),
        Shape::Named(section) => format!("{} with: {}", section.path, section.names()),
    }
}

/// What sort of value TOML made of it, with its article.
fn sort_of(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

fn conform(shape: &Shape, value: &DeValue<'_>) -> Option<Scalar> {
    match shape {
        Shape::Boolean => value.as_bool().map(|_| Scalar::Word),
        Shape::True => (value.as_bool() == Some(true)).then_some(Scalar::Word),
        Shape::Text(_) => value.as_str().map(|text| Scalar::Text(text.to_owned())),
        Shape::Word(words) => words.contains(&value.as_str()?).then_some(Scalar::Word),
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

fn number(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// A note that a value does not fit its setting, with what it was most likely meant to be.
fn refused(key: &Key, value: &Value<'_>) -> Note {
    let found = match value.get_ref() {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(integer) => integer.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        other => sort_of(other).to_owned(),
    };
    let what = format!("`{}` cannot be {found}", key.name);
    let note = Note::new(Kind::Value, value.span(), what).allowed(describe(&key.shape));
    match mend(&key.shape, value.get_ref()) {
        Some(mend) => note.mend(format!("write {} = {mend}", key.name)),
        None => note,
    }
}

fn mend(shape: &Shape, value: &DeValue<'_>) -> Option<String> {
    let text =
        value.as_str().map(str::to_owned).or_else(|| number(value).map(|n| n.to_string()))?;
    let fits = |mended: &String| conform(shape, &DeValue::String(mended.as_str().into())).is_some();
    match shape {
        Shape::Duration(..) => units::mend_duration(&text).filter(fits).map(|m| format!("{m:?}")),
        Shape::Size(..) => units::mend_size(&text).filter(fits).map(|m| format!("{m:?}")),
        Shape::Word(words) => nearest(&text, words.iter().copied()).map(|m| format!("{m:?}")),
        Shape::Number(min, max) => {
            value.as_str()?;
            let number = text.parse::<u64>().ok().filter(|n| (min..=max).contains(&n))?;
            Some(number.to_string())
        }
        Shape::OneOf(shapes) => shapes.iter().find_map(|shape| mend(shape, value)),
        Shape::Boolean
        | Shape::True
        | Shape::Text(_)
        | Shape::List(_)
        | Shape::Fields(_)
        | Shape::Table(_)
        | Shape::Rows(_)
        | Shape::Named(_) => None,
    }
}

fn unknown(section: &Section, name: &Spanned<toml::de::DeString<'_>>) -> Note {
    let (word, place) = (name.get_ref().as_ref(), name.span());
    if let Some((_, instead)) = section.later.iter().find(|(later, _)| *later == word) {
        let version = env!("CARGO_PKG_VERSION");
        let what = format!("`{word}` in {} is not in this version ({version}) yet", section.path);
        let note = Note::new(Kind::NotYet, place, what).allowed(section.names());
        return note.mend(format!("leave it out: {instead}"));
    }
    let what = format!("unknown setting `{}` in {}", word.escape_debug(), section.path);
    let note = Note::new(Kind::UnknownKey, place, what).allowed(section.names());
    match nearest(word, section.keys.iter().map(|key| key.name)) {
        Some(name) => note.mend(format!("write `{name}`")),
        None => note,
    }
}

fn example(key: &Key) -> String {
    match key.name {
        "listener" => "add [[listener]] with bind = \"127.0.0.1:8080\"".to_owned(),
        "bind" => "add bind = \"127.0.0.1:8080\"".to_owned(),
        "servers" => "add servers = [\"127.0.0.1:8000\"]".to_owned(),
        "address" => "add address = \"127.0.0.1:8000\"".to_owned(),
        "to" => "add to = \"https://example.com{path}{query}\"".to_owned(),
        "hash" => "add hash = \"path\"".to_owned(),
        name => format!("add {name}"),
    }
}
