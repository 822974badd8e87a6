//! The times over which WebSocket connections are closed.

use tidegate_base::Span;

/// `drain = { ... }` of `[server]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainTimes {
    /// When the process stops.
    pub stop: Span,
    /// When a reload removes their listener or server.
    pub reload: Span,
    /// When another process replaces this one.
    pub upgrade: Span,
}

impl Default for DrainTimes {
    fn default() -> Self {
        let fifteen = Span::from_secs(15);
        Self { stop: Span::ZERO, reload: fifteen, upgrade: fifteen }
    }
}
