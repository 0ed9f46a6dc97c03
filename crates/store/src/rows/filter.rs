//! Which runs a list has.
//!
//! Lists are in the order of ids, newest first, and ids begin with the milliseconds in which they were drawn: a span of
//! time is a range of ids, and `created_at` says the rest exactly.

use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use uuid::Uuid;

use super::SnapshotRow;

/// How long a run may have waited between the drawing of its id and its creation, to be found by the time of the latter.
const WAITED_MS: i64 = 5_000;

/// Which runs to list, newest first. What is not named does not matter.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Any of these; none named: any at all.
    pub statuses: Vec<RunStatus>,
    pub workflow: Option<String>,
    /// Created at this moment or later.
    pub created_from: Option<Timestamp>,
    /// Created before this moment.
    pub created_until: Option<Timestamp>,
    pub request_id: Option<String>,
    pub base_run: Option<RunId>,
    pub parent_run: Option<RunId>,
    /// Who asked for them.
    pub submitted_by: Option<String>,
    /// Only runs that are parked.
    pub stuck: bool,
    /// Only runs older than this one: the cursor.
    pub before: Option<RunId>,
    pub limit: u32,
}

impl RunFilter {
    /// Each status that is asked for, once.
    pub(crate) fn each_status(&self) -> Vec<RunStatus> {
        let wanted = |status: &RunStatus| self.statuses.is_empty() || self.statuses.contains(status);
        RunStatus::ALL.iter().copied().filter(wanted).collect()
    }

    /// The ids that can match: from the first to before the second.
    pub(crate) fn ids(&self) -> (RunId, RunId) {
        let from = self.created_from.map_or(Uuid::nil(), |from| first_id(ms(from).saturating_sub(WAITED_MS)));
        // Up to the end of the millisecond that the last moment is in.
        let until =
            self.created_until.map_or(Uuid::max(), |until| first_id(ms(Timestamp(until.0.saturating_sub(1))) + 1));
        let before = self.before.map_or(Uuid::max(), |run| run.0);
        (RunId(from), RunId(until.min(before)))
    }

    /// From which moment to before which.
    pub(crate) fn times(&self) -> (Timestamp, Timestamp) {
        (self.created_from.unwrap_or(Timestamp(i64::MIN)), self.created_until.unwrap_or(Timestamp(i64::MAX)))
    }

    pub(crate) fn matches(&self, row: &SnapshotRow) -> bool {
        fn is<T: PartialEq>(wanted: Option<&T>, found: Option<&T>) -> bool {
            wanted.is_none() || wanted == found
        }
        let ((first, end), (from, until)) = (self.ids(), self.times());
        (self.statuses.is_empty() || self.statuses.contains(&row.status))
            && is(self.workflow.as_ref(), Some(&row.workflow))
            && is(self.request_id.as_ref(), row.request_id.as_ref())
            && is(self.base_run.as_ref(), row.base_run.as_ref())
            && is(self.parent_run.as_ref(), row.parent_run.as_ref())
            && is(self.submitted_by.as_ref(), row.submitted_by.as_ref())
            && (first..end).contains(&row.run)
            && (from..until).contains(&row.created_at)
    }
}

/// The index that serves a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    All,
    Status,
    Workflow,
    Base,
    Parent,
    Submitter,
    Request,
    Stuck,
}

impl Way {
    /// The one that leaves the fewest rows.
    pub(crate) fn of(filter: &RunFilter) -> Way {
        match filter {
            RunFilter { stuck: true, .. } => Way::Stuck,
            RunFilter { request_id: Some(_), .. } => Way::Request,
            RunFilter { base_run: Some(_), .. } => Way::Base,
            RunFilter { parent_run: Some(_), .. } => Way::Parent,
            RunFilter { submitted_by: Some(_), .. } => Way::Submitter,
            RunFilter { workflow: Some(_), .. } => Way::Workflow,
            RunFilter { statuses, .. } if !statuses.is_empty() => Way::Status,
            _ => Way::All,
        }
    }
}

fn ms(at: Timestamp) -> i64 {
    at.0.div_euclid(1000)
}

/// The least UUIDv7 that could be drawn in this millisecond; ids have room for 48 bits of them.
fn first_id(ms: i64) -> Uuid {
    let ms = u64::try_from(ms).unwrap_or(0).min((1 << 48) - 1);
    Uuid::from_u128(u128::from(ms) << 80)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The id that a run draws at this moment, as the engine makes it.
    fn drawn(us: i64) -> RunId {
        let random = [0x5a; 10];
        RunId(uuid::Builder::from_unix_timestamp_millis(u64::try_from(us / 1000).unwrap(), &random).into_uuid())
    }

    fn ids(from: Option<i64>, until: Option<i64>) -> std::ops::Range<RunId> {
        let filter = RunFilter {
            created_from: from.map(Timestamp),
            created_until: until.map(Timestamp),
            ..RunFilter::default()
        };
        let (first, end) = filter.ids();
        first..end
    }

    const AT: i64 = 1_750_000_000_123_456;

    #[test]
    fn a_time_is_within_the_ids_of_its_millisecond() {
        assert!(ids(Some(AT), Some(AT + 1)).contains(&drawn(AT)), "a microsecond");
        assert!(ids(None, Some(AT + 1)).contains(&drawn(AT)));
        assert!(ids(None, Some(AT - 456 + 1)).contains(&drawn(AT)), "the rest is told by created_at");
        assert!(!ids(None, Some(AT - 456)).contains(&drawn(AT)), "the millisecond itself is not before itself");
        assert!(ids(Some(AT), None).contains(&drawn(AT)));
        assert!(ids(Some(AT), None).contains(&drawn(AT - WAITED_MS * 1000)), "drawn before, created then");
        assert!(!ids(Some(AT), None).contains(&drawn(AT - (WAITED_MS + 1) * 1000)));
    }

    #[test]
    fn times_that_no_id_has_are_no_error() {
        for us in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert!(ids(Some(us), None).end > drawn(AT), "{us}");
            assert_eq!(ids(None, Some(us)).start.0, Uuid::nil(), "{us}");
        }
        assert!(ids(Some(i64::MIN), Some(i64::MAX)).contains(&drawn(AT)));
        assert!(ids(None, Some(0)).is_empty(), "before 1970");
    }
}
