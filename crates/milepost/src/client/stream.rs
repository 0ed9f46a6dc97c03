//! A run's events from a server: the SDK's stream, with a word to whoever watches when the connection is lost.

use milepost_core::id::RunId;
use milepost_engine::view::EventView;
use milepost_sdk::{Error, EventStream, Seen};

use super::{Client, refusal};
use crate::backend::feed::{Fed, Feed, FeedSender, stale};
use crate::output::error::Refusal;

impl Client {
    /// The events after `after_seq`.
    pub(crate) fn stream(&self, run: RunId, after_seq: u64) -> Feed {
        let client = self.clone();
        let events = self.sdk.watch_as(milepost_sdk::RunId(run.0), after_seq);
        Feed::fill(|sender| async move {
            pass_on(events, &sender).await.map_err(|error| match error {
                Error::Unreachable { url, why } => gone(&url, &why, run),
                error => refusal(&client.server, error),
            })
        })
    }
}

async fn pass_on(mut events: EventStream<EventView>, sender: &FeedSender) -> Result<(), Error> {
    while let Some(seen) = events.next_seen().await? {
        let fed = match seen {
            Seen::Events(events) => Fed::Events(events),
            Seen::Lost { why } => Fed::Note(format!("the server does not answer ({why}); trying again")),
            Seen::Stale { from_seq } => Fed::Note(stale(from_seq)),
            Seen::Back => Fed::Note("the server is back".to_owned()),
        };
        // Whoever followed has gone, and with it, in a moment, this task.
        let _ = sender.send(Ok(fed)).await;
    }
    Ok(())
}

fn gone(url: &str, why: &str, run: RunId) -> anyhow::Error {
    Refusal::no_server(format!(
        "the server at {url} is away: {why}; when it is back, `milepost runs watch {run}` follows the run again"
    ))
    .into()
}
