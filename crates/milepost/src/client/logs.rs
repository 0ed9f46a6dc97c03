//! What a server has of the lines that steps said.

use std::time::Instant;

use milepost_core::id::RunId;
use tokio::sync::mpsc::{Receiver, Sender};

use super::Client;
use crate::backend::logs::{Heard, Line, Logs, PAGE, Pace};
use crate::wire::{LogLine, Page, Said};

impl Client {
    /// A page of a run's log, or of one of its steps.
    pub(crate) async fn log_page(
        &self,
        run: RunId,
        step: Option<&str>,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<LogLine>>> {
        let run = run.to_string();
        let mut path = vec!["runs", &run];
        path.extend(step.into_iter().flat_map(|step| ["steps", step]));
        path.push("logs");
        let mut query = vec![("limit", limit.to_string())];
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get(&path, &query).await
    }

    /// Lines as they come, each time somebody asks.
    pub(crate) fn follow_logs(&self, run: RunId) -> Logs {
        let client = self.clone();
        Logs::asked(move |pokes, sender| client.answer_pokes(run, pokes, sender))
    }

    async fn answer_pokes(self, run: RunId, mut pokes: Receiver<()>, sender: Sender<Line>) {
        let (mut heard, mut pace) = (Heard::default(), Pace::default());
        while pokes.recv().await.is_some() {
            if pace.is_due() {
                let begun = Instant::now();
                self.send_new(run, &mut heard, &sender).await;
                pace.took(begun.elapsed());
            }
        }
        self.send_new(run, &mut heard, &sender).await;
    }

    /// A log that cannot be read now is read the next time; a run is not disturbed by it.
    async fn send_new(&self, run: RunId, heard: &mut Heard, sender: &Sender<Line>) {
        let mut cursor = None;
        loop {
            let page = self.log_page(run, None, cursor.as_deref(), PAGE).await;
            let Ok(page) = page else { return };
            for line in page.items.into_iter().map(|line| line.value).filter(|line| heard.is_new(line)) {
                if sender.send(Line { step_id: line.step_id, text: line.text }).await.is_err() {
                    return;
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return;
            }
        }
    }
}
