//! Follows a run to its end: its events, what its steps say, and what the person at the keyboard wants.
//!
//! Events come from the engine as it writes them; what other processes wrote to the same run is read from the log.

use std::collections::BTreeSet;
use std::time::Duration;

use milepost_core::codec;
use milepost_core::id::{OrgId, RunId};
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use milepost_engine::Engine;
use milepost_engine::skills::LogLine;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;

use super::{Model, Screen};
use crate::database::Database;

/// How often the screen is drawn.
const TICK: Duration = Duration::from_millis(100);
/// Every so many ticks the log is read for what others wrote.
const LOOK_TICKS: u32 = 5;
const PAGE: u32 = 1000;

/// How following came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Run(RunStatus),
    /// Told to go while the run goes on; it is left to another process.
    Left,
    /// The same, and now.
    LeftAtOnce,
}

pub(crate) struct Follower<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) database: &'a Database,
    pub(crate) run: RunId,
    pub(crate) model: Model,
    pub(crate) screen: Screen,
    pub(crate) logs: UnboundedReceiver<LogLine>,
    pub(crate) last_seq: u64,
}

impl Follower<'_> {
    pub(crate) async fn follow(&mut self) -> anyhow::Result<Ended> {
        let engine = self.engine;
        let mut events = engine.watch(self.run);
        let mut end = std::pin::pin!(engine.wait(self.run));
        let mut tick = tokio::time::interval(TICK);
        let mut ticks = 0_u32;
        let mut wishes = Wishes::new()?;
        let mut cancelled = false;
        let mut told = BTreeSet::new();
        self.catch_up().await?;
        loop {
            tokio::select! {
                status = &mut end => {
                    let status = status?;
                    self.catch_up().await?;
                    while let Ok(line) = self.logs.try_recv() {
                        self.screen.log(&line);
                    }
                    self.screen.tick(&self.model);
                    return Ok(Ended::Run(status));
                }
                Some(rows) = events.recv() => self.take_all(&rows).await?,
                Some(line) = self.logs.recv() => self.screen.log(&line),
                _ = tick.tick() => {
                    ticks += 1;
                    if ticks.is_multiple_of(LOOK_TICKS) {
                        self.catch_up().await?;
                        self.tell_what_to_do(&mut told);
                    }
                    self.screen.tick(&self.model);
                }
                wish = wishes.next() => match wish {
                    Wish::Cancel if !cancelled => {
                        cancelled = true;
                        self.cancel().await;
                    }
                    Wish::Cancel => return Ok(Ended::LeftAtOnce),
                    Wish::Leave => return Ok(Ended::Left),
                },
            }
        }
    }

    async fn cancel(&mut self) {
        self.screen.note("cancelling the run; press Ctrl-C again to leave at once");
        if let Err(error) = self.engine.signal(self.run, Engine::new_signal("CANCEL")).await {
            self.screen.note(&format!("the run was not cancelled: {error}"));
        }
    }

    async fn take_all(&mut self, rows: &[EventRow]) -> anyhow::Result<()> {
        if rows.first().is_some_and(|row| row.seq > self.last_seq + 1) {
            self.catch_up().await?;
        }
        rows.iter().for_each(|row| self.take(row));
        Ok(())
    }

    /// Reads what the log has beyond what was seen.
    async fn catch_up(&mut self) -> anyhow::Result<()> {
        loop {
            let rows = self.engine.store().events(OrgId::DEFAULT, self.run, self.last_seq, PAGE).await?;
            rows.iter().for_each(|row| self.take(row));
            if rows.len() < PAGE as usize {
                return Ok(());
            }
        }
    }

    fn take(&mut self, row: &EventRow) {
        if row.seq != self.last_seq + 1 {
            return;
        }
        self.last_seq = row.seq;
        // One of another plan (an older run with the same request id) cannot be shown; its end is seen all the same.
        if let Ok(event) = codec::decode(row, &self.model.plan) {
            self.model.apply(&event);
            self.screen.event(&self.model, &event);
        }
    }

    /// A run that waits for somebody says how to go on, once.
    fn tell_what_to_do(&mut self, told: &mut BTreeSet<String>) {
        let (run, flag) = (self.run, self.database.as_flag());
        let mut texts: Vec<String> = self
            .model
            .waits()
            .map(|(_, name)| {
                format!("the run waits for the signal {name}: milepost runs signal {run} {name} --payload '{{}}'{flag}")
            })
            .collect();
        match self.model.status {
            RunStatus::Paused => texts.push(format!("the run is paused: milepost runs resume {run}{flag}")),
            RunStatus::Pending if self.model.plan.approval => {
                texts.push(format!("the run waits for approval: milepost runs approve {run}{flag}"));
            }
            RunStatus::Pending => texts.push("the run waits for others with its concurrency key".to_owned()),
            _ => {}
        }
        for text in texts {
            if told.insert(text.clone()) {
                self.screen.note(&text);
            }
        }
    }
}

/// What the person, or the system, wants of this process.
enum Wish {
    /// Ctrl-C.
    Cancel,
    /// SIGTERM or SIGHUP.
    Leave,
}

struct Wishes {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Wishes {
    fn new() -> std::io::Result<Wishes> {
        Ok(Wishes {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.interrupt.recv() => Wish::Cancel,
            _ = self.terminate.recv() => Wish::Leave,
            _ = self.hangup.recv() => Wish::Leave,
        }
    }
}
