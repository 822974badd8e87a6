//! Fields that replace those of a request.
//! In: names and values that the caller has checked. Out: which received fields are dropped; the fields in their place.
//! Limits: `OVERRIDES_MAX` fields of `OVERRIDES_BYTES_MAX` bytes together.
//! Invariant: `_` in a name matches `-`, because gateway interfaces such as CGI map both to the same variable.

use core::ops::Range;

use super::claim::fold;

/// Fields that replace others in one request.
pub const OVERRIDES_MAX: usize = 64;
/// The bytes of their names and values.
pub const OVERRIDES_BYTES_MAX: usize = 16 * 1024;

const FULL: &str = "too many changed fields; allowed: up to 64 fields of 16 KiB together";

/// Fields that replace those of a request.
#[derive(Clone, Default, Debug)]
pub struct Overrides {
    /// The names.
    names: String,
    /// The values.
    values: Vec<u8>,
    /// In the order in which they were set.
    entries: Vec<Override>,
}

/// One field.
#[derive(Clone, Debug)]
struct Override {
    name: Range<usize>,
    /// `None`: received fields of this name are dropped, and none is written.
    value: Option<Range<usize>>,
}

impl Overrides {
    /// Forgets all fields, and keeps the memory.
    pub fn clear(&mut self) {
        self.names.clear();
        self.values.clear();
        self.entries.clear();
    }

    /// Whether nothing is replaced.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Drops the fields of this name, also those that were set before.
    ///
    /// # Errors
    /// There are too many fields.
    pub fn remove(&mut self, name: &str) -> Result<(), &'static str> {
        self.set(name, None)
    }

    /// Sets a field in place of those of this name, received or set before.
    ///
    /// # Errors
    /// There are too many fields. Received fields of this name are dropped nevertheless, if there is room for the name.
    pub fn replace(&mut self, name: &str, value: &[u8]) -> Result<(), &'static str> {
        self.set(name, Some(value))
    }

    /// Adds a field, and keeps those of the same name that were set before. Received ones are dropped.
    ///
    /// # Errors
    /// There are too many fields.
    pub fn add(&mut self, name: &str, value: &[u8]) -> Result<(), &'static str> {
        self.push(name, Some(value))
    }

    /// A value without room must not let a received field of its name pass, which the caller wants to replace.
    fn set(&mut self, name: &str, value: Option<&[u8]>) -> Result<(), &'static str> {
        let names = &self.names;
        let is_other = |entry: &Override| !is_same(text(names, &entry.name), name);
        let others = self.entries.iter().filter(|entry| is_other(entry)).count();
        if self.has_room(others, name, value) {
            self.entries.retain(is_other);
            return self.push(name, value);
        }
        let same = self.entries.iter_mut().filter(|entry| !is_other(entry));
        if same.map(|entry| entry.value = None).count() == 0 {
            self.push(name, None)?;
        }
        value.map_or(Ok(()), |_| Err(FULL))
    }

    /// Whether one more field fits beside `entries` others.
    fn has_room(&self, entries: usize, name: &str, value: Option<&[u8]>) -> bool {
        let bytes =
            self.names.len() + self.values.len() + name.len() + value.map_or(0, <[u8]>::len);
        entries < OVERRIDES_MAX && bytes <= OVERRIDES_BYTES_MAX
    }

    fn push(&mut self, name: &str, value: Option<&[u8]>) -> Result<(), &'static str> {
        if !self.has_room(self.entries.len(), name, value) {
            return Err(FULL);
        }
        let at = self.names.len();
        self.names.push_str(name);
        let value = value.map(|value| {
            let start = self.values.len();
            self.values.extend_from_slice(value);
            start..self.values.len()
        });
        self.entries.push(Override { name: at..self.names.len(), value });
        Ok(())
    }

    /// Whether received fields of this name are dropped.
    #[must_use]
    pub fn drops(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| is_same(text(&self.names, &entry.name), name))
    }

    /// The fields in place of the dropped ones, in order.
    pub fn written(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().filter_map(|entry| {
            let value = self.values.get(entry.value.clone()?)?;
            Some((text(&self.names, &entry.name), value))
        })
    }

    /// The first value of the field `name`.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&[u8]> {
        self.written().find(|(other, _)| is_same(other, name)).map(|(_, value)| value)
    }
}

fn text<'t>(names: &'t str, part: &Range<usize>) -> &'t str {
    names.get(part.clone()).unwrap_or_default()
}

fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().map(fold).eq(other.bytes().map(fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_replace_received_and_earlier_ones_of_any_spelling() {
        let mut fields = Overrides::default();
        assert!(fields.is_empty() && !fields.drops("x-user"));
        fields.remove("X-User").expect("there is room");
        fields.add("X-User", b"a").expect("there is room");
        fields.add("X-User", b"b").expect("there is room");
        fields.remove("Cookie").expect("there is room");
        assert!(fields.drops("x_user") && fields.drops("COOKIE") && !fields.drops("x-use"));
        assert_eq!(fields.written().collect::<Vec<_>>(), [("X-User", &b"a"[..]), ("X-User", b"b")]);
        fields.replace("x_user", b"c").expect("there is room");
        assert_eq!(fields.written().collect::<Vec<_>>(), [("x_user", &b"c"[..])]);
        assert_eq!((fields.find("X-USER"), fields.find("cookie")), (Some(&b"c"[..]), None));
        fields.clear();
        assert!(fields.is_empty() && !fields.drops("cookie"));
    }

    #[test]
    fn number_and_bytes_are_limited() {
        let mut fields = Overrides::default();
        for _ in 0..OVERRIDES_MAX {
            fields.add("a", b"").expect("there is room");
        }
        assert!(fields.add("a", b"").is_err() && fields.remove("b").is_err());
        fields.clear();
        let value = vec![b'x'; OVERRIDES_BYTES_MAX - 1];
        assert_eq!(fields.add("a", &value), Ok(()));
        assert!(fields.add("a", b"").is_err());
    }

    #[test]
    fn value_without_room_leaves_received_fields_dropped() {
        let mut fields = Overrides::default();
        let value = vec![b'x'; OVERRIDES_BYTES_MAX];
        assert!(fields.replace("x-user", &value).is_err() && fields.drops("x-user"));
        fields.clear();
        fields.remove("x-user").expect("there is room");
        assert!(fields.replace("X-User", &value).is_err() && fields.drops("x-user"));
        assert_eq!(fields.written().count(), 0);
        // All bytes are used.
        fields.clear();
        fields.add("a", &value[1..]).expect("there is room");
        assert!(fields.replace("a", b"b").is_err() && fields.drops("a"));
        assert_eq!((fields.remove("a"), fields.written().count()), (Ok(()), 0));
        assert!(fields.drops("a") && fields.replace("b", b"").is_err());
    }
}
