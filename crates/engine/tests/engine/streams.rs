//! Live streams: every reader is given every event once, in order, whoever wrote it and whenever the reader came.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_engine::view::EventView;
use milepost_engine::{Engine, EngineError, EventStream, NewRun};
use serde_json::Value;

use crate::support::*;

on! {
    embedded: [
        readers_that_come_and_go_see_every_event_once,
        events_of_another_node_arrive,
        a_reopened_run_streams_on,
        a_long_log_is_read_from_anywhere_by_many,
        what_is_not_there_is_said,
        readers_who_have_gone_leave_nothing_behind,
        a_stream_ends_with_its_engine,
    ],
    postgres: [readers_that_come_and_go_see_every_event_once, events_of_another_node_arrive, a_long_log_is_read_from_anywhere_by_many]
}

/// Numbers that a failing test can be run with again.
struct Dice(AtomicU64);

impl Dice {
    fn roll(&self, sides: u64) -> u64 {
        let seed = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) % sides
    }
}

/// Reads to the end of the run.
async fn read_on(stream: &mut EventStream) -> Vec<(u64, Value)> {
    let mut seen = Vec::new();
    while stream.ended().is_none() {
        for event in stream.next().await.unwrap() {
            seen.push((event.seq, serde_json::from_slice(&event.json).unwrap()));
        }
    }
    seen
}

/// The same, but goes now and then and comes back where it was.
async fn read_with_breaks(engines: &[Arc<Engine>], run: RunId, after_seq: u64, dice: &Dice) -> Vec<(u64, Value)> {
    let mut seen = Vec::new();
    let mut cursor = after_seq;
    loop {
        let engine = &engines[dice.roll(engines.len() as u64) as usize];
        let mut stream = engine.stream(run, cursor).await.unwrap();
        for _ in 0..=dice.roll(6) {
            if stream.ended().is_some() {
                return seen;
            }
            let batch = match dice.roll(4) {
                // Somebody who does not wait for the answer has not lost it.
                0 => match futures::poll!(std::pin::pin!(stream.next())) {
                    Poll::Ready(batch) => batch,
                    Poll::Pending => continue,
                },
                _ => stream.next().await,
            };
            for event in batch.unwrap() {
                seen.push((event.seq, serde_json::from_slice(&event.json).unwrap()));
            }
        }
        cursor = stream.cursor();
    }
}

/// What the log says, as it is shown outside.
async fn shown(engine: &Engine, run: RunId) -> Vec<(u64, Value)> {
    let rows = log(engine.store(), run).await;
    rows.iter().map(|row| (row.seq, serde_json::to_value(EventView::of(run, row)).unwrap())).collect()
}

/// Says where two long lists differ, not what they hold.
fn same(seen: &[(u64, Value)], expected: &[(u64, Value)], hint: &str) {
    let differs = seen.iter().zip(expected).find(|(seen, expected)| seen != expected);
    assert!(differs.is_none(), "{hint}: {differs:?}");
    assert_eq!(seen.len(), expected.len(), "{hint}");
}

const BUSY: &str = r#"
name: busy
steps:
  many: {skill: gate, foreach: "${{ range(150) }}", input: {n: "${{ item }}"}}
  wait: {skill: wait, input: {signal: go}}
  more: {skill: gate, foreach: "${{ range(150) }}", depends_on: [many], input: {n: "${{ item }}"}}
  end: {skill: noop, depends_on: [more, wait]}
"#;

async fn readers_that_come_and_go_see_every_event_once(home: Home) {
    let gate = Gate::new();
    let engines = [Arc::new(home.open(config().gate(&gate)).await), Arc::new(home.open(config().gate(&gate)).await)];
    let seed = uuid::Uuid::now_v7().as_u64_pair().1;
    let dice = Arc::new(Dice(AtomicU64::new(seed)));
    let run = start(&engines[0], BUSY, NewRun::default()).await;
    let mut readers = Vec::new();
    for n in 0..60 {
        // The run goes on while readers come.
        gate.let_through(5);
        let (all, dice) = (engines.clone(), dice.clone());
        let last = engines[0].store().head(ORG, run).await.unwrap().unwrap().last_seq;
        let after_seq = if n % 3 == 0 { 0 } else { dice.roll(last + 1) };
        readers.push(tokio::spawn(
            async move { (after_seq, within(read_with_breaks(&all, run, after_seq, &dice)).await) },
        ));
        if n % 5 == 0 {
            // Both nodes write to the run while it is read.
            send(&engines[n % 2], run, &format!("by the way {n}")).await;
        }
    }
    send(&engines[1], run, "go").await;
    let seen = futures::future::join_all(readers).await;
    let log = shown(&engines[0], run).await;
    for reader in seen {
        let (after_seq, seen) = reader.unwrap();
        same(&seen, &log[after_seq as usize..], &format!("after {after_seq}, seed {seed}"));
    }
    assert_eq!(engines.iter().map(|engine| engine.watched_runs()).sum::<usize>(), 0);
}

async fn events_of_another_node_arrive(home: Home) {
    let (a, b) = (home.open(config()).await, home.open(config()).await);
    let document = "{name: w, steps: {w: {skill: wait, input: {signal: go}}, e: {skill: noop, depends_on: [w]}}}";
    let run = start(&a, document, NewRun::default()).await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        streams.push(b.stream(run, 0).await.unwrap());
    }
    send(&a, run, "go").await;
    let seen = within(futures::future::join_all(streams.iter_mut().map(read_on))).await;
    let log = shown(&a, run).await;
    assert!(seen.iter().all(|seen| *seen == log));
    assert!(streams.iter().all(|stream| stream.ended() == Some(RunStatus::Completed)));
}

async fn a_reopened_run_streams_on(home: Home) {
    let engine = home.open(config()).await;
    let document = "{name: f, steps: {a: {skill: fail, input: {times: 1, retryable: false}}}}";
    let run = start(&engine, document, NewRun::default()).await;
    let mut stream = engine.stream(run, 0).await.unwrap();
    let mut seen = within(read_on(&mut stream)).await;
    assert_eq!(stream.ended(), Some(RunStatus::Failed));
    let failed = stream.cursor();
    send_to(&engine, run, "RETRY_STEP", "a").await;
    // Nobody has told the reader yet, or somebody has: it goes on either way.
    seen.extend(within(stream.next()).await.unwrap().iter().map(|event| {
        let value: Value = serde_json::from_slice(&event.json).unwrap();
        (event.seq, value)
    }));
    seen.extend(within(read_on(&mut stream)).await);
    assert_eq!(stream.ended(), Some(RunStatus::Completed));
    let log = shown(&engine, run).await;
    assert_eq!(seen, log);
    // One who comes now does not take the first end for the end.
    for after_seq in [0, failed - 1, failed] {
        let mut late = engine.stream(run, after_seq).await.unwrap();
        same(&within(read_on(&mut late)).await, &log[after_seq as usize..], "later");
        assert_eq!(late.ended(), Some(RunStatus::Completed));
    }
    let at_end = engine.stream(run, log.len() as u64).await.unwrap();
    assert_eq!(at_end.ended(), Some(RunStatus::Completed), "nothing is to come");
}

async fn a_long_log_is_read_from_anywhere_by_many(home: Home) {
    let engine = Arc::new(home.open(config()).await);
    let document =
        r#"{name: long, steps: {a: {skill: echo, foreach: "${{ range(1500) }}", input: {n: "${{ item }}"}}}}"#;
    let (run, _) = run(&engine, document, NewRun::default()).await;
    let log = Arc::new(shown(&engine, run).await);
    assert!(log.len() > 2000, "longer than what is kept");
    let readers = (0..30).map(|n| {
        let (engine, log) = (engine.clone(), log.clone());
        let after_seq = n % 3 * 700;
        tokio::spawn(async move {
            let mut stream = engine.stream(run, after_seq).await.unwrap();
            same(&within(read_on(&mut stream)).await, &log[after_seq as usize..], &format!("after {after_seq}"));
        })
    });
    for reader in futures::future::join_all(readers).await {
        reader.unwrap();
    }
}

async fn what_is_not_there_is_said(home: Home) {
    let engine = home.open(config()).await;
    let nobody = RunId(uuid::Uuid::now_v7());
    assert!(matches!(engine.stream(nobody, 0).await, Err(EngineError::NoSuchRun(run)) if run == nobody));
    let (run, _) = run(&engine, "{name: n, steps: {a: {skill: noop}}}", NewRun::default()).await;
    let last = log(engine.store(), run).await.len() as u64;
    let beyond = engine.stream(run, last + 1).await;
    assert!(matches!(beyond, Err(EngineError::AfterLastEvent { last_seq, .. }) if last_seq == last), "{beyond:?}");
    assert!(engine.stream(run, last).await.is_ok());
}

async fn readers_who_have_gone_leave_nothing_behind(home: Home) {
    let engine = home.open(config()).await;
    let document = "{name: w, steps: {w: {skill: wait, input: {signal: go}}}}";
    let mut streams = Vec::new();
    for _ in 0..100 {
        let run = start(&engine, document, NewRun::default()).await;
        for _ in 0..10 {
            streams.push(engine.stream(run, 0).await.unwrap());
        }
    }
    assert_eq!(engine.watched_runs(), 100);
    for _ in 0..1000 {
        assert!(engine.stream(RunId(uuid::Uuid::now_v7()), 0).await.is_err());
    }
    for stream in &mut streams {
        within(stream.next()).await.unwrap();
        // It waits for more, and whoever waits for it gives up.
        let _ = futures::poll!(std::pin::pin!(stream.next()));
    }
    assert_eq!(engine.watched_runs(), 100);
    streams.truncate(10);
    assert_eq!(engine.watched_runs(), 1);
    drop(streams);
    assert_eq!(engine.watched_runs(), 0);
}

async fn a_stream_ends_with_its_engine(home: Home) {
    let engine = home.open(config()).await;
    let run = start(&engine, "{name: w, steps: {w: {skill: wait, input: {signal: go}}}}", NewRun::default()).await;
    let last = log(engine.store(), run).await.len() as u64;
    let mut waiting = engine.stream(run, last).await.unwrap();
    let told = tokio::spawn(async move { waiting.next().await });
    within(engine.shutdown()).await;
    assert!(matches!(within(told).await.unwrap(), Err(EngineError::ShuttingDown)));
}
