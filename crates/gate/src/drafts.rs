//! Entries that commands collect, to replace all others at once.
//! In: entries, one by one. Out: all of them. Limits: one draft at a time, with `ENTRIES_MAX` entries.

/// Maximum number of entries of a draft.
const ENTRIES_MAX: usize = 1_000_000;

/// Entries that commands collect, to replace all others at once. There is one draft at a time.
#[derive(Debug)]
pub(crate) struct Drafts<E> {
    /// The number of the draft and its entries; `None` before the first draft and after one was used.
    current: Option<(u64, Vec<E>)>,
    /// The number of the last draft.
    count: u64,
    /// The command that begins a draft, for messages.
    command: &'static str,
}

impl<E> Drafts<E> {
    pub(crate) const fn new(command: &'static str) -> Self {
        Self { current: None, count: 0, command }
    }

    /// Begins a draft without entries, in place of one that was not used. Returns its number.
    pub(crate) fn begin(&mut self) -> u64 {
        self.count += 1;
        self.current = Some((self.count, Vec::new()));
        self.count
    }

    /// The entries of a draft.
    pub(crate) fn entries(&mut self, number: u64) -> Result<&mut Vec<E>, String> {
        let draft = self.current.as_mut().filter(|(current, _)| *current == number);
        let absent = || format!("there is no draft @{number}; begin one with `{}`", self.command);
        draft.map(|(_, entries)| entries).ok_or_else(absent)
    }

    /// Adds an entry to a draft.
    pub(crate) fn push(&mut self, number: u64, entry: E) -> Result<(), String> {
        let entries = self.entries(number)?;
        if entries.len() == ENTRIES_MAX {
            return Err(format!("the draft has {ENTRIES_MAX} entries, which is the most"));
        }
        entries.push(entry);
        Ok(())
    }

    /// The draft is used, or not needed any more.
    pub(crate) fn end(&mut self) {
        self.current = None;
    }
}
