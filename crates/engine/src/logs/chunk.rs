//! Lines put together: a row of the store holds some lines of one attempt, each a line of JSON.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use milepost_core::time::Timestamp;
use milepost_store::rows::LogChunkRow;
use serde::{Deserialize, Serialize};

use super::attempt::{Attempt, Left, Line};
use crate::skills::LogStream;

/// A row has at most so many bytes, unless one line alone has more.
const CHUNK_BYTES: usize = 128 * 1024;

/// A line as it is stored.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct StoredLine {
    pub(super) at: Timestamp,
    pub(super) stream: LogStream,
    pub(super) text: String,
}

/// Puts lines into rows, in the order in which they come.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    rows: Vec<LogChunkRow>,
    /// The newest row of each attempt, by where the attempt stands in memory; it is held so that no other can stand there.
    newest: HashMap<usize, (usize, Arc<Attempt>)>,
}

impl Chunks {
    pub(super) fn add(&mut self, line: Line, max_bytes: usize) {
        let Line { attempt, at, stream, text, lost_before, last } = line;
        self.add_lost(&attempt, at, lost_before);
        if let Some(text) = text {
            self.push(&attempt, &StoredLine { at, stream, text });
        }
        if last {
            self.add_cut(&attempt, at, max_bytes);
        }
    }

    pub(super) fn add_left(&mut self, left: &Left, at: Timestamp, max_bytes: usize) {
        self.add_lost(&left.attempt, at, left.lost);
        if left.cut {
            self.add_cut(&left.attempt, at, max_bytes);
        }
    }

    fn add_lost(&mut self, attempt: &Arc<Attempt>, at: Timestamp, lost: u64) {
        if lost > 0 {
            let text = format!("[milepost: lines missing here: {lost}; they came faster than they could be stored]");
            self.push(attempt, &StoredLine { at, stream: LogStream::Log, text });
        }
    }

    fn add_cut(&mut self, attempt: &Arc<Attempt>, at: Timestamp, max_bytes: usize) {
        let text = format!("[milepost: the log of this attempt is cut here; {max_bytes} bytes are kept (log_bytes)]");
        self.push(attempt, &StoredLine { at, stream: LogStream::Log, text });
    }

    fn push(&mut self, attempt: &Arc<Attempt>, line: &StoredLine) {
        let number = attempt.next_line.fetch_add(1, Ordering::Relaxed);
        let mut text = serde_json::to_vec(line).expect("a line has string keys and no failing serializer");
        text.push(b'\n');
        let place = Arc::as_ptr(attempt) as usize;
        let row = self.newest.get(&place).map(|(row, _)| &mut self.rows[*row]);
        if let Some(row) = row.filter(|row| row.content.len() + text.len() <= CHUNK_BYTES) {
            row.content.extend_from_slice(&text);
            row.lines += 1;
            return;
        }
        self.newest.insert(place, (self.rows.len(), attempt.clone()));
        self.rows.push(LogChunkRow {
            org: attempt.key.org,
            run: attempt.key.run,
            step_id: attempt.key.step_id.to_string(),
            logical_attempt: attempt.key.logical_attempt,
            engine_attempt: attempt.key.engine_attempt,
            first_line: number,
            lines: 1,
            content: text,
            blob: None,
        });
    }

    pub(super) fn into_rows(self) -> Vec<LogChunkRow> {
        self.rows
    }
}

/// The lines of a row, each with its place in it. What cannot be read is left out.
pub(super) fn lines_of(row: &LogChunkRow) -> impl Iterator<Item = (u32, StoredLine)> {
    let lines = row.content.split(|byte| *byte == b'\n');
    (0..).zip(lines).filter_map(|(index, line)| Some((index, serde_json::from_slice(line).ok()?)))
}
