//! Reading what steps said: pages of lines, in the order of steps, attempts and lines.

use std::time::Duration;

use milepost_core::event::StepRef;
use milepost_core::id::RunId;
use milepost_core::run::{Rejection, RejectionKind, unknown_step};
use milepost_core::time::Timestamp;
use milepost_store::rows::{LogChunkRow, LogPosition};
use serde::Serialize;

use super::chunk::{StoredLine, lines_of};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::skills::LogStream;

/// Rows that are read at once.
const ROWS: u32 = 16;
/// How long a reader waits for what was said a moment ago to be stored.
const PATIENCE: Duration = Duration::from_secs(1);

/// One line that a step said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLineView {
    pub step_id: String,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    /// Counted from 0 within the attempt.
    pub line: u32,
    pub at: Timestamp,
    pub stream: LogStream,
    pub text: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct LogPage {
    pub items: Vec<LogLineView>,
    /// Where the next page begins; none at the end of what there is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl Engine {
    /// What a run's steps said, or one of them: up to `limit` lines from the cursor on. Lines come step by step, then
    /// attempt by attempt; those that a step adds later do not move the ones that are there.
    ///
    /// # Errors
    /// There is no such run or step, or the cursor is none of ours.
    pub async fn logs(
        &self,
        run: RunId,
        step: Option<&str>,
        cursor: Option<String>,
        limit: u32,
    ) -> Result<LogPage, EngineError> {
        let mut from = cursor.as_deref().map(Cursor::parse).transpose()?;
        let created_at = self.check_step(run, step).await?;
        // What was said a moment ago on this node is on its way; a store that is stuck must not hold up a reader.
        let _ = tokio::time::timeout(PATIENCE, self.logs.flush()).await;
        let mut page = Page { limit: limit.max(1) as usize, lines: Vec::new(), at: created_at };
        loop {
            let after = from.as_ref().map(|from| &from.after);
            let skip = from.as_ref().map_or(0, |from| from.skip);
            let mut rows = self.store.logs(self.org, run, step, after, ROWS).await?;
            let found = rows.len();
            rows.truncate(page.needs(&rows, skip));
            let more = rows.len() < found || found == ROWS as usize;
            let last = rows.last().map(LogChunkRow::position);
            page.take(&self.filled(rows).await?, skip);
            match last.filter(|_| more && !page.is_full()) {
                Some(after) => from = Some(Cursor { after, skip: 0 }),
                None => return Ok(page.close()),
            }
        }
    }

    /// Answers when the run was created.
    async fn check_step(&self, run: RunId, step: Option<&str>) -> Result<Timestamp, EngineError> {
        let head = self.head(run).await?;
        let Some(name) = step else { return Ok(head.created_at) };
        let plan = self.plans.by_hash(self.org, head.plan_hash).await?;
        match StepRef::parse(name, &plan) {
            Some(_) => Ok(head.created_at),
            None => Err(unknown_step(name, &plan).into()),
        }
    }

    /// The rows with what is elsewhere; nothing where it is gone.
    async fn filled(&self, rows: Vec<LogChunkRow>) -> Result<Vec<LogChunkRow>, EngineError> {
        let fill = |mut row: LogChunkRow| async {
            if let (Some(key), Some(blobs)) = (&row.blob, &self.blobs) {
                row.content = blobs.get(key).await?.map(Vec::from).unwrap_or_default();
            }
            Ok(row)
        };
        futures::future::try_join_all(rows.into_iter().map(fill)).await
    }
}

/// Lines that gather for a page: one more than it shows, so that it is known whether there is another.
struct Page {
    limit: usize,
    lines: Vec<(Cursor, LogLineView)>,
    /// When the last line was said; before the first, when the run was created.
    at: Timestamp,
}

impl Page {
    fn is_full(&self) -> bool {
        self.lines.len() > self.limit
    }

    /// How many of these rows it takes to be full; of the first row `skip` lines are not wanted.
    fn needs(&self, rows: &[LogChunkRow], skip: u32) -> usize {
        let wanted = (self.limit + 1).saturating_sub(self.lines.len()).saturating_add(skip as usize);
        let mut lines = 0;
        let is_needed = |row: &&LogChunkRow| {
            let before = lines;
            lines += row.lines as usize;
            before < wanted
        };
        rows.iter().take_while(is_needed).count()
    }

    /// Takes lines of rows that follow each other; of the first row those after the first `skip`.
    fn take(&mut self, rows: &[LogChunkRow], skip: u32) {
        for (place, row) in rows.iter().enumerate() {
            let skip = if place == 0 { skip } else { 0 };
            let missing = (row.blob.is_some() && row.content.is_empty()).then(|| (0, missing(row, self.at)));
            for (index, line) in lines_of(row).chain(missing).filter(|(index, _)| *index >= skip) {
                if self.is_full() {
                    return;
                }
                self.at = line.at;
                self.lines.push((Cursor::at(row, index), view(row, index, line)));
            }
        }
    }

    fn close(mut self) -> LogPage {
        let next_cursor = if self.is_full() { self.lines.pop().map(|(cursor, _)| cursor.to_string()) } else { None };
        LogPage { items: self.lines.into_iter().map(|(_, line)| line).collect(), next_cursor }
    }
}

/// What stands for lines that were kept in the blob store and are not there.
fn missing(row: &LogChunkRow, at: Timestamp) -> StoredLine {
    let text = format!("[milepost: lines missing here: {}; their blob is not in the blob store]", row.lines);
    StoredLine { at, stream: LogStream::Log, text }
}

fn view(row: &LogChunkRow, index: u32, line: StoredLine) -> LogLineView {
    LogLineView {
        step_id: row.step_id.clone(),
        logical_attempt: row.logical_attempt,
        engine_attempt: row.engine_attempt,
        line: row.first_line + index,
        at: line.at,
        stream: line.stream,
        text: line.text,
    }
}

/// The line to go on with: so many lines into the row after a position. Rows never change, so it stays there.
#[derive(Debug, PartialEq, Eq)]
struct Cursor {
    after: LogPosition,
    skip: u32,
}

impl Cursor {
    fn at(row: &LogChunkRow, index: u32) -> Cursor {
        Cursor { after: just_before(row.position()), skip: index }
    }

    fn parse(text: &str) -> Result<Cursor, EngineError> {
        let read = || {
            let mut parts = text.splitn(5, '.');
            let mut number = || parts.next()?.parse::<u32>().ok();
            let (logical_attempt, engine_attempt, first_line, skip) = (number()?, number()?, number()?, number()?);
            let step_id = parts.next().filter(|step| !step.is_empty())?.to_owned();
            Some(Cursor { after: LogPosition { step_id, logical_attempt, engine_attempt, first_line }, skip })
        };
        read().ok_or_else(|| {
            let message = format!("`{text}` is no cursor; take the one that came with the page before");
            Rejection { kind: RejectionKind::Invalid, code: "bad_cursor", message }.into()
        })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LogPosition { step_id, logical_attempt, engine_attempt, first_line } = &self.after;
        write!(f, "{logical_attempt}.{engine_attempt}.{first_line}.{}.{step_id}", self.skip)
    }
}

/// The greatest position before this one, as far as rows go: lines and engine attempts are counted in 31 bits.
fn just_before(at: LogPosition) -> LogPosition {
    match at.first_line {
        0 => LogPosition { engine_attempt: at.engine_attempt.saturating_sub(1), first_line: i32::MAX as u32, ..at },
        line => LogPosition { first_line: line - 1, ..at },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_being_written_down() {
        for (step_id, first_line) in [("shots[3]", 0), ("a.b", 7)] {
            let at = LogPosition { step_id: step_id.to_owned(), logical_attempt: 2, engine_attempt: 1, first_line };
            let cursor = Cursor { after: just_before(at.clone()), skip: 5 };
            assert!(cursor.after < at);
            assert_eq!(Cursor::parse(&cursor.to_string()).unwrap(), cursor);
        }
    }

    #[test]
    fn other_texts_are_no_cursors() {
        for text in ["", "1.2.3", "1.2.3.4.", "a.b.c.d.e", "-1.0.0.0.a", "1.2.3.99999999999.a"] {
            assert_eq!(Cursor::parse(text).unwrap_err().code(), "bad_cursor", "{text}");
        }
    }
}
