//! What is kept of what attempts say.

use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;
use milepost_store::memory::MemoryStore;

use super::chunk::lines_of;
use super::*;
use crate::clock::ManualClock;
use crate::skills::LogStream;
use crate::supervisor::Pulse;

struct Kept {
    handle: LogHandle,
    store: Arc<dyn Store>,
    inbox: Option<LogInbox>,
}

impl Kept {
    fn new(max_bytes: usize) -> Kept {
        let clock = Arc::new(ManualClock::at(Timestamp(1_800_000_000_000_000)));
        let (handle, inbox) = LogHandle::new(max_bytes, None, clock);
        Kept { handle, store: Arc::new(MemoryStore::new()), inbox: Some(inbox) }
    }

    fn attempt(&self, step_id: &str) -> AttemptLog {
        let (org, run) = (OrgId::DEFAULT, RunId(uuid::Uuid::nil()));
        let key = AttemptKey { org, run, step_id: step_id.into(), logical_attempt: 1, engine_attempt: 1 };
        AttemptLog::new(key, self.handle.clone())
    }

    /// `3 stdout text`: all that is stored of a step.
    async fn lines(&mut self, step: &str) -> Vec<String> {
        if let Some(inbox) = self.inbox.take() {
            let pulse = Arc::new(Pulse::new("log writer"));
            tokio::spawn(LogWriter::new(self.store.clone(), inbox, None).run(pulse));
        }
        self.handle.flush().await;
        let rows = self.store.logs(OrgId::DEFAULT, RunId(uuid::Uuid::nil()), Some(step), None, 1000).await.unwrap();
        let line = |row: &LogChunkRow, (index, line): (u32, chunk::StoredLine)| {
            format!("{} {} {}", row.first_line + index, line.stream.as_str(), line.text)
        };
        assert!(
            rows.iter().all(|row| row.lines as usize == lines_of(row).count()),
            "rows know how many lines they have"
        );
        rows.iter().flat_map(|row| lines_of(row).map(|found| line(row, found)).collect::<Vec<_>>()).collect()
    }
}

#[tokio::test]
async fn lines_keep_their_order_and_their_streams() {
    let mut kept = Kept::new(1 << 20);
    let (a, b) = (kept.attempt("a"), kept.attempt("b"));
    a.say(LogStream::Stdout, "one".to_owned());
    b.say(LogStream::Stdout, "other".to_owned());
    a.say(LogStream::Stderr, "two\n\"quoted\"".to_owned());
    assert_eq!(kept.lines("a").await, ["0 stdout one", "1 stderr two\n\"quoted\""]);
    a.say(LogStream::Log, String::new());
    assert_eq!(kept.lines("a").await[2..], ["2 log "]);
    assert_eq!(kept.lines("b").await, ["0 stdout other"]);
}

#[tokio::test]
async fn what_is_too_much_is_cut_and_that_is_said_once() {
    let mut kept = Kept::new(20);
    let log = kept.attempt("a");
    for text in ["0123456789", "äöüäöü", "more", ""] {
        log.say(LogStream::Stdout, text.to_owned());
    }
    let lines = kept.lines("a").await;
    assert_eq!(lines[..2], ["0 stdout 0123456789", "1 stdout äöüä"]);
    assert!(lines.len() == 3 && lines[2].contains("cut here; 20 bytes are kept"), "{lines:?}");
    drop(log);
    assert_eq!(kept.lines("a").await.len(), 3);
}

#[tokio::test]
async fn a_log_that_just_fits_is_not_cut() {
    let mut kept = Kept::new(8);
    let log = kept.attempt("a");
    log.say(LogStream::Stdout, "012".to_owned());
    log.say(LogStream::Stdout, "456".to_owned());
    assert_eq!(kept.lines("a").await, ["0 stdout 012", "1 stdout 456"]);
    let empty = kept.attempt("b");
    (0..100).for_each(|_| empty.say(LogStream::Stdout, String::new()));
    let lines = kept.lines("b").await;
    assert!(lines.len() == 10 && lines[9].contains("cut here"), "empty lines are not for nothing: {lines:?}");
}

#[tokio::test]
async fn lines_that_find_no_room_are_missed_where_they_would_have_stood() {
    let mut kept = Kept::new(1 << 30);
    let log = kept.attempt("a");
    // Nobody takes anything out of the queue yet.
    (0..QUEUE + 5).for_each(|n| log.say(LogStream::Stdout, n.to_string()));
    assert_eq!(kept.lines("a").await.len(), QUEUE);
    log.say(LogStream::Stdout, "later".to_owned());
    let lines = kept.lines("a").await;
    assert!(lines[QUEUE].contains("lines missing here: 5"), "{}", lines[QUEUE]);
    assert_eq!(lines[QUEUE + 1..], [format!("{} stdout later", QUEUE + 1)]);
}

#[tokio::test]
async fn an_attempt_that_ends_while_there_is_no_room_says_so_at_its_end() {
    let mut kept = Kept::new(2 * QUEUE);
    let log = kept.attempt("a");
    (0..2 * QUEUE).for_each(|_| log.say(LogStream::Stdout, "x".to_owned()));
    drop(log);
    let lines = kept.lines("a").await;
    let [missing, cut] = &lines[QUEUE..] else { panic!("{:?}", &lines[QUEUE..]) };
    assert!(missing.contains("lines missing here: 1") && cut.contains("cut here"), "{missing} {cut}");
    let mut kept = Kept::new(1 << 30);
    let log = kept.attempt("a");
    (0..QUEUE + 7).for_each(|_| log.say(LogStream::Stdout, "x".to_owned()));
    drop(log);
    assert!(kept.lines("a").await[QUEUE].contains("lines missing here: 7"));
}

#[tokio::test]
async fn one_that_says_much_at_once_takes_no_more_than_its_share_of_memory() {
    let kept = Kept::new(1 << 30);
    let log = kept.attempt("a");
    (0..100).for_each(|_| log.say(LogStream::Stdout, "x".repeat(1 << 20)));
    assert!(kept.handle.shared.queued.load(Ordering::Relaxed) <= QUEUE_BYTES + (1 << 20) + 128);
}

#[tokio::test]
async fn long_lines_are_put_into_rows_of_bounded_size() {
    let mut kept = Kept::new(1 << 20);
    let log = kept.attempt("a");
    (0..10).for_each(|n| log.say(LogStream::Stdout, n.to_string().repeat(50_000)));
    assert_eq!(kept.lines("a").await.len(), 10);
    let rows = kept.store.logs(OrgId::DEFAULT, RunId(uuid::Uuid::nil()), None, None, 1000).await.unwrap();
    assert!(rows.len() > 3 && rows.iter().all(|row| row.content.len() <= 128 * 1024), "{} rows", rows.len());
}
