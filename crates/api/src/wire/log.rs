//! What a step wrote.

use milepost_engine::LogLineView;
use serde::Serialize;
use utoipa::ToSchema;

/// One line.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct LogLine {
    step_id: String,
    logical_attempt: u32,
    engine_attempt: u32,
    /// Counted from 0 within the attempt.
    line: u32,
    #[schema(format = DateTime)]
    at: String,
    /// `stdout`, `stderr` or `log`.
    stream: String,
    text: String,
}

impl From<LogLineView> for LogLine {
    fn from(line: LogLineView) -> LogLine {
        LogLine {
            step_id: line.step_id,
            logical_attempt: line.logical_attempt,
            engine_attempt: line.engine_attempt,
            line: line.line,
            at: line.at.to_string(),
            stream: line.stream.as_str().to_owned(),
            text: line.text,
        }
    }
}
