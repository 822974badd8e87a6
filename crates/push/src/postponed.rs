//! Joins and leaves that cannot be delivered yet, because much is being delivered: the newest of each client.
//! In: reports of joins and leaves. Out: the reports, when there is room for them.
//! Limits: the owner of the list passes the number of further clients that it may contain.
//! Invariant: the list has one report of each client of a channel, and it is the newest: observers learn whether the client
//! is there, though not how often it came and went.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::publication::Publication;

/// The hub, the channel and the client of a report.
type Subject = (u16, Arc<str>, Arc<str>);

/// The postponed reports.
#[derive(Debug, Default)]
pub struct Postponed {
    /// By their subjects.
    reports: BTreeMap<Subject, Arc<Publication>>,
    /// The subject of the report that was taken last. The next one follows it, so that the names of clients that join
    /// all the time do not hold up the others.
    last: Option<Subject>,
}

/// What became of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Postponement {
    /// It is in the list, in addition to the others.
    Added,
    /// It is in the list in place of an earlier one of the same client.
    Replaced,
    /// There is no room for it, or it names no client.
    Refused,
}

impl Postponed {
    /// Adds a report if `room` is at least one, or if an earlier report of the client is in the list.
    pub fn push(&mut self, report: Arc<Publication>, room: usize) -> Postponement {
        let Some(client) = &report.subject else { return Postponement::Refused };
        let subject = (report.hub, Arc::clone(&report.channel), Arc::clone(client));
        if let Some(earlier) = self.reports.get_mut(&subject) {
            *earlier = report;
            return Postponement::Replaced;
        }
        if room == 0 {
            return Postponement::Refused;
        }
        self.reports.insert(subject, report);
        Postponement::Added
    }

    /// Removes the next report.
    pub fn take(&mut self) -> Option<Arc<Publication>> {
        let after = self.last.take().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.reports.range((after, Bound::Unbounded)).next();
        let subject = next.or_else(|| self.reports.first_key_value())?.0.clone();
        let report = self.reports.remove(&subject);
        self.last = Some(subject).filter(|_| !self.reports.is_empty());
        report
    }

    /// The number of reports.
    #[must_use]
    pub fn len(&self) -> usize {
        self.reports.len()
    }

    /// Whether there is no report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.reports.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::publication::Content;

    fn report(content: Content, client: &str) -> Arc<Publication> {
        let info = format!(r#"{{"client":"{client}"}}"#);
        Arc::new(Publication::visit(0, "room".into(), content, client.into(), &info))
    }

    #[test]
    fn newest_report_of_each_client_is_kept_within_the_room() {
        let mut postponed = Postponed::default();
        assert_eq!(postponed.push(report(Content::Join, "a"), 2), Postponement::Added);
        assert_eq!(postponed.push(report(Content::Join, "b"), 1), Postponement::Added);
        assert_eq!(postponed.push(report(Content::Leave, "a"), 0), Postponement::Replaced);
        assert_eq!(postponed.push(report(Content::Join, "c"), 0), Postponement::Refused);
        let message = Arc::new(Publication::new(0, "room".into(), "1", None));
        assert_eq!(postponed.push(message, 1), Postponement::Refused);
        let taken = [postponed.take(), postponed.take(), postponed.take()];
        let contents = taken.map(|report| report.map(|report| report.content));
        assert_eq!(contents, [Some(Content::Leave), Some(Content::Join), None]);
        assert!(postponed.is_empty());
    }

    #[test]
    fn client_that_joins_all_the_time_does_not_hold_up_the_others() {
        let mut postponed = Postponed::default();
        for client in ["a", "b", "c"] {
            postponed.push(report(Content::Join, client), 10);
        }
        let mut order = Vec::new();
        for _ in 0..3 {
            let taken = postponed.take().expect("a report");
            order.extend(taken.subject.as_deref().map(str::to_owned));
            postponed.push(report(Content::Join, "a"), 10);
        }
        assert_eq!(order, ["a", "b", "c"]);
        assert_eq!(postponed.len(), 1);
    }
}
