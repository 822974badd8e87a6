//! The result of checking one item.
//! In: built by items. Out: a state, text for people, and the actions that would improve it.

use crate::action::Action;

/// The state of the host for one item.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Nothing to gain.
    Good,
    /// The setting costs performance or capacity on this host.
    Costs,
    /// The setting costs something, but cannot be changed from here. Contains the reason.
    Blocked(String),
    /// The item cannot be checked or does not apply. Contains the reason.
    Skipped(String),
}

impl State {
    /// The value in reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Costs => "costs",
            Self::Blocked(_) => "blocked",
            Self::Skipped(_) => "skipped",
        }
    }
}

/// A file that keeps a change after a reboot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// Absolute path.
    pub path: String,
    /// The text, without the first line, which names the command that wrote the file.
    pub text: String,
}

/// The result of a detection.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The state of the host.
    pub state: State,
    /// The finding, with the numbers.
    pub found: String,
    /// Why it matters on this host; empty if the mechanism of the item is explanation enough.
    pub why: String,
    /// The actions of `tune apply`, in order. Empty unless the state is `Costs`.
    pub actions: Vec<Action>,
    /// Steps that the operator has to take by hand. Empty unless the item costs something.
    pub advice: Vec<String>,
    /// Files that only `--persist` writes, in addition to those derived from `actions`.
    pub kept: Vec<KeptFile>,
    /// Whether Tidegate applies the setting itself when it serves.
    pub applied_by_tidegate: bool,
    /// The gain on this host, percent; `None`: the gain of the item applies.
    pub percent: Option<f64>,
}

impl Finding {
    /// Nothing to gain.
    #[must_use]
    pub fn good(found: impl Into<String>) -> Self {
        Self::new(State::Good, found)
    }

    /// The setting costs something on this host.
    #[must_use]
    pub fn costs(found: impl Into<String>) -> Self {
        Self::new(State::Costs, found)
    }

    /// Does not apply or cannot be determined, with the reason.
    #[must_use]
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self::new(State::Skipped(reason.into()), "")
    }

    /// `Good` if `good` is true, otherwise `Costs`.
    #[must_use]
    pub fn good_if(good: bool, found: impl Into<String>) -> Self {
        if good { Self::good(found) } else { Self::costs(found) }
    }

    /// Sets why the finding matters on this host.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// Adds an action if the state is `Costs`.
    #[must_use]
    pub fn action(mut self, action: Action) -> Self {
        if self.state == State::Costs {
            self.actions.push(action);
        }
        self
    }

    /// Adds a step by hand if the state is `Costs`.
    #[must_use]
    pub fn advise(mut self, line: impl Into<String>) -> Self {
        if self.state == State::Costs {
            self.advice.push(line.into());
        }
        self
    }

    /// Adds a file for `--persist` if the state is `Costs`.
    #[must_use]
    pub fn keep(mut self, path: impl Into<String>, text: impl Into<String>) -> Self {
        if self.state == State::Costs {
            self.kept.push(KeptFile { path: path.into(), text: text.into() });
        }
        self
    }

    /// Marks that Tidegate applies the setting itself when it serves.
    #[must_use]
    pub fn applied_by_tidegate(mut self) -> Self {
        self.applied_by_tidegate = true;
        self
    }

    /// The actions of `tune apply`, as shell commands.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        self.actions.iter().filter(|action| action.acts()).map(Action::command_text).collect()
    }

    /// Replaces the gain of the item.
    #[must_use]
    pub fn percent(mut self, percent: f64) -> Self {
        self.percent = Some(percent);
        self
    }

    fn new(state: State, found: impl Into<String>) -> Self {
        Self {
            state,
            found: found.into(),
            why: String::new(),
            actions: Vec::new(),
            advice: Vec::new(),
            kept: Vec::new(),
            applied_by_tidegate: false,
            percent: None,
        }
    }
}
