//! A step whose turn has come and that nobody has begun: what keeps it in line.

use milepost_core::id::TaskId;
use milepost_core::plan::{Push, Runtime};
use milepost_store::rows::{Answer, Question, TaskLimits, TaskRow};

use super::{Subject, Wait};
use crate::engine::Engine;
use crate::error::EngineError;

impl Engine {
    pub(super) async fn turn(&self, subject: &Subject) -> Result<Vec<Wait>, EngineError> {
        let awaited = self.awaited(subject.head.run);
        if let Some((_, leader)) = awaited.into_iter().find(|(step, _)| *step == subject.step) {
            let whose = if leader == subject.head.run {
                "another step of this run".to_owned()
            } else {
                format!("run {leader}")
            };
            let message = format!("{whose} makes the same result, and this step takes it when it is there");
            return Ok(vec![Wait { run_id: Some(leader), ..Wait::new("same_work", message) }]);
        }
        let task = TaskId::of(subject.head.run, subject.step);
        let rows = self.store.tasks(self.org, &[task]).await?;
        match rows.into_iter().next() {
            Some(row) => self.in_line(&row).await,
            None => Ok(vec![self.for_executor(subject)]),
        }
    }

    fn for_executor(&self, subject: &Subject) -> Wait {
        let planned = subject.plan.step(subject.step.step);
        let message = match (planned.runtime, subject.head.owner) {
            (Some(Runtime::Queue | Runtime::Push), _) => "it is about to get in line for a worker",
            (_, None) => "no process carries the run out: `milepost recover`, or a server on its database, does",
            (_, Some(_)) => "it waits for room in the process that carries the run out",
        };
        Wait::new("executor", message)
    }

    /// In line for a worker: limits come first, as they may be why nobody gets it.
    async fn in_line(&self, row: &TaskRow) -> Result<Vec<Wait>, EngineError> {
        let limits = self.limits_of(row).await?;
        let mut waits = Vec::new();
        if let Some(slot) = row.slot.as_ref().filter(|slot| limits.with_key >= slot.limit) {
            let message = format!(
                "{} of {} steps with the concurrency key `{}` are under way",
                limits.with_key, slot.limit, slot.key
            );
            let key = Some(slot.key.to_string());
            waits.push(Wait { key, limit: Some(slot.limit), ..Wait::new("concurrency_key", message) });
        }
        let queue = Some(row.queue.to_string());
        let most = limits.queue.as_ref().and_then(|queue| queue.concurrency);
        if let Some(most) = most.filter(|most| limits.in_queue >= *most) {
            let message = format!("{} of {most} tasks of the queue `{}` are under way", limits.in_queue, row.queue);
            waits.push(Wait { queue: queue.clone(), limit: Some(most), ..Wait::new("queue_limit", message) });
        }
        let (now, rate) = (self.clock.now(), limits.queue.as_ref().and_then(|queue| queue.rate));
        if let (Some(rate), Some(until)) = (rate, limits.taken_until.filter(|until| *until > now)) {
            let message = format!("the queue `{}` may begin {} tasks in {} ms", row.queue, rate.limit, rate.per_ms);
            let (queue, limit, until) = (queue.clone(), Some(rate.limit), Some(until));
            waits.push(Wait { queue, limit, until, ..Wait::new("rate_limit", message) });
        }
        waits.push(Wait { queue, ..Wait::new("queue", self.line(row).await?) });
        Ok(waits)
    }

    async fn limits_of(&self, row: &TaskRow) -> Result<TaskLimits, EngineError> {
        let key = row.slot.as_ref().map(|slot| slot.key.clone());
        let question = Question::Limits { org: row.org, queue: row.queue.clone(), key };
        // What is asked for must be true now, not at a commit.
        let (_, answers) = self.store.ask(vec![question]).await?;
        Ok(match answers.into_iter().next() {
            Some(Answer::Limits(limits)) => limits,
            _ => TaskLimits::default(),
        })
    }

    async fn line(&self, row: &TaskRow) -> Result<String, EngineError> {
        let counts = self.store.queue_counts().await?;
        let waiting = counts.iter().find(|count| count.org == row.org && *count.queue == *row.queue);
        let waiting = waiting.map_or(1, |count| count.waiting);
        let line = format!("it is in line in the queue `{}`, where {waiting} wait", row.queue);
        let pushed = row.queue.starts_with(Push::QUEUE);
        let seen = self.seen_workers.has(&row.queue, &row.skill, self.clock.now());
        Ok(match self.serves_workers() && !pushed && !seen {
            true => format!("{line}; no worker for `{}` has asked here in the last minute", row.skill),
            false => line,
        })
    }
}
