//! The Postgres store against a real server, each test in a schema of its own.
//! Run with `scripts/with-postgres cargo test -p milepost-store`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

#[path = "postgres/tls.rs"]
mod tls;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::record::{EVENT_FORMAT, EventRow};
use milepost_core::status::{RunStatus, StepStatus};
use milepost_core::time::Timestamp;
use milepost_store::migrations::POSTGRES;
use milepost_store::postgres::{Options, PostgresStore, latest_schema, replay};
use milepost_store::rows::{
    Answer, Batch, BlobRow, CheckpointRow, DefinitionWrite, Forgotten, HeadWrite, LogChunkRow, NewHead,
    ProjectionWrite, Question, Recorded, RunFilter, RunWrite, SlotWrite, SnapshotRow, StatusWrite, StepRow, TimerWrite,
    WriteResult,
};
use milepost_store::{Store, StoreError};
use tokio_postgres::NoTls;
use uuid::Uuid;

use WriteResult::{Conflict, Written};

const ORG: OrgId = OrgId::DEFAULT;
const NODE: NodeId = NodeId(7);

fn server() -> String {
    std::env::var("MILEPOST_TEST_POSTGRES").expect(
        "MILEPOST_TEST_POSTGRES is not set; these tests need a Postgres server: run them with `scripts/with-postgres \
         cargo test -p milepost-store`",
    )
}

async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A URL whose connections live in a fresh schema.
async fn fresh() -> String {
    let schema = format!("t_{}", Uuid::now_v7().simple());
    client(&server()).await.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    format!("{}?options=-c%20search_path%3D{schema}&application_name={schema}", server())
}

async fn store() -> (PostgresStore, String) {
    let url = fresh().await;
    (PostgresStore::connect(&url).await.unwrap(), url)
}

fn run() -> RunId {
    RunId(Uuid::now_v7())
}

fn event(run: RunId, seq: u64) -> EventRow {
    EventRow {
        seq,
        format: EVENT_FORMAT,
        event_type: Cow::Borrowed("StepCompleted"),
        step_id: Some(Arc::from("shots[3]")),
        logical_attempt: Some(1),
        engine_attempt: None,
        data: Json::trusted("{\"n\": 1,  \"ä\":\"\\u0000\"}"),
        idempotency_key: Digest::of(format!("{run}{seq}").as_bytes()),
        signal: None,
        parent_seq: Some(seq - 1),
        emitted_at: Timestamp(1),
        persisted_at: Timestamp(2),
    }
}

fn insert(run: RunId, events: u64) -> RunWrite {
    RunWrite {
        org: ORG,
        run,
        group: u32::from_be_bytes(run.0.as_bytes()[12..].try_into().unwrap()),
        expected_seq: 0,
        last_seq: events,
        head: HeadWrite::Insert(Box::new(NewHead {
            workflow: Arc::from("w"),
            workflow_version: Arc::from("1.0.0"),
            plan_hash: Digest::of(b"plan"),
            request_id: None,
            asked: None,
            base_run: None,
            parent_run: None,
            priority: 0,
            created_at: Timestamp(1),
            status: StatusWrite { status: RunStatus::Running, started_at: Some(Timestamp(1)), completed_at: None },
            owner: Some(NODE),
        })),
        events: (1..=events).map(|seq| event(run, seq)).collect(),
        cache: None,
        artifacts: Vec::new(),
        timers: Vec::new(),
        slot: None,
        checkpoint: None,
        tasks: Vec::new(),
        outbox: Vec::new(),
    }
}

fn update(run: RunId, expected_seq: u64, events: u64) -> RunWrite {
    RunWrite {
        expected_seq,
        last_seq: expected_seq + events,
        head: HeadWrite::Update { status: None, owner: None },
        events: (1..=events).map(|n| event(run, expected_seq + n)).collect(),
        ..insert(run, 0)
    }
}

fn with_request(mut write: RunWrite, request: &str) -> RunWrite {
    if let HeadWrite::Insert(head) = &mut write.head {
        head.request_id = Some(request.to_owned());
    }
    write
}

fn grouped(group: u32, write: RunWrite) -> RunWrite {
    RunWrite { group, ..write }
}

fn batch(writes: impl IntoIterator<Item = RunWrite>) -> Arc<Batch> {
    Arc::new(Batch { writes: writes.into_iter().collect(), ..Batch::default() })
}

async fn seqs(store: &PostgresStore, run: RunId) -> Vec<u64> {
    store.events(ORG, run, 0, 10_000).await.unwrap().iter().map(|event| event.seq).collect()
}

fn unusable(result: Result<PostgresStore, StoreError>) -> String {
    match result {
        Err(StoreError::Unusable(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_start_together_migrate_once() {
    let url = fresh().await;
    let (a, b, c) =
        tokio::join!(PostgresStore::connect(&url), PostgresStore::connect(&url), PostgresStore::connect(&url));
    for store in [a, b, c] {
        assert_eq!(store.unwrap().schema_version().await.unwrap(), latest_schema());
    }
    let rows = client(&url).await.query("SELECT version FROM schema_migrations", &[]).await.unwrap();
    assert_eq!(rows.len(), usize::try_from(latest_schema()).unwrap());
}

#[tokio::test]
async fn an_older_schema_is_brought_up_to_date_with_what_it_holds() {
    let url = fresh().await;
    let old = client(&url).await;
    old.batch_execute(POSTGRES[0].sql).await.unwrap();
    let applied =
        "CREATE TABLE schema_migrations (version integer PRIMARY KEY, name text NOT NULL, applied_at bigint NOT NULL);
        INSERT INTO schema_migrations VALUES (1, 'init', 0); SELECT ensure_run_partitions(1924992000000000, 0)";
    old.batch_execute(applied).await.unwrap();
    let id = run();
    let row = "INSERT INTO run_snapshots (org_id, run_id, last_event_seq, status, workflow, workflow_version, priority,
        steps_total, steps_done, steps_failed, created_at) VALUES (1, $1, 1, 'running', 'w', '1', 0, 1, 0, 0, 5)";
    old.execute(row, &[&id.0]).await.unwrap();

    let as_it_is = Options { migrate: false, ..Options::default() };
    assert!(unusable(PostgresStore::connect_with(&url, as_it_is).await).contains("milepost migrate"));
    let store = PostgresStore::connect(&url).await.unwrap();
    assert_eq!(store.schema_version().await.unwrap(), latest_schema());
    let of_workflow = RunFilter { workflow: Some("w".to_owned()), limit: 5, ..RunFilter::default() };
    assert_eq!(store.list_runs(ORG, &of_workflow).await.unwrap()[0].run, id);
    // Logs of steps have the months that heads have.
    let months = "SELECT array_agg(regexp_replace(inhrelid::regclass::text, $1, '') ORDER BY inhrelid::regclass::text) FROM pg_inherits
        WHERE inhparent = $1::text::regclass";
    let of = async |table: &str| old.query_one(months, &[&table]).await.unwrap().get::<_, Vec<String>>(0);
    assert_eq!(of("step_logs").await, of("runs").await);
    assert!(of("step_logs").await.contains(&"_2031_01".to_owned()));
}

#[tokio::test]
async fn a_table_that_is_gone_is_missed() {
    let (_, url) = store().await;
    client(&url).await.batch_execute("DROP TABLE step_logs").await.unwrap();
    let text = unusable(PostgresStore::connect(&url).await);
    assert!(text.contains("`step_logs` is gone") && text.contains("backup"), "{text}");
}

#[tokio::test]
async fn a_schema_of_a_newer_release_is_refused() {
    let (_, url) = store().await;
    client(&url).await.batch_execute("INSERT INTO schema_migrations VALUES (999, 'later', 0)").await.unwrap();
    let text = unusable(PostgresStore::connect(&url).await);
    assert!(text.contains("version 999") && text.contains("upgrade milepost"), "{text}");
}

#[tokio::test]
async fn tables_of_somebody_else_are_left_alone() {
    let url = fresh().await;
    client(&url).await.batch_execute("CREATE TABLE runs (id int)").await.unwrap();
    let text = unusable(PostgresStore::connect(&url).await);
    assert!(text.contains("`runs` that is not Milepost's"), "{text}");

    let url = fresh().await;
    client(&url).await.batch_execute("CREATE TABLE schema_migrations (version varchar)").await.unwrap();
    let text = unusable(PostgresStore::connect(&url).await);
    assert!(text.contains("`schema_migrations` that is not Milepost's"), "{text}");
}

#[tokio::test]
async fn what_cannot_be_opened_says_why() {
    let text = unusable(PostgresStore::connect("postgres://nobody@127.0.0.1:1/x").await);
    assert!(text.contains("127.0.0.1:1") && text.contains("is it running"), "{text}");

    let (host, _) = server().rsplit_once('/').map(|(host, name)| (host.to_owned(), name.to_owned())).unwrap();
    let text = unusable(PostgresStore::connect(&format!("{host}/no_such_db")).await);
    assert!(text.contains("createdb") && text.contains("no_such_db"), "{text}");

    let text = unusable(PostgresStore::connect(&format!("{}?options=-c%20search_path%3Dnowhere", server())).await);
    assert!(text.contains("nowhere") && text.contains("CREATE SCHEMA"), "{text}");

    let url = fresh().await;
    let as_it_is = Options { migrate: false, ..Options::default() };
    let text = unusable(PostgresStore::connect_with(&url, as_it_is).await);
    assert!(text.contains("milepost migrate"), "{text}");
    PostgresStore::connect(&url).await.unwrap();
    PostgresStore::connect_with(&url, as_it_is).await.unwrap();
}

#[tokio::test]
async fn what_was_written_is_read_back() {
    let (store, _) = store().await;
    let id = run();
    let first = RunWrite {
        timers: vec![
            TimerWrite::Arm { seq: 1, due_at: Timestamp(50) },
            TimerWrite::Arm { seq: 2, due_at: Timestamp(40) },
            TimerWrite::Arm { seq: 9, due_at: Timestamp(10) },
            TimerWrite::Disarm { seq: 9 },
        ],
        slot: Some(SlotWrite::Wait { key: "k".to_owned(), limit: u32::MAX, priority: 3 }),
        ..with_request(insert(id, 2), "r1")
    };
    let events = first.events.clone();
    assert_eq!(store.commit(batch([first])).await.unwrap(), [Written]);
    assert_eq!(store.events(ORG, id, 0, 10).await.unwrap(), events);
    let due: Vec<u64> =
        store.timers_until(None, Timestamp(50), 10).await.unwrap().iter().map(|timer| timer.seq).collect();
    assert_eq!(due, [2, 1]);
    assert_eq!(store.slot_of(ORG, id).await.unwrap().unwrap().limit, Some(u32::MAX));

    let checkpoint = CheckpointRow { seq: 3, format: 1, state: vec![0, 1, 255] };
    let second = RunWrite {
        timers: vec![TimerWrite::Disarm { seq: 1 }],
        slot: Some(SlotWrite::Hold { key: "k".to_owned() }),
        checkpoint: Some(checkpoint.clone()),
        head: HeadWrite::Update {
            status: Some(StatusWrite {
                status: RunStatus::Completed,
                started_at: Some(Timestamp(1)),
                completed_at: Some(Timestamp(9)),
            }),
            owner: Some(NodeId(8)),
        },
        ..update(id, 2, 2)
    };
    assert_eq!(store.commit(batch([second])).await.unwrap(), [Written]);
    assert_eq!(store.timers_of(ORG, id).await.unwrap().len(), 1);
    assert!(store.slot_of(ORG, id).await.unwrap().unwrap().holding);

    let loaded = store.load_runs(&[(ORG, run()), (ORG, id)]).await.unwrap();
    let [loaded] = loaded.as_slice() else { panic!("{loaded:?}") };
    assert_eq!(
        (loaded.head.status, loaded.head.last_seq, loaded.head.owner),
        (RunStatus::Completed, 4, Some(NodeId(8)))
    );
    assert_eq!(loaded.head.request_id.as_deref(), Some("r1"));
    assert_eq!(loaded.checkpoint, Some(checkpoint));
    assert_eq!(loaded.tail, [event(id, 4)]);
    assert_eq!(store.events_at(ORG, id, &[3, 1, 77]).await.unwrap().len(), 2);
    assert_eq!(store.events_at(OrgId(2), id, &[1]).await.unwrap(), []);
    assert!(store.head(OrgId(2), id).await.unwrap().is_none());
}

#[tokio::test]
async fn a_conflict_takes_only_its_own_write() {
    let (store, _) = store().await;
    let ids = [run(), run(), run()];
    store.commit(batch(ids.map(|id| insert(id, 1)))).await.unwrap();
    let results =
        store.commit(batch([update(ids[2], 1, 2), update(ids[0], 5, 2), update(ids[1], 1, 2)])).await.unwrap();
    assert_eq!(results, [Written, Conflict, Written]);
    assert_eq!(seqs(&store, ids[0]).await, [1]);
    assert_eq!(seqs(&store, ids[1]).await, [1, 2, 3]);
    // A run that does not exist, and one that does.
    assert_eq!(store.commit(batch([update(run(), 1, 1), insert(ids[0], 1)])).await.unwrap(), [Conflict, Conflict]);
}

#[tokio::test]
async fn a_request_id_belongs_to_the_first() {
    let (store, _) = store().await;
    let (a, b, c) = (run(), run(), run());
    let twice = batch([with_request(insert(b, 1), "r"), with_request(insert(a, 1), "r"), insert(c, 1)]);
    assert_eq!(store.commit(twice).await.unwrap(), [Written, Conflict, Written]);
    assert_eq!(store.commit(batch([with_request(insert(a, 1), "r")])).await.unwrap(), [Conflict]);
    assert!(store.head(ORG, a).await.unwrap().is_none());
    // An id that is taken does not take the request id with it.
    assert_eq!(store.commit(batch([with_request(insert(c, 1), "other")])).await.unwrap(), [Conflict]);
    let questions = ["r", "other"].map(|id| Question::RunOfRequest {
        org: ORG,
        workflow: Arc::from("w"),
        request_id: id.to_owned(),
    });
    let (_open, answers) = store.ask(questions.to_vec()).await.unwrap();
    assert!(
        matches!(answers[..], [Answer::RunOfRequest(Some(found)), Answer::RunOfRequest(None)] if found.run == b),
        "{answers:?}"
    );
}

#[tokio::test]
async fn a_group_is_written_as_a_whole_or_not_at_all() {
    let (store, _) = store().await;
    let (parent, child, other) = (run(), run(), run());
    store.commit(batch([insert(parent, 1), insert(other, 1)])).await.unwrap();
    let broken = batch([
        grouped(1, with_request(insert(child, 1), "r")),
        grouped(2, update(other, 1, 1)),
        grouped(1, update(parent, 7, 1)),
    ]);
    assert_eq!(store.commit(broken).await.unwrap(), [Conflict, Written, Conflict]);
    assert!(store.head(ORG, child).await.unwrap().is_none());
    assert_eq!(seqs(&store, child).await, [] as [u64; 0]);
    // What a broken group would have written is not even looked at.
    let mut again = update(parent, 1, 1);
    again.events[0].idempotency_key = event(parent, 1).idempotency_key;
    let refused = [grouped(1, again.clone()), grouped(2, update(other, 2, 1)), grouped(1, update(child, 1, 1))];
    assert_eq!(store.commit(batch(refused)).await.unwrap(), [Conflict, Written, Conflict]);
    let refused = store.commit(batch([grouped(1, again), grouped(1, update(other, 3, 1))])).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    let whole = batch([
        grouped(1, with_request(insert(child, 1), "r")),
        grouped(1, update(parent, 1, 1)),
        grouped(2, update(other, 1, 1)),
    ]);
    assert_eq!(store.commit(whole).await.unwrap(), [Written, Written, Conflict]);
    assert_eq!(seqs(&store, other).await, [1, 2, 3]);
}

#[tokio::test]
async fn several_writes_to_one_run_follow_each_other() {
    let (store, _) = store().await;
    let id = run();
    let writes = [insert(id, 1), update(id, 1, 2), update(id, 1, 1), update(id, 3, 1)];
    let writes = writes.into_iter().zip(1..).map(|(write, group)| grouped(group, write));
    assert_eq!(store.commit(batch(writes)).await.unwrap(), [Written, Written, Conflict, Written]);
    assert_eq!(seqs(&store, id).await, [1, 2, 3, 4]);
}

#[tokio::test]
async fn an_event_that_is_there_already_is_refused_with_its_batch() {
    let (store, _) = store().await;
    let (a, b) = (run(), run());
    store.commit(batch([insert(a, 1), insert(b, 1)])).await.unwrap();
    let mut again = update(a, 1, 1);
    again.events[0].idempotency_key = event(a, 1).idempotency_key;
    let refused = store.commit(batch([again, update(b, 1, 1)])).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(seqs(&store, b).await, [1]);
}

#[tokio::test]
async fn blobs_never_change() {
    let (store, url) = store().await;
    let blob = BlobRow {
        hash: Digest::of(b"x"),
        media_type: "text/plain".to_owned(),
        size: 1,
        content: b"x".to_vec(),
        blob: None,
        created_at: Timestamp(0),
    };
    let write = DefinitionWrite { blobs: vec![blob], ..DefinitionWrite::default() };
    assert!(store.definitions().write(ORG, &write).await.unwrap());
    let changed = client(&url).await.execute("UPDATE cas_blobs SET media_type = 'y'", &[]).await;
    assert!(changed.unwrap_err().as_db_error().unwrap().message().contains("never changes"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_on_the_same_runs_write_each_event_once() {
    let (first, url) = store().await;
    let ids: Vec<RunId> = (0..40).map(|_| run()).collect();
    first.commit(batch(ids.iter().map(|id| insert(*id, 1)))).await.unwrap();
    let first = Arc::new(first);
    let second = Arc::new(PostgresStore::connect(&url).await.unwrap());
    let mut writers = Vec::new();
    for writer in 0..6 {
        let store = Arc::clone(if writer % 2 == 0 { &first } else { &second });
        let mut ids = ids.clone();
        // Each sends the runs in another order.
        ids.rotate_left(writer * 7);
        if writer % 3 == 0 {
            ids.reverse();
        }
        writers.push(tokio::spawn(async move {
            let mut won = 0_u64;
            for round in 0..15 {
                let known: Vec<_> = ids.iter().map(|id| (ORG, *id)).collect();
                let loaded = store.load_runs(&known).await.unwrap();
                for run in &loaded {
                    let tail: Vec<u64> = run.tail.iter().map(|event| event.seq).collect();
                    assert_eq!(tail, (1..=run.head.last_seq).collect::<Vec<_>>());
                }
                let writes = loaded.iter().map(|run| update(run.head.run, run.head.last_seq, 2));
                // Now and then with groups, which take the longer way.
                let writes = writes.enumerate().map(|(n, write)| match round % 3 {
                    0 => grouped(u32::try_from(n / 2).unwrap(), write),
                    _ => write,
                });
                let results = store.commit(batch(writes)).await.unwrap();
                won += results.iter().filter(|result| **result == Written).count() as u64;
            }
            won
        }));
    }
    let mut won = 0;
    for writer in writers {
        won += writer.await.unwrap();
    }
    let mut written = 0;
    for id in &ids {
        let head = first.head(ORG, *id).await.unwrap().unwrap();
        assert_eq!(seqs(&first, *id).await, (1..=head.last_seq).collect::<Vec<_>>());
        written += (head.last_seq - 1) / 2;
    }
    assert_eq!(won, written);
    assert_eq!(first.log_gaps(10).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_limit_is_never_exceeded() {
    const LIMIT: u32 = 5;
    let (first, url) = store().await;
    let first = Arc::new(first);
    let second = Arc::new(PostgresStore::connect(&url).await.unwrap());
    let mut starts = Vec::new();
    for n in 0..40 {
        let store = Arc::clone(if n % 2 == 0 { &first } else { &second });
        starts.push(tokio::spawn(async move {
            let keys = ["a", "b"].map(|key| Question::SlotsHeld { org: ORG, key: key.to_owned() });
            let (open, answers) = store.ask(keys.into_iter().cycle().skip(n % 2).take(2).collect()).await.unwrap();
            let Answer::SlotsHeld(held) = answers[0] else { panic!("{answers:?}") };
            let key = ["a", "b"][n % 2].to_owned();
            let slot =
                if held < LIMIT { SlotWrite::Hold { key } } else { SlotWrite::Wait { key, limit: LIMIT, priority: 0 } };
            open.commit(batch([RunWrite { slot: Some(slot), ..insert(run(), 1) }])).await.unwrap();
            held < LIMIT
        }));
    }
    let mut holding = 0;
    for start in starts {
        holding += u32::from(start.await.unwrap());
    }
    assert_eq!(holding, 2 * LIMIT);
    assert_eq!(first.slots_to_wake(10).await.unwrap(), []);

    let mut released = 0;
    for (_, id) in first.owned_runs(NODE, None, 100).await.unwrap() {
        let slot = first.slot_of(ORG, id).await.unwrap().unwrap();
        if slot.holding && slot.key == "a" && released < 2 {
            released += 1;
            let write = RunWrite { slot: Some(SlotWrite::Release), ..update(id, 1, 1) };
            assert_eq!(first.commit(batch([write])).await.unwrap(), [Written]);
        }
    }
    let woken = first.slots_to_wake(10).await.unwrap();
    assert_eq!(woken.len(), 2);
    assert!(woken.iter().all(|slot| slot.key == "a" && !slot.holding));
    assert_eq!(first.slots_to_wake_of(ORG, "a", 1).await.unwrap(), woken[..1]);
    assert_eq!(first.slots_to_wake_of(ORG, "b", 10).await.unwrap(), []);
}

#[tokio::test]
async fn a_dropped_transaction_leaves_nothing_behind() {
    let (store, _) = store().await;
    let question = vec![Question::SlotsHeld { org: ORG, key: "k".to_owned() }];
    for _ in 0..30 {
        // More often than there are connections; each holds a lock that the next one needs.
        let (open, _) = store.ask(question.clone()).await.unwrap();
        drop(open);
    }
    let (open, _) = store.ask(question).await.unwrap();
    assert_eq!(open.commit(Arc::default()).await.unwrap(), []);
}

#[tokio::test]
async fn nodes_die_when_their_lease_ends() {
    let (store, _) = store().await;
    let ids = [run(), run()];
    store.commit(batch(ids.map(|id| insert(id, 1)))).await.unwrap();
    assert_eq!(store.dead_nodes(Timestamp(0)).await.unwrap(), [NODE]);
    store.heartbeat(NODE, Timestamp(0), 10).await.unwrap();
    assert_eq!(store.dead_nodes(Timestamp(9_999)).await.unwrap(), []);
    assert_eq!(store.dead_nodes(Timestamp(10_000)).await.unwrap(), [NODE]);
    store.heartbeat(NODE, Timestamp(10_000), 10).await.unwrap();
    store.leave(NODE).await.unwrap();
    assert_eq!(store.dead_nodes(Timestamp(0)).await.unwrap(), [NODE]);
    assert_eq!(store.owned_runs(NODE, Some(ids[0]), 10).await.unwrap(), [(ORG, ids[1])]);
}

fn projection(run: RunId, expected_seq: u64, seq: u64, status: RunStatus) -> ProjectionWrite {
    ProjectionWrite {
        org: ORG,
        run,
        expected_seq,
        snapshot: SnapshotRow {
            org: ORG,
            run,
            workflow: "w".to_owned(),
            workflow_version: "1.0.0".to_owned(),
            status,
            last_event_seq: seq,
            request_id: None,
            base_run: None,
            parent_run: None,
            priority: 0,
            steps_total: 2,
            steps_done: 1,
            steps_failed: 0,
            error: None,
            created_at: Timestamp(1),
            started_at: Some(Timestamp(1)),
            completed_at: None,
            submitted_by: None,
            updated_at: Timestamp(2),
            engine_node: None,
        },
        steps: vec![StepRow {
            step_id: "shots[3]".to_owned(),
            skill: "noop".to_owned(),
            status: StepStatus::Completed,
            skip_reason: None,
            logical_attempt: 1,
            engine_attempt: 1,
            input_hash: Some(Digest::of(b"in")),
            output_seq: Some(seq),
            error: None,
            started_at: Some(Timestamp(1)),
            ended_at: Some(Timestamp(2)),
        }],
        release: true,
    }
}

#[tokio::test]
async fn projections_move_by_compare_and_swap() {
    let (store, _) = store().await;
    let ids: Vec<RunId> = (0..5).map(|_| run()).collect();
    store.commit(batch(ids.iter().map(|id| insert(*id, 2)))).await.unwrap();
    assert_eq!(store.unprojected(10).await.unwrap().len(), 5);
    let writes: Vec<_> = ids.iter().map(|id| projection(*id, 0, 1, RunStatus::Running)).collect();
    assert_eq!(store.project(writes).await.unwrap(), [Written; 5]);
    // The head is at 2: the run keeps its owner.
    assert_eq!(store.owned_runs(NODE, None, 10).await.unwrap().len(), 5);
    assert_eq!(store.unprojected(10).await.unwrap()[0].2, 1);
    let writes = vec![
        projection(ids[1], 1, 2, RunStatus::Paused),
        projection(ids[0], 0, 2, RunStatus::Paused),
        projection(ids[2], 9, 2, RunStatus::Paused),
    ];
    assert_eq!(store.project(writes).await.unwrap(), [Written, Conflict, Conflict]);
    assert_eq!(store.owned_runs(NODE, None, 10).await.unwrap().len(), 4);
    let (_, steps) = store.projection(ORG, ids[1]).await.unwrap().unwrap();
    assert_eq!(steps, projection(ids[1], 1, 2, RunStatus::Paused).steps);

    let page = |filter: RunFilter| {
        let store = &store;
        async move { store.list_runs(ORG, &filter).await.unwrap().into_iter().map(|row| row.run).collect::<Vec<_>>() }
    };
    let newest_first: Vec<RunId> = ids.iter().rev().copied().collect();
    assert_eq!(page(RunFilter { limit: 10, ..RunFilter::default() }).await, newest_first);
    let after = RunFilter { limit: 2, before: Some(ids[3]), ..RunFilter::default() };
    assert_eq!(page(after).await, [ids[2], ids[1]]);
    let paused = RunFilter { limit: 2, statuses: vec![RunStatus::Paused], ..RunFilter::default() };
    assert_eq!(page(paused).await, [ids[1]]);
    let both = RunFilter {
        limit: 9,
        statuses: vec![RunStatus::Running],
        workflow: Some("w".to_owned()),
        before: Some(ids[4]),
        ..RunFilter::default()
    };
    assert_eq!(page(both).await, [ids[3], ids[2], ids[0]]);

    store.drop_projection(ORG, ids[1]).await.unwrap();
    assert!(store.snapshot(ORG, ids[1]).await.unwrap().is_none());
    assert!(store.projection(ORG, ids[1]).await.unwrap().is_none());
    assert_eq!(store.count_runs().await.unwrap(), 5);
    assert_eq!(store.open_runs(Some(ids[2]), 10).await.unwrap().len(), 2);
}

#[tokio::test]
async fn history_is_only_added_to() {
    let (store, url) = store().await;
    let id = run();
    store.commit(batch([insert(id, 3)])).await.unwrap();
    let client = client(&url).await;
    let refused = async |sql: String| {
        let error = client.batch_execute(&sql).await.expect_err(&sql);
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("23001"), "{sql}: {error}");
    };
    refused(format!("UPDATE run_events SET data = '{{}}' WHERE run_id = '{id}'")).await;
    refused(format!("DELETE FROM run_events WHERE run_id = '{id}' AND run_seq = 3")).await;
    // The month's own table says the same.
    let row = client.query_one("SELECT tableoid::regclass::text FROM run_events LIMIT 1", &[]).await.unwrap();
    let month: String = row.get(0);
    assert_ne!(month, "run_events");
    refused(format!("DELETE FROM {month}")).await;
    refused(format!("UPDATE {month} SET step_id = NULL")).await;
    client
        .batch_execute(
            "INSERT INTO cas_blobs (org_id, hash, media_type, format, size, content) VALUES (1, '\\x00', 'x', 1, 0, '');
             INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, depth, created_at)
                 VALUES (1, '00000000-0000-0000-0000-000000000001', 'dag_version', '\\x00', '\\x00', 0, 0);
             INSERT INTO patch_chain_members (org_id, head_id, seq, member_id)
                 VALUES (1, '00000000-0000-0000-0000-000000000001', 1, '00000000-0000-0000-0000-000000000001');
             INSERT INTO tag_moves (org_id, tag, move_id, kind, to_kind, to_revision_id, to_version_hash, moved_at)
                 VALUES (1, 't', 1, 'move', 'dag_version', '00000000-0000-0000-0000-000000000001', '\\x00', 0)",
        )
        .await
        .unwrap();
    for sql in [
        "UPDATE tag_moves SET moved_by = 'somebody else'",
        "DELETE FROM tag_moves",
        "UPDATE revisions SET message = 'other'",
        "DELETE FROM revisions",
        "UPDATE patch_chain_members SET seq = 2",
    ] {
        refused(sql.to_owned()).await;
    }
    assert_eq!(seqs(&store, id).await, [1, 2, 3]);
    // With its head the run is gone, and its events may follow.
    client.execute("DELETE FROM runs WHERE run_id = $1", &[&id.0]).await.unwrap();
    assert_eq!(client.execute("DELETE FROM run_events WHERE run_id = $1", &[&id.0]).await.unwrap(), 3);
}

#[tokio::test]
async fn gaps_in_a_log_are_found() {
    let (store, url) = store().await;
    let ids = [run(), run(), run()];
    store.commit(batch(ids.map(|id| insert(id, 3)))).await.unwrap();
    assert_eq!(store.log_gaps(10).await.unwrap(), []);
    let client = client(&url).await;
    client.batch_execute("DROP TRIGGER run_events_stay ON run_events").await.unwrap();
    client.execute("DELETE FROM run_events WHERE run_id = $1 AND run_seq = 2", &[&ids[1].0]).await.unwrap();
    client.execute("DELETE FROM runs WHERE run_id = $1", &[&ids[2].0]).await.unwrap();
    let found: HashSet<RunId> = store.log_gaps(10).await.unwrap().into_iter().map(|gap| gap.run).collect();
    assert_eq!(found, HashSet::from([ids[1], ids[2]]));
}

/// The first id of a month, as milliseconds since 1970.
fn id_at(ms: u64) -> RunId {
    RunId(Uuid::from_u128(u128::from(ms) << 80 | 7 << 76 | 2 << 62 | 5))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_month_has_its_partition() {
    const JANUARY_2031: u64 = 1_924_992_000_000;
    const APRIL_2031: u64 = 1_932_768_000_000;
    let (store, url) = store().await;
    let client = client(&url).await;
    let partition = async |run: RunId| {
        let sql = "SELECT tableoid::regclass::text FROM run_events WHERE run_id = $1";
        client.query_one(sql, &[&run.0]).await.unwrap().get::<_, String>(0)
    };
    let now = run();
    store.commit(batch([insert(now, 1)])).await.unwrap();
    assert_ne!(partition(now).await, "run_events_default");

    // April has a row before it has a partition; the row stays where it is and nothing fails.
    let early = id_at(APRIL_2031 + 5);
    store.commit(batch([insert(early, 1)])).await.unwrap();
    let at = |ms: u64| Timestamp(i64::try_from(ms * 1000).unwrap());
    let other = PostgresStore::connect(&url).await.unwrap();
    let (one, two) = tokio::join!(store.ensure_partitions(at(JANUARY_2031)), other.ensure_partitions(at(JANUARY_2031)));
    assert_eq!(one.unwrap() + two.unwrap(), 15);
    // Of April, only the three tables that have no rows yet; of May and June, all five.
    assert_eq!(store.ensure_partitions(at(APRIL_2031)).await.unwrap(), 3 + 10);
    assert_eq!(store.ensure_partitions(at(APRIL_2031)).await.unwrap(), 0);
    let ids = [id_at(JANUARY_2031), id_at(JANUARY_2031 - 1), id_at(APRIL_2031 - 1), id_at(APRIL_2031 + 6)];
    assert_eq!(store.commit(batch(ids.map(|id| insert(id, 1)))).await.unwrap(), [Written; 4]);
    assert_eq!(partition(ids[0]).await, "run_events_2031_01");
    assert_eq!(partition(ids[1]).await, "run_events_default");
    assert_eq!(partition(ids[2]).await, "run_events_2031_03");
    assert_eq!(partition(early).await, "run_events_default");
    assert_eq!(store.commit(batch([update(early, 1, 1), update(ids[0], 1, 1)])).await.unwrap(), [Written; 2]);
}

#[tokio::test]
async fn a_recording_is_replayed_in_a_schema_of_its_own() {
    let id = run();
    let recorded = [
        Recorded::Commit(batch([insert(id, 2)])),
        Recorded::Commit(batch([update(id, 2, 2)])),
        Recorded::Project(vec![projection(id, 0, 4, RunStatus::Running)]),
    ];
    assert!(!replay(&server(), &recorded).await.unwrap().is_zero());
    let sql = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'milepost_replay%'";
    assert_eq!(client(&server()).await.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_lost_connection_is_worth_another_try() {
    let (store, url) = store().await;
    let id = run();
    store.commit(batch([insert(id, 1)])).await.unwrap();
    let question = vec![Question::SlotsHeld { org: ORG, key: "k".to_owned() }];
    let (open, _) = store.ask(question).await.unwrap();
    let client = client(&url).await;
    let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE application_name = current_setting('application_name') AND pid <> pg_backend_pid()";
    assert!(client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) > 0);
    let lost = open.commit(batch([update(id, 1, 1)])).await;
    assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
    let mut tries = 0;
    let results = loop {
        match store.commit(batch([update(id, 1, 1)])).await {
            Ok(results) => break results,
            // Each connection that was lost is noticed once.
            Err(StoreError::Unavailable(_)) if tries < 10 => tries += 1,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(results, [Written]);
}

/// A run that has ended, with a step and a line of its log.
async fn ended(store: &PostgresStore, run: RunId, at_ms: u64, events: u64) {
    let at = Some(Timestamp(i64::try_from(at_ms * 1000).unwrap()));
    let mut write = insert(run, events);
    if let HeadWrite::Insert(head) = &mut write.head {
        head.status = StatusWrite { status: RunStatus::Completed, started_at: at, completed_at: at };
        head.owner = None;
        head.request_id = Some(run.to_string());
    }
    assert_eq!(store.commit(batch([write])).await.unwrap(), [Written]);
    let mut write = projection(run, 0, events, RunStatus::Completed);
    write.snapshot.completed_at = at;
    assert_eq!(store.project(vec![write]).await.unwrap(), [Written]);
    let line = LogChunkRow {
        org: ORG,
        run,
        step_id: "shots[3]".to_owned(),
        logical_attempt: 1,
        engine_attempt: 1,
        first_line: 0,
        lines: 1,
        content: b"line".to_vec(),
        blob: None,
    };
    store.append_logs(vec![line]).await.unwrap();
}

/// The beginnings of months in 2020.
const JANUARY: u64 = 1_577_836_800_000;
const FEBRUARY: u64 = 1_580_515_200_000;
const MARCH: u64 = 1_583_020_800_000;

fn us(ms: u64) -> Timestamp {
    Timestamp(i64::try_from(ms * 1000).unwrap())
}

/// The partitions of a month, and how many rows of which tables there are.
async fn kept(client: &tokio_postgres::Client, month: &str) -> (Vec<String>, Vec<i64>) {
    let sql = "SELECT coalesce(array_agg(relname::text ORDER BY relname), '{}') FROM pg_class
        WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND relname LIKE '%' || $1";
    let partitions = client.query_one(sql, &[&month]).await.unwrap().get(0);
    let mut rows = Vec::new();
    for table in ["runs", "run_requests", "run_snapshots", "run_events", "run_steps", "step_logs", "forgotten_runs"] {
        rows.push(client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0));
    }
    (partitions, rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_month_of_which_no_run_is_kept_is_dropped() {
    let (store, url) = store().await;
    let client = client(&url).await;
    store.ensure_partitions(us(JANUARY)).await.unwrap();
    for n in 0..20 {
        ended(&store, id_at(JANUARY + n), FEBRUARY - 1, 3).await;
        ended(&store, id_at(FEBRUARY + n), FEBRUARY + 1000, 3).await;
    }
    // Of January, one is still open.
    let open = id_at(JANUARY + 1000);
    store.commit(batch([insert(open, 2)])).await.unwrap();
    assert_eq!(kept(&client, "2020_01").await.1, [41, 40, 40, 122, 40, 40, 0]);

    let forgotten = store.forget_runs(us(MARCH), 15).await.unwrap();
    assert_eq!(forgotten, Forgotten { runs: 15, remains: 0, partitions: 0, more: true });
    assert_eq!(
        kept(&client, "2020_01").await.1,
        [26, 25, 25, 122, 40, 40, 15],
        "heads first; the rest may go with its month"
    );
    let forgotten = store.forget_runs(us(MARCH), 100).await.unwrap();
    assert_eq!(forgotten, Forgotten { runs: 25, remains: 40, partitions: 5, more: false });
    let (january, rows) = kept(&client, "2020_01").await;
    assert_eq!(
        january,
        ["run_events", "run_snapshots", "run_steps", "runs", "step_logs"].map(|name| format!("{name}_2020_01"))
    );
    assert_eq!(rows, [1, 0, 0, 2, 0, 0, 0], "of January, row by row");
    assert_eq!(kept(&client, "2020_02").await.0, [] as [&str; 0]);
    assert_eq!(kept(&client, "2020_03").await.0.len(), 5, "a month to come is kept");

    // Whatever comes late for a month that is gone has a place.
    let late = id_at(FEBRUARY + 7);
    assert_eq!(store.commit(batch([insert(late, 1), update(open, 2, 1)])).await.unwrap(), [Written; 2]);
    assert_eq!(store.log_gaps(10).await.unwrap(), []);
}

/// Blobs are not in the database, and their run's month is dropped with all its rows: the note of them stays.
#[tokio::test(flavor = "multi_thread")]
async fn what_runs_have_outside_is_known_after_their_month_was_dropped() {
    let (store, url) = store().await;
    let client = client(&url).await;
    store.ensure_partitions(us(JANUARY)).await.unwrap();
    let (with, without) = ((ORG, id_at(JANUARY)), (ORG, id_at(JANUARY + 1)));
    ended(&store, with.1, FEBRUARY - 1, 3).await;
    ended(&store, without.1, FEBRUARY - 1, 3).await;
    store.run_blobs().note(&[with]).await.unwrap();
    assert_eq!(store.run_blobs().gone(10).await.unwrap(), []);
    assert_eq!(store.forget_runs(us(MARCH), 10).await.unwrap().partitions, 10, "January and February");
    assert_eq!(kept(&client, "2020_01").await, (Vec::new(), vec![0; 7]));
    assert_eq!(store.run_blobs().gone(10).await.unwrap(), [with]);
    store.run_blobs().clear(&[with]).await.unwrap();
    assert_eq!(store.run_blobs().gone(10).await.unwrap(), []);
}

/// Otherwise the note would say that the run is there, and nobody would ever look again.
#[tokio::test(flavor = "multi_thread")]
async fn a_note_waits_for_whoever_is_forgetting_the_run() {
    let (store, url) = store().await;
    let client = client(&url).await;
    let run = id_at(JANUARY);
    ended(&store, run, JANUARY + 10, 1).await;
    let delete = format!("BEGIN; DELETE FROM runs WHERE run_id = '{run}'");
    client.batch_execute(&delete).await.unwrap();
    let runs = [(ORG, run)];
    let note = store.run_blobs().note(&runs);
    tokio::pin!(note);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(200), &mut note).await.is_err(), "it waits");
    client.batch_execute("COMMIT").await.unwrap();
    note.await.unwrap();
    assert_eq!(store.run_blobs().gone(10).await.unwrap(), runs);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_month_that_somebody_reads_is_dropped_later_and_holds_nobody_up() {
    let (store, url) = store().await;
    let (reader, client) = (client(&url).await, client(&url).await);
    store.ensure_partitions(us(JANUARY)).await.unwrap();
    ended(&store, id_at(JANUARY), FEBRUARY - 1, 3).await;
    reader.batch_execute("BEGIN; SELECT count(*) FROM run_events").await.unwrap();
    let bystander = run();
    store.commit(batch([insert(bystander, 1)])).await.unwrap();
    let began = std::time::Instant::now();
    let (forgotten, committed) = tokio::join!(store.forget_runs(us(MARCH), 10), async {
        let mut longest = std::time::Duration::ZERO;
        for seq in 1..40 {
            let began = std::time::Instant::now();
            store.commit(batch([update(bystander, seq, 1)])).await.unwrap();
            longest = longest.max(began.elapsed());
        }
        longest
    });
    assert_eq!(forgotten.unwrap(), Forgotten { runs: 1, more: true, ..Forgotten::default() });
    assert!(began.elapsed().as_secs() < 10 && committed.as_secs() < 2, "{committed:?}");
    assert_eq!(kept(&client, "2020_01").await.0.len(), 5, "nothing is half gone");
    let again = store.forget_runs(us(MARCH), 10).await.unwrap();
    assert!(again.is_blocked(), "and not emptied meanwhile: {again:?}");
    reader.batch_execute("COMMIT").await.unwrap();
    let forgotten = store.forget_runs(us(MARCH), 10).await.unwrap();
    assert_eq!(forgotten, Forgotten { runs: 0, remains: 1, partitions: 10, more: false }, "January and February");
    assert_eq!(kept(&client, "2020_01").await, (Vec::new(), vec![1, 0, 0, 40, 0, 0, 0]));
}

#[tokio::test]
async fn events_wait_for_their_month_to_be_over_where_runs_are_kept_for_long() {
    const DAY: u64 = 24 * 3600 * 1000;
    let (store, url) = store().await;
    let client = client(&url).await;
    store.ensure_partitions(us(JANUARY)).await.unwrap();
    let (first, second) = (id_at(JANUARY), id_at(JANUARY + DAY));
    ended(&store, first, JANUARY + DAY, 3).await;
    ended(&store, second, JANUARY + 20 * DAY, 3).await;
    let forgotten = store.forget_runs(us(JANUARY + 10 * DAY), 10).await.unwrap();
    assert_eq!(forgotten, Forgotten { runs: 1, ..Forgotten::default() });
    assert_eq!(kept(&client, "2020_01").await.1, [1, 1, 1, 6, 2, 2, 1], "gone, but its events are still there");
    assert_eq!(store.log_gaps(10).await.unwrap(), []);
    let forgotten = store.forget_runs(us(JANUARY + 31 * DAY), 10).await.unwrap();
    assert_eq!(forgotten, Forgotten { runs: 1, remains: 2, partitions: 5, more: false });
    assert_eq!(kept(&client, "2020_01").await, (Vec::new(), vec![0; 7]));
}

#[tokio::test]
async fn what_is_left_of_many_runs_goes_in_portions() {
    let (store, url) = store().await;
    let client = client(&url).await;
    // No partition for these: they are in the default one, which is never dropped.
    for n in 0..5 {
        ended(&store, id_at(JANUARY + n), JANUARY + 10, 2500).await;
    }
    assert!(store.forget_runs(us(FEBRUARY), 2).await.unwrap().more);
    assert_eq!(
        store.forget_runs(us(FEBRUARY), 3).await.unwrap(),
        Forgotten { runs: 3, remains: 3, partitions: 0, more: true }
    );
    assert_eq!(kept(&client, "x").await.1[3..], [5000, 2, 2, 2], "three of five, in two portions of events");
    assert_eq!(store.forget_runs(us(FEBRUARY), 3).await.unwrap(), Forgotten { remains: 2, ..Forgotten::default() });
    assert_eq!(kept(&client, "x").await.1, [0; 7]);
}

#[tokio::test]
async fn a_run_that_is_being_written_to_is_passed_over() {
    let (store, url) = store().await;
    let client = client(&url).await;
    let (busy, idle) = (id_at(JANUARY), id_at(JANUARY + 1));
    ended(&store, busy, JANUARY + 10, 1).await;
    ended(&store, idle, JANUARY + 10, 1).await;
    client.batch_execute(&format!("BEGIN; UPDATE runs SET last_seq = last_seq WHERE run_id = '{busy}'")).await.unwrap();
    assert_eq!(store.forget_runs(us(FEBRUARY), 10).await.unwrap().runs, 1);
    assert!(store.head(ORG, busy).await.unwrap().is_some() && store.head(ORG, idle).await.unwrap().is_none());
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(store.forget_runs(us(FEBRUARY), 10).await.unwrap().runs, 1);
}
