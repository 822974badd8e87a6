//! The processes that share the channels of a hub.
//! In: nothing yet: a process is alone, and all of its publications and positions name node 0.
//! Out: the number of a process in mail, publications and histories (in `Epoch`, also in the text for clients).
//! Invariant: the format has room for several processes, so that clusters can be added without a change of the format.

/// A process, by its number among those that share the channels of a hub.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct NodeId(pub u16);

impl NodeId {
    /// The node of a process that is alone.
    pub const OWN: Self = Self(0);
}
