//! The claims of a token whose signature is right.
//! In: the text of the claims. Out: values by name, the times of the token.

use serde_json::{Map, Value};

use super::Refusal;

/// The claims of a token.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Claims(Map<String, Value>);

impl Claims {
    /// Reads the text of claims.
    ///
    /// # Errors
    /// It is not an object.
    pub fn parse(text: &[u8]) -> Result<Self, Refusal> {
        serde_json::from_slice(text).map(Self).map_err(|_| Refusal::Invalid)
    }

    /// Checks that the token is valid at `now`, in seconds since 1970, with clocks that differ by up to `leeway` seconds.
    ///
    /// # Errors
    /// It has expired or is not valid yet, or a time is not a number.
    pub fn check_times(&self, now: u64, leeway: u64) -> Result<(), Refusal> {
        let (end, begin) = (self.seconds("exp")?, self.seconds("nbf")?);
        let (now, leeway) = (now as f64, leeway as f64);
        match end.is_some_and(|end| end + leeway <= now)
            || begin.is_some_and(|at| at > now + leeway)
        {
            true => Err(Refusal::Expired),
            false => Ok(()),
        }
    }

    /// About how many bytes of memory the claims take, which may be many times the length of their text.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        object_bytes(&self.0)
    }

    /// When the token ends, in seconds since 1970; `None`: never.
    #[must_use]
    pub fn ends_at(&self) -> Option<u64> {
        // A float that is out of range becomes the nearest integer.
        self.seconds("exp").ok().flatten().map(|end| end as u64)
    }

    fn seconds(&self, name: &str) -> Result<Option<f64>, Refusal> {
        match self.0.get(name) {
            None => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or(Refusal::Invalid),
        }
    }

    /// The claim of this name. If there is none, each dot leads into an object: `realm_access.roles`.
    fn find(&self, name: &str) -> Option<&Value> {
        if let Some(found) = self.0.get(name) {
            return Some(found);
        }
        let (first, rest) = name.split_once('.')?;
        let mut found = self.0.get(first)?;
        for part in rest.split('.') {
            found = found.as_object()?.get(part)?;
        }
        Some(found)
    }

    /// Whether the claim is this text, or a list that contains it. Numbers and booleans count as their text, and the
    /// claim `scope` is a list of words (RFC 8693 section 4.2).
    #[must_use]
    pub fn holds(&self, name: &str, wanted: &str) -> bool {
        match self.find(name) {
            Some(Value::Array(items)) => items.iter().any(|item| is_text(item, wanted)),
            Some(Value::String(words)) if name == "scope" => {
                words.split(' ').any(|word| word == wanted)
            }
            Some(value) => is_text(value, wanted),
            None => false,
        }
    }

    /// Appends the claim as text; the items of a list are separated by commas. Appends nothing for other values.
    pub fn append(&self, name: &str, out: &mut Vec<u8>) {
        match self.find(name) {
            Some(Value::Array(items)) => {
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    append_text(item, out);
                }
            }
            Some(value) => append_text(value, out),
            None => {}
        }
    }

    /// The claim, if it is a string.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.find(name)?.as_str()
    }
}

/// The overhead of an allocation.
const ALLOCATION_BYTES: usize = 16;
/// The memory of an entry of an object in addition to its name and its value: its hash, and its place in the hash table.
const ENTRY_BYTES: usize = 24;
/// The entries for which an object that is not empty has room at least.
const ENTRIES_MIN: usize = 4;

fn object_bytes(object: &Map<String, Value>) -> usize {
    if object.is_empty() {
        return 0;
    }
    let entries = object.len().next_power_of_two().max(ENTRIES_MIN);
    let entry = size_of::<String>() + size_of::<Value>() + ENTRY_BYTES;
    let heap: usize =
        object.iter().map(|(name, value)| ALLOCATION_BYTES + name.len() + heap_bytes(value)).sum();
    entries * entry + 2 * ALLOCATION_BYTES + heap
}

/// The memory of a value in addition to the `Value` itself. Texts are read with a limit of the depth (serde_json: 128).
fn heap_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => ALLOCATION_BYTES + text.len(),
        Value::Array(items) => {
            let heap: usize = items.iter().map(heap_bytes).sum();
            ALLOCATION_BYTES + items.capacity() * size_of::<Value>() + heap
        }
        Value::Object(object) => object_bytes(object),
    }
}

fn is_text(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Number(number) => number.to_string() == wanted,
        Value::Bool(flag) => wanted == if *flag { "true" } else { "false" },
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

fn append_text(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        Value::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
        Value::Bool(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        Value::Null | Value::Array(_) | Value::Object(_) => {}
    }
}
