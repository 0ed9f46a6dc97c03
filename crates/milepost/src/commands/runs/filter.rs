//! The flags that say which runs are meant, for lists and for verbs that take many runs at once.

use clap::Args;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;

use super::resolve;
use crate::backend::{Backend, RunFilter};
use crate::output::time;

#[derive(Clone, Debug, Args)]
pub(super) struct FilterFlags {
    /// Runs with this status; may be repeated
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Vec<RunStatus>,
    /// Runs of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// Runs that came at this moment or later: a time such as 2030-01-31T10:00:00Z, or an age such as 90s, 30m, 2h, 7d
    #[arg(long, value_name = "TIME|AGE", value_parser = parse_moment)]
    since: Option<Timestamp>,
    /// Runs that came before this moment: a time, or an age
    #[arg(long, value_name = "TIME|AGE", value_parser = parse_moment)]
    until: Option<Timestamp>,
    /// The run that was started with this request id
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// Runs that update this one
    #[arg(long, value_name = "RUN")]
    base_run: Option<String>,
    /// Runs that this one asked for, by the name of the token (or of the user)
    #[arg(long, value_name = "NAME")]
    submitted_by: Option<String>,
    /// Runs that are parked because they took their server down
    #[arg(long)]
    stuck: bool,
}

impl FilterFlags {
    pub(super) fn is_empty(&self) -> bool {
        self.status.is_empty()
            && self.workflow.is_none()
            && self.since.is_none()
            && self.until.is_none()
            && self.request_id.is_none()
            && self.base_run.is_none()
            && self.submitted_by.is_none()
            && !self.stuck
    }

    pub(super) async fn read(&self, backend: &Backend) -> anyhow::Result<RunFilter> {
        let base_run_id = match &self.base_run {
            Some(run) => Some(resolve(backend, run).await?),
            None => None,
        };
        Ok(RunFilter {
            status: self.status.clone(),
            workflow: self.workflow.clone(),
            created_after: self.since,
            created_before: self.until,
            request_id: self.request_id.clone(),
            base_run_id,
            submitted_by: self.submitted_by.clone(),
            stuck: self.stuck,
        })
    }
}

fn parse_moment(text: &str) -> Result<Timestamp, String> {
    if let Some(age_ms) = parse_age(text) {
        return Ok(before(time::now(), age_ms));
    }
    text.parse().map_err(|_| "write a time such as 2030-01-31T10:00:00Z, or an age such as 90s, 30m, 2h, 7d".to_owned())
}

/// `2h` in milliseconds.
fn parse_age(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds * 1000)
}

fn before(now: Timestamp, ms: u64) -> Timestamp {
    Timestamp(now.0.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1000)).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_a_number_and_a_unit() {
        let ages = ["90s", "30m", "2h", "7d", "1w"].map(|text| parse_age(text).unwrap() / 1000);
        assert_eq!(ages, [90, 1800, 7200, 604_800, 604_800]);
        for text in ["", "h", "2", "2 h", "-2h", "2y", "99999999999999999999d", "ä"] {
            assert_eq!(parse_age(text), None, "{text}");
        }
    }

    #[test]
    fn a_moment_is_a_time_or_an_age() {
        assert_eq!(parse_moment("1970-01-01T00:00:01Z"), Ok(Timestamp(1_000_000)));
        assert!(parse_moment("1h").unwrap() < time::now());
        assert_eq!(parse_moment("9999999w"), Ok(Timestamp(0)));
        assert!(parse_moment("yesterday").unwrap_err().contains("2h"));
    }
}
