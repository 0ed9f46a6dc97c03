//! Retries by policy: exponential backoff with jitter.

use super::Decider;
use crate::event::{Body, ErrorInfo, StepRef};
use crate::plan::RetryPolicy;

impl Decider<'_> {
    /// How long to wait before the attempt after `logical`; `None` when there is to be none.
    pub(super) fn retry_delay(&self, step: StepRef, logical: u32, error: &ErrorInfo) -> Option<u64> {
        let policy = &self.state.plan.step(step.step).retry;
        let spent = self.state.step(step).map_or(0, |state| state.spent);
        let made = logical.saturating_sub(spent);
        let barred = !error.retryable || policy.non_retryable.iter().any(|code| **code == *error.code);
        if barred || made >= policy.max_attempts || self.state.halted() {
            return None;
        }
        Some(jittered(backoff(policy, made), self.context.draw()))
    }

    pub(super) fn schedule_retry(&mut self, step: StepRef, logical: u32, delay_ms: u64) {
        let cause = self.state.last_seq;
        let retry_at = self.context.now.plus_ms(delay_ms);
        let body = Body::StepRetryScheduled { retry_at, reset: Vec::new(), operator: false };
        self.emit(Some(step), logical, 1, Some(cause), body);
    }
}

/// `backoff_ms`, doubled with each attempt made, up to `max_backoff_ms`.
fn backoff(policy: &RetryPolicy, made: u32) -> u64 {
    let doublings = made.saturating_sub(1).min(63);
    policy.backoff_ms.saturating_mul(1_u64 << doublings).min(policy.max_backoff_ms)
}

/// Between half of the delay and all of it, so that what failed together does not come back together.
fn jittered(delay_ms: u64, random: u64) -> u64 {
    let half = delay_ms / 2;
    half + random % (delay_ms - half + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_maximum() {
        let policy =
            RetryPolicy { max_attempts: 100, backoff_ms: 500, max_backoff_ms: 3000, non_retryable: Vec::new() };
        let delays: Vec<u64> = (1..=5).map(|made| backoff(&policy, made)).collect();
        assert_eq!(delays, [500, 1000, 2000, 3000, 3000]);
        assert_eq!(backoff(&policy, u32::MAX), 3000);
    }

    #[test]
    fn jitter_stays_between_half_and_all() {
        for random in 0..5000 {
            assert!((500..=1000).contains(&jittered(1000, random * 7919)));
        }
        assert_eq!(jittered(0, 42), 0);
        assert_eq!(jittered(1, u64::MAX), 1);
    }
}
