//! What a detection found, before anything is decided about it.
//! In: made by items. Out: a state, words for people, and what would change it.

use crate::action::Action;

/// How the host stands in one item.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Nothing to gain.
    Good,
    /// It costs something here.
    Costs,
    /// It costs something, but cannot be changed from where we are; why.
    Blocked(String),
    /// Could not be looked at, or does not apply; why.
    Skipped(String),
}

impl State {
    /// The word in reports.
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

/// A file that keeps a change over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// Absolute path.
    pub path: String,
    /// Its text, without the line that names its origin.
    pub text: String,
}

/// What a detection found.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// How the host stands.
    pub state: State,
    /// What was found, with the numbers.
    pub found: String,
    /// Why it matters for this work here; empty when the item's mechanism says all.
    pub why: String,
    /// What `tune apply` would do, in order.
    pub actions: Vec<Action>,
    /// What a person would do where we do not.
    pub advice: Vec<String>,
    /// Files that only `--persist` writes, beside those made from `actions`.
    pub kept: Vec<KeptFile>,
    /// Tidegate does it by itself when it serves.
    pub by_itself: bool,
    /// A gain that fits this host better than the item's; percent.
    pub percent: Option<f64>,
}

impl Finding {
    /// Nothing to gain.
    #[must_use]
    pub fn good(found: impl Into<String>) -> Self {
        Self::new(State::Good, found)
    }

    /// Costs something here.
    #[must_use]
    pub fn costs(found: impl Into<String>) -> Self {
        Self::new(State::Costs, found)
    }

    /// Does not apply or cannot be told; why.
    #[must_use]
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self::new(State::Skipped(reason.into()), "")
    }

    /// Good when `good`, else costs.
    #[must_use]
    pub fn good_if(good: bool, found: impl Into<String>) -> Self {
        if good { Self::good(found) } else { Self::costs(found) }
    }

    /// Says why it matters here.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// Adds an action, unless nothing is to gain.
    #[must_use]
    pub fn action(mut self, action: Action) -> Self {
        if self.state == State::Costs {
            self.actions.push(action);
        }
        self
    }

    /// Adds advice for a person, unless nothing is to gain.
    #[must_use]
    pub fn advise(mut self, line: impl Into<String>) -> Self {
        if self.state == State::Costs {
            self.advice.push(line.into());
        }
        self
    }

    /// Adds a file for `--persist`, unless nothing is to gain.
    #[must_use]
    pub fn keep(mut self, path: impl Into<String>, text: impl Into<String>) -> Self {
        if self.state == State::Costs {
            self.kept.push(KeptFile { path: path.into(), text: text.into() });
        }
        self
    }

    /// Says that Tidegate does it when it serves.
    #[must_use]
    pub fn by_itself(mut self) -> Self {
        self.by_itself = true;
        self
    }

    /// What `tune apply` would do, as a shell user would type it.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        self.actions.iter().filter(|action| action.acts()).map(Action::command_text).collect()
    }

    /// Replaces the item's gain.
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
            by_itself: false,
            percent: None,
        }
    }
}
