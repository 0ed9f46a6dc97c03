//! Results that are being made.

use std::sync::Arc;

use milepost_core::cache::{Flight, Trust};
use milepost_core::event::StepRef;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_store::Store;
use milepost_store::rows::{
    Answer, Batch, CacheWrite, FlightWrite, HeadWrite, KeptWrite, Led, Question, ResultKey, RunWrite, WriteResult,
};

use super::{commit, new_key, no_change, written};
use crate::rows::{ORG, advance, at, batch, new_run, start, status, unique};

const CUT: StepRef = StepRef { step: 1, item: None };
const SHOT: StepRef = StepRef { step: 1, item: Some(0) };

pub(super) async fn check(store: &Arc<dyn Store>) {
    a_flight_comes_with_its_run_and_is_everybodys_to_see(&**store).await;
    whoever_wants_what_another_makes_conflicts_with_its_group_and_no_other(&**store).await;
    one_that_leads_may_say_so_again(&**store).await;
    what_is_over_goes_and_nothing_else(&**store).await;
    what_is_there_is_not_made_unless_it_is_of_no_use(&**store).await;
    a_flight_whose_run_has_ended_is_none(&**store).await;
    orgs_do_not_wait_for_each_other(&**store).await;
    of_two_in_one_batch_the_first_leads(&**store).await;
    many_begin_the_same_at_the_same_time(store).await;
}

fn global(key: Digest) -> ResultKey {
    ResultKey { key, run: None }
}

fn led(key: Digest, step: StepRef) -> Led {
    Led { key: global(key), step, anyway: false }
}

fn leads(flights: impl IntoIterator<Item = Led>) -> FlightWrite {
    FlightWrite { led: flights.into_iter().collect(), ..FlightWrite::default() }
}

fn with(write: RunWrite, flights: FlightWrite) -> RunWrite {
    RunWrite { cache: Some(Box::new(CacheWrite { flights, ..no_change(at(1)) })), ..write }
}

/// A run that leads these from its first event on.
async fn leader(store: &dyn Store, flights: impl IntoIterator<Item = Led>) -> RunId {
    let run = new_run();
    written(store, with(start(run, 1), leads(flights))).await;
    run
}

/// As a question and as a look say.
async fn under_way(store: &dyn Store, org: OrgId, keys: &[ResultKey]) -> Vec<Option<(RunId, StepRef)>> {
    let (_, mut answers) = store.ask(vec![Question::Flights { org, keys: keys.to_vec() }]).await.unwrap();
    let Some(Answer::Flights(asked)) = answers.pop() else { panic!("{answers:?}") };
    let keys: Vec<(OrgId, ResultKey)> = keys.iter().map(|key| (org, *key)).collect();
    assert_eq!(store.flights().under_way(&keys).await.unwrap(), asked);
    for (flight, (_, key)) in asked.iter().zip(keys) {
        assert!(flight.is_none_or(|flight: Flight| flight.key == key.key), "{flight:?}");
    }
    asked.into_iter().map(|flight| flight.map(|flight| (flight.run, flight.step))).collect()
}

async fn led_by(store: &dyn Store, key: Digest) -> Option<(RunId, StepRef)> {
    under_way(store, ORG, &[global(key)]).await[0]
}

async fn a_flight_comes_with_its_run_and_is_everybodys_to_see(store: &dyn Store) {
    let (one, other, lost) = (new_key(), new_key(), new_key());
    let run = new_run();
    let own = Led { key: ResultKey { key: other, run: Some(run) }, step: SHOT, anyway: false };
    written(store, with(start(run, 1), leads([led(one, CUT), own]))).await;
    let stale = with(advance(run, 7, 1), leads([led(lost, CUT)]));
    assert_eq!(commit(store, batch([stale])).await, [WriteResult::Conflict]);
    let keys = [global(lost), own.key, global(one), global(other)];
    assert_eq!(under_way(store, ORG, &keys).await, [None, Some((run, SHOT)), Some((run, CUT)), None]);
}

async fn whoever_wants_what_another_makes_conflicts_with_its_group_and_no_other(store: &dyn Store) {
    let (taken, free, third) = (new_key(), new_key(), new_key());
    let first = leader(store, [led(taken, CUT)]).await;
    let (loser, beside, other) = (new_run(), new_run(), new_run());
    let writes = [
        RunWrite { group: 1, ..with(start(loser, 1), leads([led(free, CUT), led(taken, CUT)])) },
        RunWrite { group: 2, ..with(start(other, 1), leads([led(third, CUT)])) },
        RunWrite { group: 1, ..start(beside, 1) },
    ];
    let results = commit(store, Batch { writes: writes.into(), ..Batch::default() }).await;
    assert_eq!(results, [WriteResult::Conflict, WriteResult::Written, WriteResult::Conflict]);
    for (run, there) in [(loser, false), (beside, false), (other, true)] {
        assert_eq!(store.head(ORG, run).await.unwrap().is_some(), there);
    }
    let keys = [global(taken), global(free), global(third)];
    assert_eq!(under_way(store, ORG, &keys).await, [Some((first, CUT)), None, Some((other, CUT))]);
    // Another step of the same run is another.
    let own = with(advance(first, 1, 1), leads([led(taken, SHOT)]));
    assert_eq!(commit(store, batch([own])).await, [WriteResult::Conflict]);
}

async fn one_that_leads_may_say_so_again(store: &dyn Store) {
    let key = new_key();
    let run = leader(store, [led(key, CUT)]).await;
    written(store, with(advance(run, 1, 0), leads([led(key, CUT)]))).await;
    written(store, with(advance(run, 1, 1), leads([led(key, CUT)]))).await;
    assert_eq!(led_by(store, key).await, Some((run, CUT)));
}

async fn what_is_over_goes_and_nothing_else(store: &dyn Store) {
    let keys = [new_key(), new_key(), new_key(), new_key()];
    let items = [0, 1, 2].map(|item| StepRef { step: 1, item: Some(item) });
    let all = [led(keys[0], CUT), led(keys[1], items[0]), led(keys[2], items[1]), led(keys[3], items[2])];
    let run = leader(store, all).await;
    let bystander = new_key();
    let other = leader(store, [led(bystander, CUT)]).await;
    let there = async || {
        let found = under_way(store, ORG, &[keys[0], keys[1], keys[2], keys[3], bystander].map(global)).await;
        found.iter().map(Option::is_some).collect::<Vec<_>>()
    };
    let landed = FlightWrite { landed: vec![items[1]], ..FlightWrite::default() };
    written(store, with(advance(run, 1, 1), landed)).await;
    assert_eq!(there().await, [true, true, false, true, true]);
    let stale = FlightWrite { landed: vec![CUT], ..FlightWrite::default() };
    assert_eq!(commit(store, batch([with(advance(run, 1, 1), stale)])).await, [WriteResult::Conflict]);
    let but = FlightWrite { landed_but: Some(vec![items[2]]), ..FlightWrite::default() };
    written(store, with(advance(run, 2, 1), but)).await;
    assert_eq!(there().await, [false, false, false, true, true]);
    // What is led is led, whatever else is over.
    let again = FlightWrite { led: vec![led(keys[0], items[2])], landed: vec![items[2]], landed_but: Some(Vec::new()) };
    written(store, with(advance(run, 3, 1), again)).await;
    assert_eq!(there().await, [true, false, false, false, true]);
    assert_eq!(led_by(store, bystander).await, Some((other, CUT)));
}

async fn what_is_there_is_not_made_unless_it_is_of_no_use(store: &dyn Store) {
    let key = new_key();
    let kept = KeptWrite {
        key: global(key),
        workflow: unique("workflow").into(),
        step_id: "s".into(),
        trust: Trust::Open,
        output: Json::trusted("1"),
        output_hash: Digest::of(b"1"),
        beyond: None,
        seq: 1,
        duration_ms: 1,
    };
    let keep = CacheWrite { kept: vec![kept], ..no_change(at(1)) };
    written(store, RunWrite { cache: Some(Box::new(keep)), ..start(new_run(), 1) }).await;
    let run = new_run();
    let refused = with(start(run, 1), leads([led(key, CUT)]));
    assert_eq!(commit(store, batch([refused])).await, [WriteResult::Conflict]);
    written(store, with(start(run, 1), leads([Led { anyway: true, ..led(key, CUT) }]))).await;
    assert_eq!(led_by(store, key).await, Some((run, CUT)));
}

async fn a_flight_whose_run_has_ended_is_none(store: &dyn Store) {
    let key = new_key();
    let gone = leader(store, [led(key, CUT)]).await;
    let left = async || {
        let rows = store.flights().left_behind(1_000_000).await.unwrap();
        rows.into_iter().find(|row| row.key == global(key)).map(|row| (row.org, row.leader, row.since))
    };
    assert_eq!(left().await, None);
    let ended = HeadWrite::Update { status: Some(status(RunStatus::Cancelled)), owner: None };
    written(store, RunWrite { head: ended, ..advance(gone, 1, 1) }).await;
    assert_eq!((led_by(store, key).await, left().await), (None, Some((ORG, (gone, CUT), at(1)))));
    let next = leader(store, [led(key, SHOT)]).await;
    assert_eq!((led_by(store, key).await, left().await), (Some((next, SHOT)), None));
}

async fn orgs_do_not_wait_for_each_other(store: &dyn Store) {
    let (key, theirs) = (new_key(), OrgId(77));
    let ours = leader(store, [led(key, CUT)]).await;
    let run = new_run();
    written(store, RunWrite { org: theirs, ..with(start(run, 1), leads([led(key, CUT)])) }).await;
    assert_eq!(led_by(store, key).await, Some((ours, CUT)));
    assert_eq!(under_way(store, theirs, &[global(key)]).await, [Some((run, CUT))]);
}

async fn of_two_in_one_batch_the_first_leads(store: &dyn Store) {
    let (taken, wanted) = (new_key(), new_key());
    leader(store, [led(taken, CUT)]).await;
    let runs = [new_run(), new_run(), new_run()];
    // The first cannot have all that it wants, so it has nothing.
    let writes = [
        with(start(runs[0], 1), leads([led(wanted, CUT), led(taken, CUT)])),
        with(start(runs[1], 1), leads([led(wanted, CUT)])),
        with(start(runs[2], 1), leads([led(wanted, CUT)])),
    ];
    let results = commit(store, batch(writes)).await;
    assert_eq!(results, [WriteResult::Conflict, WriteResult::Written, WriteResult::Conflict]);
    assert_eq!(led_by(store, wanted).await, Some((runs[1], CUT)));
}

/// In every order, and with ends of their own in between: nobody waits for ever, and each result has one leader.
async fn many_begin_the_same_at_the_same_time(store: &Arc<dyn Store>) {
    let keys: Vec<Digest> = (0..6).map(|_| new_key()).collect();
    let work = |store: Arc<dyn Store>, mut keys: Vec<Digest>, turn: usize| async move {
        keys.rotate_left(turn);
        let run = new_run();
        written(&*store, start(run, 1)).await;
        let (mut seq, mut won) = (1, 0);
        for round in 0..40 {
            let wanted = [keys[round % 6], keys[(round + 1) % 6]];
            let flights = FlightWrite { landed_but: Some(Vec::new()), ..leads(wanted.map(|key| led(key, CUT))) };
            if commit(&*store, batch([with(advance(run, seq, 1), flights)])).await == [WriteResult::Written] {
                let found = under_way(&*store, ORG, &wanted.map(global)).await;
                assert_eq!(found, [Some((run, CUT)); 2]);
                (seq, won) = (seq + 1, won + 1);
            } else if round % 3 == 0 {
                let over = FlightWrite { landed: vec![CUT], ..FlightWrite::default() };
                written(&*store, with(advance(run, seq, 1), over)).await;
                seq += 1;
            }
        }
        let over = FlightWrite { landed_but: Some(Vec::new()), ..FlightWrite::default() };
        written(&*store, with(advance(run, seq, 1), over)).await;
        won
    };
    let tasks: Vec<_> = (0..6).map(|turn| tokio::spawn(work(Arc::clone(store), keys.clone(), turn))).collect();
    let mut won = 0;
    for task in tasks {
        won += task.await.unwrap();
    }
    assert!(won > 0, "nobody ever led");
    let keys: Vec<ResultKey> = keys.into_iter().map(global).collect();
    assert_eq!(under_way(&**store, ORG, &keys).await, [None; 6]);
}
