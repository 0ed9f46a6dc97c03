//! The lines in which steps wait for workers: one for each queue.
//!
//! Orgs take turns; within an org the highest priority goes first; workflows of the same priority take turns; within a
//! workflow the oldest goes first. So nobody waits behind a neighbour's hundred thousand.
//!
//! An entry may be out of date; the core says so when it is taken.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use milepost_core::event::StepRef;
use milepost_core::id::{OrgId, RunId, TaskId};
use milepost_core::run::StepSlot;
use milepost_core::time::Timestamp;

/// A step that waits for a worker.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) task: TaskId,
    pub(crate) org: OrgId,
    pub(crate) run: RunId,
    pub(crate) step: StepRef,
    pub(crate) queue: Arc<str>,
    pub(crate) skill: Arc<str>,
    pub(crate) workflow: Arc<str>,
    pub(crate) priority: i32,
    pub(crate) ready_at: Timestamp,
    /// Its concurrency key.
    pub(crate) slot: Option<StepSlot>,
    pub(crate) since: Instant,
    /// It did not fit what was at hand, and the run was read again.
    pub(crate) reread: bool,
}

/// Who could take something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taker<'a> {
    /// None: of every org.
    pub(super) org: Option<OrgId>,
    /// None: every skill.
    pub(super) skills: Option<&'a [Arc<str>]>,
}

impl Taker<'_> {
    fn takes_org(&self, org: OrgId) -> bool {
        self.org.is_none_or(|own| own == org)
    }

    fn takes_skill(&self, skill: &str) -> bool {
        self.skills.is_none_or(|skills| skills.iter().any(|known| **known == *skill))
    }
}

#[derive(Debug, Default)]
pub(super) struct Lines {
    queues: HashMap<Arc<str>, Queue>,
    /// What is in line, so that nothing is in line twice.
    known: HashSet<TaskId>,
}

#[derive(Debug, Default)]
struct Queue {
    orgs: BTreeMap<OrgId, OrgLine>,
    /// Whose turn it was last.
    last: Option<OrgId>,
}

/// By priority, the lowest first.
#[derive(Debug, Default)]
struct OrgLine {
    levels: BTreeMap<i32, Level>,
}

/// Steps of one priority, by what they are: workflow and skill. The one whose turn is next comes first.
#[derive(Debug, Default)]
struct Level {
    turns: VecDeque<Kind>,
    waiting: HashMap<Kind, VecDeque<Waiting>>,
}

type Kind = (Arc<str>, Arc<str>);

impl Lines {
    /// Puts a step in line, unless it is there.
    pub(super) fn push(&mut self, waiting: Waiting) {
        if !self.known.insert(waiting.task) {
            return;
        }
        let queue = self.queues.entry(waiting.queue.clone()).or_default();
        let org = queue.orgs.entry(waiting.org).or_default();
        org.levels.entry(waiting.priority).or_default().push(waiting);
    }

    /// The next step of a queue for this taker.
    pub(super) fn take(&mut self, queue: &str, taker: Taker<'_>) -> Option<Waiting> {
        let line = self.queues.get_mut(queue)?;
        let taken = line.take(taker)?;
        if line.orgs.is_empty() {
            self.queues.remove(queue);
        }
        self.known.remove(&taken.task);
        Some(taken)
    }

    /// Takes a step out of whatever line it is in. Goes over all of them: for what seldom happens.
    pub(super) fn remove(&mut self, task: TaskId) {
        if !self.known.remove(&task) {
            return;
        }
        self.queues.retain(|_, queue| {
            queue.orgs.retain(|_, org| {
                org.levels.retain(|_, level| {
                    level.remove(task);
                    !level.turns.is_empty()
                });
                !org.levels.is_empty()
            });
            !queue.orgs.is_empty()
        });
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Queues in which something waits.
    pub(super) fn queues(&self) -> Vec<Arc<str>> {
        self.queues.keys().cloned().collect()
    }

    /// How many steps wait in a queue.
    pub(super) fn count(&self, queue: &str) -> usize {
        let orgs = self.queues.get(queue).into_iter().flat_map(|queue| queue.orgs.values());
        orgs.flat_map(|org| org.levels.values()).flat_map(|level| level.waiting.values()).map(VecDeque::len).sum()
    }

    /// Skills of what waits in a queue.
    pub(super) fn skills(&self, queue: &str) -> BTreeSet<Arc<str>> {
        self.kinds(queue, Taker { org: None, skills: None }).map(|(_, skill)| skill.clone()).collect()
    }

    /// Whether something waits in a queue that this taker can take.
    pub(super) fn has_for(&self, queue: &str, taker: Taker<'_>) -> bool {
        self.kinds(queue, taker).any(|(_, skill)| taker.takes_skill(skill))
    }

    fn kinds(&self, queue: &str, taker: Taker<'_>) -> impl Iterator<Item = &Kind> {
        let orgs = self.queues.get(queue).into_iter().flat_map(|queue| &queue.orgs);
        let orgs = orgs.filter(move |(org, _)| taker.takes_org(**org));
        orgs.flat_map(|(_, line)| line.levels.values()).flat_map(|level| &level.turns)
    }
}

impl Queue {
    fn take(&mut self, taker: Taker<'_>) -> Option<Waiting> {
        // Those after the one whose turn it was, then round to it.
        let after = self.last.map_or(i32::MIN, |last| last.0.saturating_add(1));
        let turns = self.orgs.range(OrgId(after)..).chain(self.orgs.range(..OrgId(after)));
        let turns: Vec<OrgId> = turns.map(|(org, _)| *org).filter(|org| taker.takes_org(*org)).collect();
        for org in turns {
            let line = self.orgs.get_mut(&org)?;
            if let Some(taken) = line.take(taker) {
                if line.levels.is_empty() {
                    self.orgs.remove(&org);
                }
                self.last = Some(org);
                return Some(taken);
            }
        }
        None
    }
}

impl OrgLine {
    fn take(&mut self, taker: Taker<'_>) -> Option<Waiting> {
        let (priority, taken) =
            self.levels.iter_mut().rev().find_map(|(priority, level)| Some((*priority, level.take(taker)?)))?;
        if self.levels.get(&priority).is_some_and(|level| level.turns.is_empty()) {
            self.levels.remove(&priority);
        }
        Some(taken)
    }
}

impl Level {
    fn push(&mut self, waiting: Waiting) {
        let kind = (waiting.workflow.clone(), waiting.skill.clone());
        let line = self.waiting.entry(kind.clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(kind);
        }
        // What another node had in line may be older than what is here.
        let place = line.iter().rposition(|other| other.ready_at <= waiting.ready_at).map_or(0, |place| place + 1);
        line.insert(place, waiting);
    }

    fn remove(&mut self, task: TaskId) {
        self.waiting.retain(|_, line| {
            line.retain(|waiting| waiting.task != task);
            !line.is_empty()
        });
        let Level { turns, waiting } = self;
        turns.retain(|kind| waiting.contains_key(kind));
    }

    fn take(&mut self, taker: Taker<'_>) -> Option<Waiting> {
        let place = self.turns.iter().position(|(_, skill)| taker.takes_skill(skill))?;
        let kind = self.turns.remove(place)?;
        let line = self.waiting.get_mut(&kind)?;
        let taken = line.pop_front();
        if line.is_empty() {
            self.waiting.remove(&kind);
        } else {
            self.turns.push_back(kind);
        }
        taken
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const ANY: Taker<'_> = Taker { org: None, skills: None };

    pub(in super::super) fn waiting(n: u128, org: i32, workflow: &str, skill: &str, priority: i32) -> Waiting {
        let run = RunId(uuid::Uuid::from_u128(n));
        Waiting {
            task: TaskId(run.0),
            org: OrgId(org),
            run,
            step: StepRef::whole(0),
            queue: "q".into(),
            skill: skill.into(),
            workflow: workflow.into(),
            priority,
            ready_at: Timestamp(i64::try_from(n).unwrap()),
            slot: None,
            since: Instant::now(),
            reread: false,
        }
    }

    fn order(lines: &mut Lines, taker: Taker<'_>) -> Vec<u128> {
        std::iter::from_fn(|| lines.take("q", taker)).map(|taken| taken.run.0.as_u128()).collect()
    }

    #[test]
    fn higher_priority_goes_first_then_the_older_wherever_it_came_from() {
        let mut lines = Lines::default();
        for (n, priority) in [(1, 0), (3, 5), (2, 5), (4, 9)] {
            lines.push(waiting(n, 1, "w", "s", priority));
        }
        assert_eq!(order(&mut lines, ANY), [4, 2, 3, 1]);
        assert_eq!(lines.len(), 0);
    }

    #[test]
    fn orgs_take_turns_and_so_do_workflows_of_one_org() {
        let mut lines = Lines::default();
        for n in 1..=4 {
            lines.push(waiting(n, 1, "many", "s", 0));
        }
        lines.push(waiting(5, 1, "few", "s", 0));
        lines.push(waiting(6, 2, "other", "s", 0));
        assert_eq!(order(&mut lines, ANY), [1, 6, 5, 2, 3, 4]);
    }

    #[test]
    fn a_neighbour_with_a_hundred_thousand_steps_holds_nobody_up() {
        let mut lines = Lines::default();
        for n in 1..=100_000 {
            lines.push(waiting(n, 1, "many", "s", 100));
        }
        lines.push(waiting(100_001, 2, "one", "s", 0));
        let first: Vec<u128> = (0..2).filter_map(|_| lines.take("q", ANY)).map(|taken| taken.run.0.as_u128()).collect();
        assert_eq!(first, [1, 100_001]);
    }

    #[test]
    fn a_worker_gets_only_what_it_can_do_and_what_is_of_its_org() {
        let mut lines = Lines::default();
        lines.push(waiting(1, 1, "w", "a", 9));
        lines.push(waiting(2, 1, "w", "b", 0));
        lines.push(waiting(3, 2, "w", "b", 0));
        let skills: [Arc<str>; 1] = ["b".into()];
        assert_eq!(order(&mut lines, Taker { org: Some(OrgId(1)), skills: Some(&skills) }), [2]);
        assert_eq!(order(&mut lines, Taker { org: None, skills: Some(&skills) }), [3]);
        assert_eq!(order(&mut lines, ANY), [1]);
    }

    #[test]
    fn what_is_taken_out_of_line_leaves_no_trace() {
        let mut lines = Lines::default();
        lines.push(waiting(1, 1, "w", "s", 0));
        lines.push(waiting(2, 1, "w", "s", 0));
        lines.push(waiting(3, 2, "v", "s", 7));
        for n in [1, 3, 3] {
            lines.remove(waiting(n, 1, "w", "s", 0).task);
        }
        assert_eq!((lines.len(), order(&mut lines, ANY)), (1, vec![2]));
        lines.push(waiting(1, 1, "w", "s", 0));
        lines.remove(waiting(1, 1, "w", "s", 0).task);
        assert!(lines.queues().is_empty());
    }

    #[test]
    fn nothing_is_in_line_twice() {
        let mut lines = Lines::default();
        lines.push(waiting(1, 1, "w", "s", 0));
        lines.push(waiting(1, 1, "w", "s", 0));
        assert_eq!(order(&mut lines, ANY), [1]);
    }
}
