//! New versions of a map or a set: commands collect the entries of a version, which then replaces all entries at once.
//! In: entries, one by one. Out: all of them. Limits: one draft at a time, with as many entries as its owner allows.

/// Collects the entries of a draft (in commands and messages: a version). There is one draft at a time.
#[derive(Debug)]
pub(crate) struct Drafts<E> {
    /// The number of the draft and its entries; `None` before the first draft and after one was used.
    current: Option<(u64, Vec<E>)>,
    /// The number of the last draft.
    count: u64,
    /// The command that begins a draft, for messages.
    command: &'static str,
    /// Maximum number of entries of a draft.
    most: usize,
}

impl<E> Drafts<E> {
    pub(crate) const fn new(command: &'static str, most: usize) -> Self {
        Self { current: None, count: 0, command, most }
    }

    /// Begins an empty draft, and discards the current draft if it was not used. Returns the number of the new draft.
    pub(crate) fn begin(&mut self) -> u64 {
        self.count += 1;
        self.current = Some((self.count, Vec::new()));
        self.count
    }

    /// The entries of a draft.
    pub(crate) fn entries(&mut self, number: u64) -> Result<&mut Vec<E>, String> {
        let draft = self.current.as_mut().filter(|(current, _)| *current == number);
        let absent =
            || format!("there is no version @{number}; create one with `{}`", self.command);
        draft.map(|(_, entries)| entries).ok_or_else(absent)
    }

    /// Adds an entry to a draft.
    pub(crate) fn push(&mut self, number: u64, entry: E) -> Result<(), String> {
        let most = self.most;
        let entries = self.entries(number)?;
        if entries.len() >= most {
            return Err(format!("the version already has {most} entries, the maximum"));
        }
        entries.push(entry);
        Ok(())
    }

    /// Ends the current draft, whose entries are in use or not needed.
    pub(crate) fn end(&mut self) {
        self.current = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draft_has_as_many_entries_as_its_owner_allows() {
        let mut drafts = Drafts::new("prepare map", 2);
        let number = drafts.begin();
        assert_eq!((drafts.push(number, 'a'), drafts.push(number, 'b')), (Ok(()), Ok(())));
        let full = "the version already has 2 entries, the maximum".to_owned();
        assert_eq!(drafts.push(number, 'c'), Err(full));
    }
}
