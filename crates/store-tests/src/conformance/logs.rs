//! What steps wrote.

use milepost_core::id::{OrgId, RunId};
use milepost_store::Store;
use milepost_store::rows::{LogChunkRow, LogPosition};

use crate::rows::{ORG, new_run};

pub(super) async fn check(store: &dyn Store) {
    chunks_are_read_in_order(store).await;
}

fn chunk(run: RunId, step: &str, attempts: (u32, u32), first_line: u32, content: &str) -> LogChunkRow {
    LogChunkRow {
        org: ORG,
        run,
        step_id: step.to_owned(),
        logical_attempt: attempts.0,
        engine_attempt: attempts.1,
        first_line,
        lines: 2,
        content: content.as_bytes().to_vec(),
        blob: None,
    }
}

async fn chunks_are_read_in_order(store: &dyn Store) {
    let run = new_run();
    let ordered = [
        chunk(run, "B", (1, 1), 0, "first"),
        chunk(run, "a", (1, 1), 0, "second"),
        chunk(run, "a", (1, 1), 2, "third\0"),
        LogChunkRow { blob: Some("runs/1/logs/x".to_owned()), ..chunk(run, "a", (1, 2), 0, "") },
        chunk(run, "a", (2, 1), 0, "fifth"),
        chunk(run, "a[0]", (1, 1), 0, "sixth"),
    ];
    store.append_logs(ordered.iter().rev().cloned().collect()).await.unwrap();
    store.append_logs(Vec::new()).await.unwrap();
    // The same chunk again, even with other content, is no change.
    store.append_logs(vec![chunk(run, "B", (1, 1), 0, "changed")]).await.unwrap();
    let read = |step: Option<&'static str>, after: Option<LogPosition>, limit| async move {
        store.logs(ORG, run, step, after.as_ref(), limit).await.unwrap()
    };
    assert_eq!(read(None, None, 100).await, ordered);
    assert_eq!(read(None, None, 2).await, ordered[..2]);
    assert_eq!(read(None, Some(ordered[1].position()), 100).await, ordered[2..]);
    assert_eq!(read(Some("a"), None, 100).await, ordered[1..5]);
    assert_eq!(read(Some("a"), Some(ordered[2].position()), 100).await, ordered[3..5]);
    assert_eq!(read(Some("nobody"), None, 100).await, []);
    assert_eq!(store.logs(OrgId(2), run, None, None, 100).await.unwrap(), []);
}
