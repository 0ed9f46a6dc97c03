//! Results of steps.

use std::sync::Arc;

use milepost_core::cache::Trust;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::rows::{
    Answer, CacheWrite, EpochRow, FlightWrite, FoundResult, KeptWrite, MissedWrite, PreimageWrite, Question, ResultAge,
    ResultFilter, ResultKey, ResultRow, ResultStats, RunWrite, WriteResult,
};

use super::{commit, written};
use crate::rows::{ORG, advance, at, batch, new_run, start, unique};

pub(super) async fn check(store: &Arc<dyn Store>) {
    results_are_written_with_their_run_or_not_at_all(&**store).await;
    many_are_looked_up_at_once_and_answered_in_order(&**store).await;
    an_output_that_the_asker_has_is_not_sent(&**store).await;
    an_org_finds_nothing_of_another(&**store).await;
    a_result_that_is_made_again_takes_the_place_of_the_old_one(&**store).await;
    what_serves_one_run_goes_with_it(&**store).await;
    lists_come_in_pages_and_by_what_is_asked_for(&**store).await;
    results_are_evicted_a_few_at_a_time(&**store).await;
    misses_are_counted_with_their_run_or_not_at_all(&**store).await;
    hits_are_remembered_when_their_results_are_gone(&**store).await;
    what_nobody_has_used_is_found_and_evicted(&**store).await;
    an_output_is_shown_by_its_first_characters(&**store).await;
    preimages_that_no_result_has_are_forgotten_when_they_are_old(&**store).await;
    what_a_step_began_with_comes_newest_first(&**store).await;
    who_asks_on_is_answered_on_and_takes_nothing(&**store).await;
    what_is_disowned_is_counted(&**store).await;
    many_keep_and_take_the_same_at_the_same_time(store).await;
}

/// A key that nothing else in the database has.
pub(crate) fn new_key() -> Digest {
    Digest::of(unique("key").as_bytes())
}

pub(crate) fn no_change(at: Timestamp) -> CacheWrite {
    let flights = FlightWrite::default();
    let (preimages, kept, used, missed) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    CacheWrite { at, preimages, kept, used, missed, run_ended: false, flights }
}

const OUTPUT: &str = r#"{"text":"Grüße"}"#;

fn global(key: Digest) -> ResultKey {
    ResultKey { key, run: None }
}

pub(super) fn kept(key: Digest, workflow: &str, step: &str) -> KeptWrite {
    KeptWrite {
        key: global(key),
        workflow: workflow.into(),
        step_id: step.into(),
        trust: Trust::Open,
        output: Json::trusted(OUTPUT),
        output_hash: Digest::of(OUTPUT.as_bytes()),
        beyond: None,
        seq: 7,
        duration_ms: 1500,
    }
}

/// What an attempt of the step `s` began with.
pub(crate) fn began(key: Digest, workflow: &str, preimage: &str) -> PreimageWrite {
    PreimageWrite { key, workflow: workflow.into(), step_id: "s".into(), preimage: Json::trusted(preimage) }
}

pub(super) fn with(write: RunWrite, cache: CacheWrite) -> RunWrite {
    RunWrite { cache: Some(Box::new(cache)), ..write }
}

/// Keeps results at a moment, by a run of their own.
async fn keep(store: &dyn Store, us: i64, kept: Vec<KeptWrite>) -> RunId {
    let run = new_run();
    written(store, with(start(run, 1), CacheWrite { kept, ..no_change(at(us)) })).await;
    run
}

async fn take(store: &dyn Store, us: i64, used: Vec<ResultKey>) {
    written(store, with(start(new_run(), 1), CacheWrite { used, ..no_change(at(us)) })).await;
}

pub(super) async fn find(store: &dyn Store, org: OrgId, keys: &[ResultKey]) -> Vec<Option<FoundResult>> {
    find_holding(store, org, keys, Vec::new()).await
}

async fn find_holding(
    store: &dyn Store,
    org: OrgId,
    keys: &[ResultKey],
    held: Vec<Option<Digest>>,
) -> Vec<Option<FoundResult>> {
    let (_, mut answers) = store.ask(vec![Question::Results { org, keys: keys.to_vec(), held }]).await.unwrap();
    match answers.pop() {
        Some(Answer::Results(found)) => found,
        other => panic!("{other:?}"),
    }
}

async fn row(store: &dyn Store, key: Digest) -> Option<ResultRow> {
    store.cache().results(ORG, &ResultFilter::Key(key), None, 10).await.unwrap().pop()
}

async fn results_are_written_with_their_run_or_not_at_all(store: &dyn Store) {
    let (run, key, lost) = (new_run(), new_key(), new_key());
    let (workflow, preimage) = (unique("workflow"), Json::trusted(r#"{"input":"é"}"#));
    written(store, start(run, 1)).await;
    let trusted = KeptWrite { trust: Trust::Protected, ..kept(key, &workflow, "cut") };
    let change = CacheWrite {
        preimages: vec![began(key, &workflow, preimage.as_str())],
        kept: vec![trusted.clone()],
        ..no_change(at(5))
    };
    let stale = CacheWrite {
        preimages: vec![began(lost, &workflow, preimage.as_str())],
        kept: vec![kept(lost, &workflow, "cut")],
        used: vec![global(key)],
        ..no_change(at(6))
    };
    let writes = [with(advance(run, 1, 1), change), with(advance(new_run(), 3, 1), stale)];
    assert_eq!(commit(store, batch(writes)).await, [WriteResult::Written, WriteResult::Conflict]);
    let expected = ResultRow {
        key: global(key),
        workflow: workflow.clone(),
        step_id: "cut".to_owned(),
        trust: Trust::Protected,
        producer: (run, 7),
        created_at: at(5),
        last_hit_at: None,
        hits: 0,
        duration_ms: 1500,
        bytes: trusted.output.len() as u64,
    };
    assert_eq!((row(store, key).await, row(store, lost).await), (Some(expected), None));
    assert_eq!(store.cache().preimage(ORG, key).await.unwrap(), Some(preimage));
    assert_eq!(store.cache().preimage(ORG, lost).await.unwrap(), None);
    let found = FoundResult {
        key: global(key),
        producer: (run, 7),
        output_hash: trusted.output_hash,
        output: Some(trusted.output),
        beyond: None,
        duration_ms: 1500,
    };
    assert_eq!(find(store, ORG, &[global(key), global(lost)]).await, [Some(found), None]);
}

async fn many_are_looked_up_at_once_and_answered_in_order(store: &dyn Store) {
    let (workflow, keys) = (unique("workflow"), [new_key(), new_key(), new_key()]);
    keep(store, 1, keys.iter().map(|key| kept(*key, &workflow, "s")).collect()).await;
    let of = |keys: &[Digest]| {
        let keys = keys.iter().copied().map(global).collect();
        Question::Results { org: ORG, keys, held: Vec::new() }
    };
    let epochs = Question::Epochs { org: ORG, workflow: workflow.as_str().into() };
    let questions = vec![of(&[keys[2], new_key(), keys[0]]), epochs, of(&[]), of(&[keys[1]])];
    let (mut transaction, answers) = store.ask(questions).await.unwrap();
    let found = |answer: &Answer| match answer {
        Answer::Results(found) => {
            found.iter().map(|found| found.as_ref().map(|found| found.key.key)).collect::<Vec<_>>()
        }
        Answer::Epochs(epochs) => epochs.iter().map(|_| None).collect(),
        other => panic!("{other:?}"),
    };
    let answers: Vec<Vec<Option<Digest>>> = answers.iter().map(found).collect();
    assert_eq!(answers, [vec![Some(keys[2]), None, Some(keys[0])], vec![], vec![], vec![Some(keys[1])]]);
    let again = transaction.ask(vec![of(&[keys[1]])]).await.unwrap();
    assert_eq!(found(&again[0]), [Some(keys[1])]);
}

async fn an_output_that_the_asker_has_is_not_sent(store: &dyn Store) {
    let (workflow, keys) = (unique("workflow"), [new_key(), new_key(), new_key(), new_key()]);
    keep(store, 1, keys[..3].iter().map(|key| kept(*key, &workflow, "s")).collect()).await;
    let (right, wrong) = (Digest::of(OUTPUT.as_bytes()), Digest::of(b"something else"));
    let held = vec![Some(right), Some(wrong), None, Some(right)];
    let found = find_holding(store, ORG, &keys.map(global), held).await;
    let sent = |found: &Option<FoundResult>| found.as_ref().map(|found| (found.output_hash, found.output.is_some()));
    let expected = [Some((right, false)), Some((right, true)), Some((right, true)), None];
    assert_eq!(found.iter().map(sent).collect::<Vec<_>>(), expected);
    let fewer = find_holding(store, ORG, &keys.map(global), vec![Some(right)]).await;
    assert_eq!(fewer.iter().map(sent).collect::<Vec<_>>(), expected, "those left out hold nothing");
    assert_eq!(find_holding(store, OrgId(2), &[global(keys[0])], vec![Some(right)]).await, [None]);
}

async fn an_org_finds_nothing_of_another(store: &dyn Store) {
    let (key, workflow, other) = (new_key(), unique("workflow"), OrgId(2));
    let change = CacheWrite {
        preimages: vec![began(key, &workflow, "1")],
        kept: vec![kept(key, &workflow, "s")],
        ..no_change(at(1))
    };
    written(store, with(start(new_run(), 1), change)).await;
    store.cache().disown(ORG, &workflow, None).await.unwrap();
    assert_eq!(find(store, other, &[global(key)]).await, [None]);
    let all = ResultFilter::Workflow(workflow.clone());
    assert_eq!(store.cache().results(other, &all, None, 10).await.unwrap(), []);
    assert_eq!(store.cache().result_stats(other, &all).await.unwrap(), []);
    assert_eq!(store.cache().preimage(other, key).await.unwrap(), None);
    assert_eq!(store.cache().epochs(other, &workflow).await.unwrap(), []);
    assert_eq!(store.cache().evict(other, &all, 10).await.unwrap(), 0);
    let theirs = CacheWrite { kept: vec![kept(key, &workflow, "s")], used: vec![global(key)], ..no_change(at(2)) };
    written(store, RunWrite { org: other, ..with(start(new_run(), 1), theirs) }).await;
    assert_eq!(row(store, key).await.map(|row| row.hits), Some(0));
    assert_eq!(store.cache().evict(other, &all, 10).await.unwrap(), 1);
    assert!(row(store, key).await.is_some());
}

async fn a_result_that_is_made_again_takes_the_place_of_the_old_one(store: &dyn Store) {
    let (key, workflow) = (new_key(), unique("workflow"));
    keep(store, 1, vec![kept(key, &workflow, "s")]).await;
    take(store, 2, vec![global(key), global(key), global(new_key())]).await;
    let output = (Json::trusted("[]"), Digest::of(b"[]"));
    let again = KeptWrite { output: output.0, output_hash: output.1, duration_ms: 9, ..kept(key, &workflow, "s") };
    let run = keep(store, 3, vec![again]).await;
    let row = row(store, key).await.expect("it is kept");
    assert_eq!((row.hits, row.last_hit_at, row.created_at), (2, Some(at(2)), at(3)));
    assert_eq!((row.producer, row.bytes, row.duration_ms), ((run, 7), 2, 9));
    let stats = ResultStats {
        workflow: workflow.clone(),
        step_id: "s".to_owned(),
        results: 1,
        bytes: 2,
        hits: 2,
        misses: 0,
        saved_ms: 18,
    };
    assert_eq!(store.cache().result_stats(ORG, &ResultFilter::Workflow(workflow)).await.unwrap(), [stats]);
}

async fn what_serves_one_run_goes_with_it(store: &dyn Store) {
    let (key, workflow, run, other) = (new_key(), unique("workflow"), new_run(), new_run());
    let of = |run| ResultKey { key, run: Some(run) };
    let own = |run| KeptWrite { key: of(run), ..kept(key, &workflow, "s") };
    written(store, with(start(run, 1), CacheWrite { kept: vec![own(run)], ..no_change(at(1)) })).await;
    written(store, with(start(other, 1), CacheWrite { kept: vec![own(other)], ..no_change(at(1)) })).await;
    keep(store, 1, vec![kept(key, &workflow, "s")]).await;
    let found = |found: Vec<Option<FoundResult>>| found.iter().map(Option::is_some).collect::<Vec<_>>();
    let all = [of(run), of(other), global(key), of(new_run())];
    assert_eq!(found(find(store, ORG, &all).await), [true, true, true, false]);
    let end = CacheWrite { used: vec![of(run)], run_ended: true, ..no_change(at(2)) };
    written(store, with(advance(run, 1, 1), end)).await;
    assert_eq!(found(find(store, ORG, &all).await), [false, true, true, false]);
}

async fn lists_come_in_pages_and_by_what_is_asked_for(store: &dyn Store) {
    let (first, second) = (unique("a-workflow"), unique("b-workflow"));
    let mut made = Vec::new();
    for (workflow, step, count) in [(&first, "B", 3), (&first, "a", 2), (&second, "a", 2)] {
        made.extend((0..count).map(|_| kept(new_key(), workflow, step)));
    }
    keep(store, 1, made.clone()).await;
    let cache = store.cache();
    let mut pages = Vec::new();
    let filter = ResultFilter::Workflow(first.clone());
    while let page = cache.results(ORG, &filter, pages.last().map(ResultRow::position).as_ref(), 2).await.unwrap()
        && !page.is_empty()
    {
        assert!(page.len() <= 2);
        pages.extend(page);
    }
    let mut expected: Vec<(&str, Digest)> =
        made.iter().filter(|kept| *kept.workflow == *first).map(|kept| (&*kept.step_id, kept.key.key)).collect();
    expected.sort_unstable();
    assert_eq!(pages.iter().map(|row| (&*row.step_id, row.key.key)).collect::<Vec<_>>(), expected);
    let count = async |filter: &ResultFilter| cache.results(ORG, filter, None, 100).await.unwrap().len();
    assert_eq!(count(&ResultFilter::Step { workflow: first.clone(), step_id: "a".to_owned() }).await, 2);
    assert_eq!(count(&ResultFilter::Step { workflow: second.clone(), step_id: "B".to_owned() }).await, 0);
    assert_eq!(count(&ResultFilter::Key(made[0].key.key)).await, 1);
    let range = |first: &KeptWrite, last: &KeptWrite| ResultFilter::Keys { first: first.key.key, last: last.key.key };
    made.sort_by_key(|kept| kept.key);
    assert!(count(&range(&made[1], &made[3])).await >= 3 && count(&range(&made[3], &made[1])).await == 0);
    assert!(count(&ResultFilter::All).await >= 7);
    let stats = cache.result_stats(ORG, &filter).await.unwrap();
    assert_eq!(stats.iter().map(|stats| (&*stats.step_id, stats.results)).collect::<Vec<_>>(), [("B", 3), ("a", 2)]);
}

async fn results_are_evicted_a_few_at_a_time(store: &dyn Store) {
    let (workflow, keys) = (unique("workflow"), [new_key(), new_key(), new_key(), new_key()]);
    let step = |number: usize| if number < 3 { "a" } else { "b" };
    let made = keys.iter().enumerate().map(|(number, key)| kept(*key, &workflow, step(number))).collect();
    keep(store, 1, made).await;
    let cache = store.cache();
    let steps = ResultFilter::Step { workflow: workflow.clone(), step_id: "a".to_owned() };
    assert_eq!(cache.evict(ORG, &ResultFilter::Key(keys[0]), 10).await.unwrap(), 1);
    assert_eq!(cache.evict(ORG, &steps, 1).await.unwrap(), 1);
    assert_eq!(cache.evict(ORG, &steps, 10).await.unwrap(), 1);
    assert_eq!(cache.evict(ORG, &steps, 10).await.unwrap(), 0);
    assert!(row(store, keys[3]).await.is_some());
    assert_eq!(cache.evict(ORG, &ResultFilter::Workflow(workflow), 10).await.unwrap(), 1);
}

fn missed(workflow: &str, step: &str, times: u64) -> MissedWrite {
    MissedWrite { workflow: workflow.into(), step_id: step.into(), times }
}

/// Results, hits, misses and milliseconds saved, by step.
async fn stats(store: &dyn Store, workflow: &str) -> Vec<(String, [u64; 4])> {
    let filter = ResultFilter::Workflow(workflow.to_owned());
    let stats = store.cache().result_stats(ORG, &filter).await.unwrap();
    stats.into_iter().map(|s| (s.step_id, [s.results, s.hits, s.misses, s.saved_ms])).collect()
}

async fn misses_are_counted_with_their_run_or_not_at_all(store: &dyn Store) {
    let workflow = unique("workflow");
    let change = |times| CacheWrite {
        missed: vec![missed(&workflow, "a", times), missed(&workflow, "b", 1), missed(&workflow, "a", 1)],
        ..no_change(at(1))
    };
    let writes = [with(start(new_run(), 1), change(2)), with(advance(new_run(), 3, 1), change(100))];
    assert_eq!(commit(store, batch(writes)).await, [WriteResult::Written, WriteResult::Conflict]);
    written(store, with(start(new_run(), 1), change(1))).await;
    keep(store, 1, vec![kept(new_key(), &workflow, "b")]).await;
    let expected = [("a".to_owned(), [0, 0, 5, 0]), ("b".to_owned(), [1, 0, 2, 0])];
    assert_eq!(stats(store, &workflow).await, expected);
    let filter = ResultFilter::Workflow(workflow);
    assert_eq!(store.cache().result_stats(OrgId(2), &filter).await.unwrap(), []);
}

async fn hits_are_remembered_when_their_results_are_gone(store: &dyn Store) {
    let (workflow, run, keys) = (unique("workflow"), new_run(), [new_key(), new_key(), new_key()]);
    let own = ResultKey { key: keys[2], run: Some(run) };
    let results = vec![
        kept(keys[0], &workflow, "s"),
        kept(keys[1], &workflow, "s"),
        KeptWrite { key: own, ..kept(keys[2], &workflow, "s") },
    ];
    written(store, with(start(run, 1), CacheWrite { kept: results, ..no_change(at(1)) })).await;
    take(store, 2, vec![global(keys[0]), global(keys[0]), global(keys[1]), own]).await;
    let of = |results| [("s".to_owned(), [results, 4, 0, 6000])];
    assert_eq!(stats(store, &workflow).await, of(3));
    assert_eq!(store.cache().evict(ORG, &ResultFilter::Key(keys[0]), 10).await.unwrap(), 1);
    assert_eq!(stats(store, &workflow).await, of(2));
    written(store, with(advance(run, 1, 1), CacheWrite { run_ended: true, ..no_change(at(3)) })).await;
    assert_eq!(stats(store, &workflow).await, of(1));
    let age = age_of(store, keys[1]).await.expect("it is there");
    assert_eq!(store.cache().evict_unused(&[age]).await.unwrap(), 1);
    assert_eq!(stats(store, &workflow).await, of(0));
}

/// Found by walking over all there are, three at a time.
async fn age_of(store: &dyn Store, key: Digest) -> Option<ResultAge> {
    let mut after = None;
    loop {
        let page = store.cache().ages(after, 3).await.unwrap();
        assert!(page.is_sorted_by_key(ResultAge::place));
        assert!(page.first().is_none_or(|first| after.is_none_or(|after| first.place() > after)));
        if let Some(age) = page.iter().find(|age| age.org == ORG && age.key.key == key) {
            return Some(*age);
        }
        after = Some(page.last()?.place());
        if page.len() < 3 {
            return None;
        }
    }
}

async fn what_nobody_has_used_is_found_and_evicted(store: &dyn Store) {
    let (workflow, key, gone) = (unique("workflow"), new_key(), new_key());
    keep(store, 5, vec![kept(key, &workflow, "s")]).await;
    let made = age_of(store, key).await.expect("it is there");
    assert_eq!((made.used_at, made.bytes), (at(5), 18));
    take(store, 9, vec![global(key)]).await;
    let taken = age_of(store, key).await.expect("it is there");
    assert_eq!(taken.used_at, at(9));
    assert_eq!(store.cache().evict_unused(&[made]).await.unwrap(), 0, "somebody took it meanwhile");
    keep(store, 12, vec![kept(key, &workflow, "s")]).await;
    assert_eq!(store.cache().evict_unused(&[taken]).await.unwrap(), 0, "it was made again meanwhile");
    let made_again = age_of(store, key).await.expect("it is there");
    assert_eq!(made_again.used_at, at(12));
    let other_org = ResultAge { org: OrgId(2), ..made_again };
    let nothing = ResultAge { key: global(gone), ..made_again };
    assert_eq!(store.cache().evict_unused(&[other_org, made_again, nothing]).await.unwrap(), 1);
    assert_eq!((age_of(store, key).await, row(store, key).await), (None, None));
}

async fn an_output_is_shown_by_its_first_characters(store: &dyn Store) {
    let (workflow, key) = (unique("workflow"), new_key());
    keep(store, 1, vec![kept(key, &workflow, "s")]).await;
    let shown = async |org, key, chars| store.cache().output(org, &global(key), chars).await.unwrap();
    assert_eq!(shown(ORG, key, 12).await.as_deref(), Some(r#"{"text":"Grü"#));
    assert_eq!(shown(ORG, key, 100).await.as_deref(), Some(r#"{"text":"Grüße"}"#));
    assert_eq!((shown(OrgId(2), key, 9).await, shown(ORG, new_key(), 9).await), (None, None));
}

async fn preimages_that_no_result_has_are_forgotten_when_they_are_old(store: &dyn Store) {
    // Before any other time there is, so that what others left is not old.
    let long_ago = |us: i64| Timestamp(-1_000_000_000 + us);
    let (old, needed, young, workflow) = (new_key(), new_key(), new_key(), unique("workflow"));
    let change = |keys: &[Digest], at| CacheWrite {
        preimages: keys.iter().map(|key| began(*key, &workflow, "1")).collect(),
        ..no_change(at)
    };
    let first = CacheWrite { kept: vec![kept(needed, &workflow, "s")], ..change(&[old, needed], long_ago(1)) };
    written(store, with(start(new_run(), 1), first)).await;
    written(store, with(start(new_run(), 1), change(&[young, old], long_ago(9)))).await;
    assert_eq!(store.cache().forget_preimages(long_ago(5), 10).await.unwrap(), 1);
    let left = async |key| store.cache().preimage(ORG, key).await.unwrap().is_some();
    assert_eq!((left(old).await, left(needed).await, left(young).await), (false, true, true));
    assert_eq!(store.cache().forget_preimages(long_ago(20), 10).await.unwrap(), 1);
}

async fn what_a_step_began_with_comes_newest_first(store: &dyn Store) {
    let (workflow, keys) = (unique("workflow"), [new_key(), new_key(), new_key()]);
    let mut runs = Vec::new();
    for (us, key) in [(1, keys[0]), (2, keys[1]), (3, keys[2]), (4, keys[0])] {
        let run = new_run();
        let other = PreimageWrite { step_id: "t".into(), ..began(new_key(), &workflow, "0") };
        let preimages = vec![began(key, &workflow, &us.to_string()), other];
        written(store, with(start(run, 1), CacheWrite { preimages, ..no_change(at(us)) })).await;
        runs.push(run);
    }
    let cache = store.cache();
    let rows = cache.preimages(ORG, &workflow, "s", 2).await.unwrap();
    let shown: Vec<_> = rows.iter().map(|row| (row.key, row.run, row.created_at, row.preimage.as_str())).collect();
    assert_eq!(shown, [(keys[2], runs[2], at(3), "3"), (keys[1], runs[1], at(2), "2")]);
    // One that comes again stays as it was.
    let all = cache.preimages(ORG, &workflow, "s", 9).await.unwrap();
    assert_eq!(all.last().map(|row| (row.key, row.run, row.created_at)), Some((keys[0], runs[0], at(1))));
    assert_eq!(cache.preimages(OrgId(2), &workflow, "s", 9).await.unwrap(), []);
    assert_eq!(cache.preimages(ORG, &workflow, "u", 9).await.unwrap(), []);
}

async fn who_asks_on_is_answered_on_and_takes_nothing(store: &dyn Store) {
    let (workflow, keys, other) = (unique("workflow"), [new_key(), new_key()], new_key());
    keep(store, 1, keys.iter().map(|key| kept(*key, &workflow, "s")).collect()).await;
    let of = |keys: &[Digest]| keys.iter().copied().map(global).collect::<Vec<_>>();
    let rounds = [vec![of(&[other, keys[0], keys[1]]), of(&[other])], vec![of(&[keys[1]])], Vec::new()];
    let (heard, told) = std::sync::mpsc::channel();
    let mut rounds = rounds.into_iter();
    let asker = move |found: Vec<Option<FoundResult>>| {
        let found: Vec<_> =
            found.iter().map(|found| found.as_ref().map(|found| (found.key.key, found.duration_ms))).collect();
        heard.send(found).unwrap();
        rounds.next().unwrap_or_default()
    };
    store.cache().converse(ORG, Box::new(asker)).await.unwrap();
    let told: Vec<Vec<Option<(Digest, u64)>>> = told.try_iter().collect();
    assert_eq!(told, [vec![], vec![Some((keys[0], 1500)), None], vec![Some((keys[1], 1500))]]);
    assert_eq!(row(store, keys[0]).await.map(|row| row.hits), Some(0));
}

async fn what_is_disowned_is_counted(store: &dyn Store) {
    let (cache, workflow) = (store.cache(), unique("workflow"));
    assert_eq!(cache.epochs(ORG, &workflow).await.unwrap(), []);
    assert_eq!(cache.disown(ORG, &workflow, Some("cut")).await.unwrap(), 1);
    assert_eq!(cache.disown(ORG, &workflow, None).await.unwrap(), 1);
    assert_eq!(cache.disown(ORG, &workflow, Some("cut")).await.unwrap(), 2);
    let expected = [EpochRow { step_id: None, epoch: 1 }, EpochRow { step_id: Some("cut".to_owned()), epoch: 2 }];
    assert_eq!(cache.epochs(ORG, &workflow).await.unwrap(), expected);
    let asked = Question::Epochs { org: ORG, workflow: workflow.as_str().into() };
    let (_, answers) = store.ask(vec![asked]).await.unwrap();
    assert!(matches!(&answers[..], [Answer::Epochs(epochs)] if *epochs == expected), "{answers:?}");
}

async fn many_keep_and_take_the_same_at_the_same_time(store: &Arc<dyn Store>) {
    let (workflow, keys): (String, Vec<Digest>) = (unique("workflow"), (0..6).map(|_| new_key()).collect());
    let steps = ["a", "b", "s"];
    let work = |store: Arc<dyn Store>, workflow: String, mut keys: Vec<Digest>, turn: usize| async move {
        keys.rotate_left(turn);
        for us in 0..8 {
            let change = CacheWrite {
                preimages: keys.iter().map(|key| began(*key, &workflow, "1")).collect(),
                kept: keys.iter().map(|key| kept(*key, &workflow, "s")).collect(),
                used: keys.iter().copied().map(global).collect(),
                missed: (0..3).map(|n| missed(&workflow, steps[(n + turn) % 3], 1)).collect(),
                ..no_change(at(us))
            };
            written(&*store, with(start(new_run(), 1), change)).await;
            store.cache().evict(ORG, &ResultFilter::Key(keys[0]), 1).await.unwrap();
        }
    };
    let task = |turn| tokio::spawn(work(Arc::clone(store), workflow.clone(), keys.clone(), turn));
    let tasks: Vec<_> = (0..6).map(task).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let misses: u64 = stats(&**store, &workflow).await.iter().map(|(_, counts)| counts[2]).sum();
    assert_eq!(misses, 6 * 8 * 3);
}
