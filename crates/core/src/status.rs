//! Statuses of runs and steps, and the one table of which may follow which.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err(UnknownWord { word: text.to_owned(), known: &[$($word,)+] }),
                }
            }
        }
    };
}

/// A status or reason that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("`{word}` is not one of {}", known.join(", "))]
pub struct UnknownWord {
    word: String,
    known: &'static [&'static str],
}

impl UnknownWord {
    pub(crate) fn new(word: &str, known: &'static [&'static str]) -> UnknownWord {
        UnknownWord { word: word.to_owned(), known }
    }
}

words! {
    /// Where a run stands.
    RunStatus {
        /// Waits for approval or for room.
        Pending = "pending",
        Approved = "approved",
        /// Accepted; starts by itself, at once or at its `start_at`.
        Queued = "queued",
        Provisioning = "provisioning",
        Running = "running",
        Paused = "paused",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        Terminated = "terminated",
    }
}

words! {
    /// Where a step stands.
    StepStatus {
        Pending = "pending",
        Running = "running",
        Completed = "completed",
        Failed = "failed",
        Skipped = "skipped",
    }
}

words! {
    /// Why a step was skipped. Only `cache_hit` and `condition` satisfy the steps that depend on it.
    SkipReason {
        CacheHit = "cache_hit",
        Condition = "condition",
        UpstreamFailed = "upstream_failed",
        Cancelled = "cancelled",
        Operator = "operator",
        /// A patch took the step away.
        Removed = "removed",
        /// The run ended before the step's turn came.
        RunStopped = "run_stopped",
    }
}

impl RunStatus {
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled | RunStatus::Terminated)
    }

    /// The transition table of runs. A run may pass over the states before `running` that it does not need.
    #[must_use]
    pub fn may_become(self, next: RunStatus) -> bool {
        use RunStatus::{
            Approved, Cancelled, Completed, Failed, Paused, Pending, Provisioning, Queued, Running, Terminated,
        };
        match (self, next) {
            (Pending, Approved | Queued | Running)
            | (Approved, Queued | Running)
            | (Queued, Provisioning | Running)
            | (Provisioning, Running)
            | (Running, Paused | Completed | Failed)
            | (Paused, Running)
            // Reopened by RETRY_STEP.
            | (Failed, Running) => true,
            // Stopping only ever gets more severe, and only a run that has not ended can be stopped.
            (from, Cancelled | Terminated) => !from.is_terminal(),
            _ => false,
        }
    }
}

impl StepStatus {
    #[must_use]
    pub fn is_terminal(self) -> bool {
        matches!(self, StepStatus::Completed | StepStatus::Failed | StepStatus::Skipped)
    }

    /// The transition table of steps.
    #[must_use]
    pub fn may_become(self, next: StepStatus) -> bool {
        use StepStatus::{Completed, Failed, Pending, Running, Skipped};
        matches!(
            (self, next),
            (Pending, Running | Skipped | Failed)
                | (Running, Completed | Failed | Skipped)
                // Its worker was lost: back in line.
                | (Running, Pending)
                // Retried, by policy or by RETRY_STEP.
                | (Failed, Pending)
                // Skipped for a failure upstream that is now being retried.
                | (Skipped, Pending)
        )
    }
}

impl SkipReason {
    /// Whether the steps that depend on a step skipped for this reason may run.
    #[must_use]
    pub fn satisfies(self) -> bool {
        matches!(self, SkipReason::CacheHit | SkipReason::Condition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_follows_an_ended_run_but_reopening_a_failed_one() {
        for from in RunStatus::ALL.iter().filter(|s| s.is_terminal()) {
            for to in RunStatus::ALL {
                let reopened = (*from, *to) == (RunStatus::Failed, RunStatus::Running);
                assert_eq!(from.may_become(*to), reopened, "{from} → {to}");
            }
        }
    }

    #[test]
    fn every_open_run_can_be_stopped() {
        for from in RunStatus::ALL.iter().filter(|s| !s.is_terminal()) {
            assert!(from.may_become(RunStatus::Cancelled) && from.may_become(RunStatus::Terminated));
        }
    }

    #[test]
    fn words_round_trip() {
        for status in RunStatus::ALL {
            assert_eq!(status.as_str().parse::<RunStatus>().unwrap(), *status);
        }
        assert!("RUNNING".parse::<RunStatus>().is_err());
    }
}
