//! The herald takes in what the committer wrote to watched runs, encodes it, and wakes those who watch: all that is not
//! the committer's work.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::hub::News;
use crate::supervisor::Pulse;

const AT_ONCE: usize = 64;

#[derive(Debug)]
pub(crate) struct Herald {
    pub(super) inbox: mpsc::Receiver<News>,
}

impl Herald {
    pub(crate) async fn run(mut self, pulse: Arc<Pulse>) {
        let mut news = Vec::with_capacity(AT_ONCE);
        while pulse.rest(self.inbox.recv_many(&mut news, AT_ONCE)).await > 0 {
            for (topic, rows) in news.drain(..) {
                topic.absorb(&rows);
            }
        }
    }
}
