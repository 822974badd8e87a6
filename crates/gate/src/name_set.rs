//! Names of fields: a set that is quick to test, and the fields of a request with a name.
//! In: the names of a setting. Out: whether a field has one of them.
//! Never: compares a name with each listed name, unless it is probably one of them.
//! Invariant: `_` in a name matches `-`, because gateway interfaces such as CGI map both to the same variable.

use tidegate_wire::message::{Field, RequestHead, fold, is_alike};

/// A set of field names.
#[derive(Clone, Debug, Default)]
pub struct NameSet {
    /// Bit `key(name)` is set for each name.
    filter: [u64; 4],
    /// The names, in lower case, with `-` for `_`.
    names: Vec<Box<[u8]>>,
}

impl NameSet {
    /// Prepares the set of `names`, which must be in lower case. `_` in them counts as `-`.
    #[must_use]
    pub fn new<'n>(names: impl IntoIterator<Item = &'n String>) -> Self {
        let mut set = Self::default();
        for name in names {
            let name: Box<[u8]> = name.bytes().map(fold).collect();
            let key = key(&name);
            set.filter[usize::from(key / 64)] |= 1 << (key % 64);
            set.names.push(name);
        }
        set
    }

    /// Whether the set has this name; case is ignored.
    #[must_use]
    #[inline]
    pub fn contains(&self, name: &str) -> bool {
        let name = name.as_bytes();
        let key = key(name);
        self.filter[usize::from(key / 64)] >> (key % 64) & 1 == 1
            && self.names.iter().any(|known| known.len() == name.len() && is_alike(name, known))
    }
}

/// Whether a received field has the name `wanted`; case is ignored, and `_` counts as `-` in both names.
#[inline]
pub(crate) fn is_same_name(name: &str, wanted: &str) -> bool {
    name.len() == wanted.len() && name.bytes().map(fold).eq(wanted.bytes().map(fold))
}

/// The fields of `head` with this name; see [`is_same_name`].
pub(crate) fn fields_named<'a>(
    head: &RequestHead<'a>,
    wanted: &str,
) -> impl Iterator<Item = Field<'a>> {
    head.fields().filter(move |field| is_same_name(field.name, wanted))
}

/// A number that differs for most names. Any hyphen among the bytes that it depends on counts as `_`.
#[inline]
fn key(name: &[u8]) -> u8 {
    let [first, .., second_last, last] = name else { return name.len() as u8 };
    let sum = name.len() as u32
        + u32::from(fold(*first)) * 3
        + u32::from(fold(*last)) * 10
        + u32::from(fold(*second_last));
    (sum & 0xff) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_spelling_and_near_names_are_not() {
        let names = ["x-real-ip", "true_client_ip", "ip", "x"].map(str::to_owned);
        let set = NameSet::new(&names);
        for name in
            ["X-Real-IP", "x_real_ip", "X_REAL-IP", "True-Client-IP", "TRUE_CLIENT_IP", "IP", "x"]
        {
            assert!(set.contains(name), "{name}");
        }
        for name in ["", "X-Real-I", "X-Real-IPs", "X.Real-IP", "X-Fake-IP", "y", "Host"] {
            assert!(!set.contains(name), "{name}");
        }
        assert!(!NameSet::default().contains("x-real-ip"));
    }
}
