//! The changes that a route and its hook make to a request.
//! In: the edits of the route, the fields of the hook. Out: which received fields are dropped; the fields in their place.
//! Never: changes the framing of the request: edits and hooks cannot name its fields.
//! Invariant: a field that the route sets replaces one that the hook sets.

use tidegate_config::model::Template;
use tidegate_wire::http1::encode_field;
use tidegate_wire::message::Overrides;

use crate::ask::AuthRequestEncoder;
use crate::edits::Edits;
use crate::template::{PlaceFault, Values};

/// The changes of a route to a request.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    /// The path for the server; `None`: as received.
    pub path: Option<&'a Template>,
    /// Edits of fields.
    pub edits: Option<&'a Edits>,
    /// The values of placeholders.
    pub values: &'a Values<'a>,
    /// The request waits for a verdict about its user before it takes a server.
    pub waits: bool,
    /// The changes of a hook of the route.
    pub hook: Option<HookChanges<'a>>,
    /// An authentication server decides about the request first.
    pub ask: Option<&'a AuthRequestEncoder>,
}

/// The changes of a hook to a request. A new path and query are in the head already.
#[derive(Clone, Copy, Debug)]
pub struct HookChanges<'a> {
    /// Fields in place of received ones.
    pub fields: &'a Overrides,
    /// The path of the head is that of the hook.
    pub has_path: bool,
    /// The pool in place of that of the route.
    pub pool: Option<usize>,
}

impl<'a> Changes<'a> {
    /// Whether a received field of this name is dropped.
    pub(crate) fn drops(&self, name: &str) -> bool {
        self.is_edited(name) || self.values.identity.drops(name)
    }

    /// Whether the route or its hook removes or sets a field of this name.
    fn is_edited(&self, name: &str) -> bool {
        self.edits.is_some_and(|edits| edits.drops(name))
            || self.hook.is_some_and(|hook| hook.fields.drops(name))
    }

    /// Whether the path of the head is that of a hook.
    pub(crate) fn has_new_path(&self) -> bool {
        self.hook.is_some_and(|hook| hook.has_path)
    }

    /// Whether fields are changed.
    #[must_use]
    pub fn changes_fields(&self) -> bool {
        self.edits.is_some()
            || self.values.identity.states_fields()
            || self.hook.is_some_and(|hook| !hook.fields.is_empty())
    }

    /// The value that a hook has set for the field `name`.
    #[must_use]
    pub fn hook_field(&self, name: &str) -> Option<&'a [u8]> {
        self.hook?.fields.find(name)
    }

    /// Appends the fields that are set.
    pub(crate) fn encode_fields(&self, out: &mut Vec<u8>) -> Result<(), PlaceFault> {
        self.values.identity.encode_fields(out, |name| self.is_edited(name));
        if let Some(hook) = self.hook {
            for (name, value) in hook.fields.written() {
                if !self.edits.is_some_and(|edits| edits.drops(name)) {
                    encode_field(out, name, value);
                }
            }
        }
        self.edits.map_or(Ok(()), |edits| edits.encode_lines(out, self.values))
    }
}
