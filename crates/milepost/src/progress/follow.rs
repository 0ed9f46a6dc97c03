//! Follows a run to its end: its events, what its steps say, and what the person at the keyboard wants. The same for a run
//! in this process, in another one, and on a server.

use std::collections::BTreeSet;
use std::time::Duration;

use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_engine::view::EventView;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Happening, Model, Outline, Screen};
use crate::backend::feed::{Fed, Feed};
use crate::backend::logs::Logs;
use crate::backend::{Backend, NewSignal};

/// How often the screen is drawn.
const TICK: Duration = Duration::from_millis(100);
/// Every so many ticks it is seen whether somebody is waited for, and what steps said.
const LOOK_TICKS: u32 = 5;

/// How following came to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The run has ended.
    Run,
    /// Told to go while the run goes on; it is left to others.
    Left,
    /// The same, and now.
    LeftAtOnce,
}

/// What Ctrl-C does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// The first cancels the run, the second leaves.
    Cancels,
    Leaves,
}

#[derive(Debug)]
pub(crate) struct Follower<'a> {
    backend: &'a Backend,
    run: RunId,
    model: Model,
    screen: Screen,
    feed: Feed,
    logs: Logs,
    interrupt: Interrupt,
    cancelled: bool,
    /// What was said already of what the run waits for.
    told: BTreeSet<String>,
}

impl<'a> Follower<'a> {
    /// Shows progress where an outline is given.
    pub(crate) fn new(backend: &'a Backend, run: RunId, outline: Option<Outline>, interrupt: Interrupt) -> Self {
        let screen = outline.as_ref().map_or(Screen::Silent, Screen::open);
        Follower {
            backend,
            run,
            model: Model::new(outline.unwrap_or_default()),
            feed: backend.feed(run, 0),
            logs: if matches!(screen, Screen::Silent) { Logs::Nowhere } else { backend.logs(run) },
            screen,
            interrupt,
            cancelled: false,
            told: BTreeSet::new(),
        }
    }

    pub(crate) async fn follow(&mut self) -> anyhow::Result<Ended> {
        let mut tick = tokio::time::interval(TICK);
        let mut ticks = 0_u32;
        let mut wishes = Wishes::new()?;
        loop {
            tokio::select! {
                fed = self.feed.next() => match fed? {
                    Some(Fed::Events(events)) => events.iter().for_each(|event| self.take(event)),
                    Some(Fed::Note(text)) => self.screen.note(&text),
                    None => return Ok(self.end().await),
                },
                line = self.logs.next() => self.screen.log(&line),
                _ = tick.tick() => {
                    ticks += 1;
                    if ticks.is_multiple_of(LOOK_TICKS) {
                        self.look();
                    }
                    self.screen.tick(&self.model);
                }
                wish = wishes.next() => {
                    if let Some(ended) = self.obey(wish, &mut wishes).await {
                        return Ok(ended);
                    }
                }
            }
        }
    }

    fn take(&mut self, event: &EventView) {
        // What cannot be read cannot be shown; the run's end is seen all the same.
        if let Some(happening) = Happening::of(event) {
            self.model.apply(&happening);
            self.screen.happened(&self.model, &happening);
        }
    }

    async fn end(&mut self) -> Ended {
        for line in self.logs.rest().await {
            self.screen.log(&line);
        }
        self.screen.tick(&self.model);
        Ended::Run
    }

    async fn obey(&mut self, wish: Wish, wishes: &mut Wishes) -> Option<Ended> {
        match (wish, self.interrupt) {
            (Wish::Stop, Interrupt::Cancels) if !self.cancelled => {
                self.cancelled = true;
                self.cancel(wishes).await
            }
            (Wish::Stop, _) => Some(Ended::LeftAtOnce),
            (Wish::Leave, _) => Some(Ended::Left),
        }
    }

    /// Cancels the run; who does not want to wait even for that may go.
    async fn cancel(&mut self, wishes: &mut Wishes) -> Option<Ended> {
        self.screen.note("cancelling the run; press Ctrl-C again to leave at once");
        self.screen.tick(&self.model);
        tokio::select! {
            sent = self.backend.signal(self.run, NewSignal::plain("CANCEL")) => {
                if let Err(error) = sent {
                    self.screen.note(&format!("the run was not cancelled: {error}"));
                }
                None
            }
            wish = wishes.next() => Some(match wish {
                Wish::Stop => Ended::LeftAtOnce,
                Wish::Leave => Ended::Left,
            }),
        }
    }

    fn look(&mut self) {
        if self.model.is_busy() {
            self.logs.poke();
        }
        for text in self.what_to_do() {
            if self.told.insert(text.clone()) {
                self.screen.note(&text);
            }
        }
    }

    /// A run that waits for somebody says how to go on.
    fn what_to_do(&self) -> Vec<String> {
        let (run, flag) = (self.run, self.backend.as_flag());
        let signal = |name: &str| {
            format!("the run waits for the signal {name}: milepost runs signal {run} {name} --payload '{{}}'{flag}")
        };
        let mut texts: Vec<String> = self.model.waits().map(signal).collect();
        match self.model.status {
            RunStatus::Paused => texts.push(format!("the run is paused: milepost runs resume {run}{flag}")),
            RunStatus::Pending if self.model.outline.approval => {
                texts.push(format!("the run waits for approval: milepost runs approve {run}{flag}"));
            }
            RunStatus::Pending => texts.push("the run waits for others with its concurrency key".to_owned()),
            _ => {}
        }
        texts
    }
}

/// What the person, or the system, wants of this process.
#[derive(Clone, Copy)]
enum Wish {
    /// Ctrl-C.
    Stop,
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
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.terminate.recv() => Wish::Leave,
            _ = self.hangup.recv() => Wish::Leave,
        }
    }
}
