//! A list of values by name, such as maps and sets that commands change.
//! In: names and values. Out: the value of a name. Never: adds or removes a name after its creation; only the contents of the
//! values change.

use std::sync::Arc;

/// Values with the names that commands use. Clones share the values.
#[derive(Debug)]
pub struct Named<T>(Arc<[(String, Arc<T>)]>);

impl<T> Named<T> {
    /// The value with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<T>> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The values, in the order of the configuration.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &Arc<T>> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The values and their names, in the order of the configuration.
    pub fn all(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, value)| (name.as_str(), &**value))
    }
}

impl<T> FromIterator<(String, Arc<T>)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (String, Arc<T>)>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl<T> Clone for Named<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}
