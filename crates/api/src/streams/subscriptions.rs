//! The runs that one socket follows.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::ws::Message;
use futures::StreamExt as _;
use futures::future::{AbortHandle, Abortable, Aborted, BoxFuture};
use futures::stream::FuturesUnordered;
use milepost_core::id::RunId;
use milepost_engine::{Batch, Engine, EngineError, EventStream};
use tokio::time::sleep;

use super::message::{self, Place, Told};
use super::places::{Places, Subscribed};
use super::{End, RETRY, Stale, Stop};

/// Runs that one socket may follow at a time.
pub(super) const MAX_RUNS: usize = 1000;

pub(super) struct Subscriptions {
    engine: Arc<Engine>,
    places: Arc<Places>,
    /// Dropped out of `steps` when it is told to.
    runs: HashMap<RunId, (AbortHandle, Subscribed)>,
    steps: FuturesUnordered<Abortable<BoxFuture<'static, Step>>>,
    /// Gaps in logs that were told.
    stale: HashMap<RunId, u64>,
}

/// What happens to one subscription next.
pub(super) enum Step {
    Opened(Place, Result<EventStream, EngineError>),
    Given(EventStream, Result<Batch, EngineError>),
}

impl Subscriptions {
    pub(super) fn new(engine: Arc<Engine>, places: Arc<Places>) -> Subscriptions {
        Subscriptions { engine, places, runs: HashMap::new(), steps: FuturesUnordered::new(), stale: HashMap::new() }
    }

    /// What is wrong with following a run from there, if anything is; else the answer comes with the next step.
    pub(super) fn add(&mut self, place: Place) -> Option<Told> {
        let run = place.run_id;
        if self.runs.contains_key(&run) {
            let message = "this socket follows the run already; unsubscribe first to begin elsewhere";
            return Some(Told::error("already_subscribed", message, Some(run)));
        }
        if self.runs.len() >= MAX_RUNS {
            let message = format!("a socket follows {MAX_RUNS} runs at most; unsubscribe from some or open another");
            return Some(Told::error("too_many_runs", message, Some(run)));
        }
        let Some(subscribed) = self.places.subscribe() else {
            let message = "this server follows as many runs for WebSockets as it can; unsubscribe from some first";
            return Some(Told::error("too_many_runs", message, Some(run)));
        };
        let engine = self.engine.clone();
        self.step(run, subscribed, async move { Step::Opened(place, engine.stream(run, place.after_seq).await) });
        None
    }

    pub(super) fn remove(&mut self, run: RunId) -> Told {
        self.stale.remove(&run);
        match self.runs.remove(&run) {
            Some((handle, _)) => {
                handle.abort();
                Told::Unsubscribed { run_id: run }
            }
            None => Told::error("not_subscribed", "this socket does not follow the run", Some(run)),
        }
    }

    /// Waits until there is news of some run; for ever if none is followed. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Step {
        loop {
            match self.steps.next().await {
                Some(Ok(step)) => return step,
                Some(Err(Aborted)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// What to tell of a step; and the run is followed further.
    pub(super) fn take(&mut self, step: Step) -> Result<Vec<Message>, Stop> {
        match step {
            Step::Opened(Place { run_id, after_seq }, Ok(stream)) => {
                Ok(self.follow(stream, vec![Told::Subscribed { run_id, after_seq }.into()]))
            }
            Step::Given(stream, Ok(batch)) => {
                let run = stream.run();
                self.stale.remove(&run);
                Ok(self.follow(stream, batch.iter().map(|event| message::event(run, event)).collect()))
            }
            Step::Given(stream, Err(error)) if error.is_passing() => {
                self.go_on_later(stream);
                Ok(Vec::new())
            }
            // Told once; it goes on when the gap has closed.
            Step::Given(stream, Err(EngineError::LogGap { run, seq })) => {
                let told = self.stale.insert(run, seq) == Some(seq);
                self.go_on_later(stream);
                Ok(if told { Vec::new() } else { vec![Told::Stale(Stale::of(run, seq)).into()] })
            }
            Step::Opened(_, Err(EngineError::ShuttingDown)) | Step::Given(_, Err(EngineError::ShuttingDown)) => {
                Err(Stop::Shutdown)
            }
            Step::Opened(Place { run_id, .. }, Err(error)) => Ok(self.fail(run_id, &error)),
            Step::Given(stream, Err(error)) => Ok(self.fail(stream.run(), &error)),
        }
    }

    fn follow(&mut self, stream: EventStream, mut messages: Vec<Message>) -> Vec<Message> {
        let run = stream.run();
        match stream.ended() {
            Some(status) => {
                self.runs.remove(&run);
                messages.push(Told::End(End { run_id: run, status, last_event_seq: stream.cursor() }).into());
            }
            None => self.go_on(run, given(stream)),
        }
        messages
    }

    fn fail(&mut self, run: RunId, error: &EngineError) -> Vec<Message> {
        self.runs.remove(&run);
        vec![Told::error(error.code(), error.to_string(), Some(run)).into()]
    }

    fn go_on_later(&mut self, stream: EventStream) {
        self.go_on(stream.run(), async move {
            sleep(RETRY).await;
            given(stream).await
        });
    }

    /// The next step of a run that is followed.
    fn go_on(&mut self, run: RunId, step: impl Future<Output = Step> + Send + 'static) {
        if let Some((_, subscribed)) = self.runs.remove(&run) {
            self.step(run, subscribed, step);
        }
    }

    fn step(&mut self, run: RunId, subscribed: Subscribed, step: impl Future<Output = Step> + Send + 'static) {
        let (handle, registration) = AbortHandle::new_pair();
        self.runs.insert(run, (handle, subscribed));
        self.steps.push(Abortable::new(Box::pin(step), registration));
    }
}

async fn given(mut stream: EventStream) -> Step {
    let batch = stream.next().await;
    Step::Given(stream, batch)
}
