//! A run's events as they happen: in the order of the log, each once, up to the run's end.
//!
//! A task of its own reads, so that whoever follows may do other things in between and miss nothing.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{OrgId, RunId};
use milepost_core::record::EventRow;
use milepost_engine::view::EventView;
use milepost_store::Store;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Batches that may wait for whoever follows.
const QUEUE: usize = 16;
const PAGE: u32 = 1000;
/// How often the log is read for what other processes wrote.
const LOOK: Duration = Duration::from_millis(250);

/// What comes out of a feed.
#[derive(Debug)]
pub(crate) enum Fed {
    /// In order, without a gap to those before.
    Events(Vec<EventView>),
    /// A word to whoever watches, such as that the connection is lost.
    Note(String),
}

pub(crate) type FeedSender = mpsc::Sender<anyhow::Result<Fed>>;

#[derive(Debug)]
pub(crate) struct Feed {
    receiver: mpsc::Receiver<anyhow::Result<Fed>>,
    task: JoinHandle<()>,
}

impl Feed {
    /// Starts a task that fills the feed. It ends with the run; what it fails with is the last that comes.
    pub(crate) fn fill<F, R>(fill: F) -> Feed
    where
        F: FnOnce(FeedSender) -> R,
        R: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let filling = fill(sender.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = filling.await {
                // Whoever followed has gone.
                let _ = sender.send(Err(error)).await;
            }
        });
        Feed { receiver, task }
    }

    /// `None`: the run has ended, and all of it was given. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Fed>> {
        self.receiver.recv().await.transpose()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Fills a feed from a log, whoever writes it.
pub(super) struct LogReader {
    pub(super) store: Arc<dyn Store>,
    pub(super) run: RunId,
    pub(super) last_seq: u64,
    /// What an engine in this process writes, at once. It may have holes; the log has none.
    pub(super) live: Option<mpsc::Receiver<Arc<[EventRow]>>>,
    pub(super) sender: FeedSender,
}

impl LogReader {
    pub(super) async fn read_to_end(mut self) -> anyhow::Result<()> {
        // The event that was missing when it was last looked for, and the one that was said to be missing.
        let (mut missing, mut told) = (None, None);
        loop {
            while self.take_page().await? {}
            let Some(head) = self.store.head(OrgId::DEFAULT, self.run).await? else {
                // A run that is gone has ended, too.
                return Ok(());
            };
            match Some(self.last_seq + 1).filter(|next| *next <= head.last_seq) {
                None if head.status.is_terminal() => return Ok(()),
                None => missing = None,
                // Written a moment ago, unless it is not there the next time either.
                Some(next) if missing != Some(next) => missing = Some(next),
                Some(next) if told != Some(next) => {
                    told = Some(next);
                    let _ = self.sender.send(Ok(Fed::Note(stale(next)))).await;
                }
                Some(_) => {}
            }
            self.listen().await;
        }
    }

    /// Whether there may be more.
    async fn take_page(&mut self) -> anyhow::Result<bool> {
        let rows = self.store.events(OrgId::DEFAULT, self.run, self.last_seq, PAGE).await?;
        // What is behind a gap waits until that closes.
        let whole = rows.iter().zip(self.last_seq + 1..).take_while(|(row, expected)| row.seq == *expected).count();
        self.give(&rows[..whole]).await;
        Ok(whole == PAGE as usize)
    }

    async fn give(&mut self, rows: &[EventRow]) {
        let Some(last) = rows.last() else { return };
        self.last_seq = last.seq;
        let events = rows.iter().map(|row| EventView::of(self.run, row)).collect();
        // Whoever followed has gone, and with it, in a moment, this task.
        let _ = self.sender.send(Ok(Fed::Events(events))).await;
    }

    /// Gives what is heard, until there is a reason to look at the log.
    async fn listen(&mut self) {
        let Some(mut live) = self.live.take() else { return tokio::time::sleep(LOOK).await };
        while let Ok(heard) = tokio::time::timeout(LOOK, live.recv()).await {
            // One that fell behind was let go: the log has everything.
            let Some(rows) = heard else { return };
            let follows = rows.first().is_some_and(|row| row.seq == self.last_seq + 1);
            if follows {
                self.give(&rows).await;
            }
            if !follows || rows.last().is_some_and(ends_run) {
                break;
            }
        }
        self.live = Some(live);
    }
}

/// A gap in a log, in words for whoever follows it.
pub(crate) fn stale(from_seq: u64) -> String {
    format!("the log lacks event {from_seq}: this run is stale; it goes on here when that is there again")
}

fn ends_run(row: &EventRow) -> bool {
    matches!(&*row.event_type, "RunCompleted" | "RunFailed" | "RunCancelled" | "RunTerminated")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_feed_that_is_let_go_reads_no_more() {
        let mut feed = Feed::fill(|sender| async move {
            let _ = sender.send(Ok(Fed::Note("hello".to_owned()))).await;
            std::future::pending().await
        });
        assert!(matches!(feed.next().await, Ok(Some(Fed::Note(_)))));
        let task = feed.task.abort_handle();
        drop(feed);
        // It ends by itself, however long nothing comes.
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
    }
}
