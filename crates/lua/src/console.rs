//! Code that an operator types (`tidegate lua repl`).
//! In: code. Out: the values that it returns, as text.
//! Never: waits; keeps a value after it was shown.
//! Limits: the budget of a callback; `SHOWN_BYTES_MAX` of text.

use crate::engine::{Argument, Entry};
use crate::host::Host;
use crate::schedule::Owner;
use crate::vm::{CallbackEnd, Vm};

/// Bytes of the text that is shown.
const SHOWN_BYTES_MAX: usize = 64 * 1024;
/// What follows a text that was cut.
const CUT: &str = "\n... (cut)";

impl Host {
    /// The values that the code has returned.
    pub(crate) fn show(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let end = text.floor_char_boundary(SHOWN_BYTES_MAX);
        self.shown = text[..end].to_owned();
        if end < text.len() {
            self.shown.push_str(CUT);
        }
    }
}

impl Vm {
    /// Runs code in the environment of the script. It cannot wait. Returns how it ended, and its values as text.
    pub fn evaluate(&mut self, code: &[u8]) -> (CallbackEnd, String) {
        self.engine.host().shown.clear();
        let owner = (Owner::Application, "the console");
        let verdict = self.run_at_once(Entry::Evaluate, owner, &[Argument::Bytes(code)]);
        (verdict, core::mem::take(&mut self.engine.host().shown))
    }
}
