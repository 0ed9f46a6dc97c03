//! What a worker shows to prove that a task is its own.

use std::fmt;
use std::str::FromStr;

use milepost_core::event::StepRef;
use milepost_core::id::{OrgId, RunId, TaskId};
use milepost_core::run::TaskRef;
use uuid::Uuid;

/// Names the attempt and carries the secret of its lease. It says which run and step it belongs to, so an answer finds its
/// way without a look into the database. Workers take it as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseToken {
    pub(crate) org: OrgId,
    pub(crate) run: RunId,
    pub(crate) task: TaskRef,
    pub(crate) nonce: u64,
}

impl LeaseToken {
    #[must_use]
    pub fn task_id(&self) -> TaskId {
        TaskId::of(self.run, self.task.step)
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TaskRef { step, logical_attempt, engine_attempt } = self.task;
        write!(f, "{}.{}.{}.", self.org.0, self.run.0.simple(), step.step)?;
        if let Some(item) = step.item {
            write!(f, "{item}")?;
        }
        write!(f, ".{logical_attempt}.{engine_attempt}.{:016x}", self.nonce)
    }
}

/// The text is none that a server has given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no lease token; send back the one that came with the task, unchanged")]
pub struct BadToken;

impl FromStr for LeaseToken {
    type Err = BadToken;

    fn from_str(text: &str) -> Result<LeaseToken, BadToken> {
        let read = || {
            let mut parts = text.split('.');
            let org = OrgId(parts.next()?.parse().ok()?);
            let run = RunId(Uuid::try_parse(parts.next()?).ok()?);
            let step = parts.next()?.parse().ok()?;
            let item = match parts.next()? {
                "" => None,
                item => Some(item.parse().ok()?),
            };
            let (logical_attempt, engine_attempt) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            let nonce = u64::from_str_radix(parts.next()?, 16).ok()?;
            let task = TaskRef { step: StepRef { step, item }, logical_attempt, engine_attempt };
            parts.next().is_none().then_some(LeaseToken { org, run, task, nonce })
        };
        read().ok_or(BadToken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_being_sent_and_other_texts_are_none() {
        for item in [None, Some(7)] {
            let task = TaskRef { step: StepRef { step: 3, item }, logical_attempt: 2, engine_attempt: 1 };
            let token = LeaseToken { org: OrgId(1), run: RunId(Uuid::from_u128(99)), task, nonce: 0xABCD };
            assert_eq!(token.to_string().parse(), Ok(token));
        }
        for text in
            ["", "x", "1.00000000000000000000000000000063.3..2.1", "1.00000000000000000000000000000063.3..2.1.ab.c"]
        {
            assert_eq!(text.parse::<LeaseToken>(), Err(BadToken), "{text}");
        }
    }
}
