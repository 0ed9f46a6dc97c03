//! Texts that a database may not want, in every column that holds one: a store takes such a text or says `Refused`. It spoils
//! nothing that is written beside it or after it.

use std::sync::Arc;

use milepost_core::event::StepRef;
use milepost_core::id::OutboxId;
use milepost_core::json::Json;
use milepost_core::record::EventRow;
use milepost_core::status::StepStatus;
use milepost_store::rows::{
    Batch, CacheWrite, Claim, DefinitionWrite, KeptWrite, LeaseExtension, LeaseRow, LogChunkRow, MissedWrite, NewHead,
    OutboxEnd, OutboxOutcome, OutboxWrite, PreimageWrite, Question, QueueRow, RequestRow, ResultFilter, RunFilter,
    RunWrite, SealedRow, SecretWrite, SlotWrite, SnapshotRow, StepRow, TaskRow, TaskSlot, TaskWrite, WriteResult,
};
use milepost_store::{Result, Store, StoreError};
use uuid::Uuid;

use super::cache::kept;
use super::{
    artifacts, commit, content, last_seq, leased_task, moved_tag, new_key, no_change, version, waiting_task, written,
};
use crate::rows::{
    ORG, advance, at, batch, event, new_head, new_node, new_outbox, new_run, project, snapshot, start, start_with,
    step, unique,
};

pub(super) async fn check(store: &Arc<dyn Store>) {
    for text in texts() {
        commits_are_taken_or_refused(&**store, &text).await;
        questions_are_answered_or_refused(&**store, &text).await;
        claims_are_settled_or_refused(&**store, &text).await;
        leases_are_extended_or_not(&**store, &text).await;
        projections_are_taken_or_refused(&**store, &text).await;
        logs_are_taken_or_refused(&**store, &text).await;
        definitions_are_taken_or_refused(&**store, &text).await;
        settings_are_taken_or_refused(&**store, &text).await;
        nothing_is_found_under_it(&**store, &text).await;
    }
}

/// What is appended to otherwise innocent names.
fn texts() -> Vec<String> {
    let long = (0..2000).map(|_| Uuid::now_v7().to_string()).collect();
    ["\0", "\0'; --", "\u{1b}[2J\r\n\t\u{7f}\u{85}", "'\"\\%_{}$1,\u{feff}\u{202e}\u{ffff}💥"]
        .map(ToOwned::to_owned)
        .into_iter()
        .chain([long])
        .collect()
}

/// Whether the store took it. It may refuse, and answers nothing else.
#[track_caller]
fn taken<T>(what: &str, answer: Result<T>) -> bool {
    match answer {
        Ok(_) => true,
        Err(StoreError::Refused(_)) => false,
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Whoever comes next is served.
async fn goes_on(store: &dyn Store) {
    let (run, key) = (new_run(), unique("slot"));
    let (transaction, _) = store.ask(vec![Question::SlotsHeld { org: ORG, key: key.clone() }]).await.unwrap();
    let holding = RunWrite { slot: Some(SlotWrite::Hold { key }), ..start(run, 1) };
    assert_eq!(transaction.commit(Arc::new(batch([holding]))).await.unwrap(), [WriteResult::Written]);
    written(store, advance(run, 1, 1)).await;
}

async fn commits_are_taken_or_refused(store: &dyn Store, text: &str) {
    for (what, write) in writes(text) {
        let innocent = [new_run(), new_run()];
        let together = batch([start(innocent[0], 1), write, start(innocent[1], 1)]);
        let alone = Batch { writes: vec![together.writes[0].clone(), together.writes[2].clone()], ..Batch::default() };
        if taken(what, store.commit(Arc::new(together)).await) {
            assert_eq!(last_seq(store, innocent[0]).await, Some(1), "{what}");
        } else {
            assert_eq!(last_seq(store, innocent[0]).await, None, "{what}: refused as a whole");
            assert_eq!(commit(store, alone).await, [WriteResult::Written; 2], "{what}: the innocent come again");
        }
    }
    goes_on(store).await;
}

/// A write for each column that holds a text.
fn writes(text: &str) -> Vec<(&'static str, RunWrite)> {
    let name = |word: &str| format!("{}{text}", unique(word));
    let arc = |word: &str| Arc::<str>::from(name(word));
    let quoted = || Json::trusted(format!("\"{text}\""));
    let run = new_run;
    let head = |head: NewHead| start_with(run(), 1, head);
    let with_event = |event: EventRow| RunWrite { events: vec![event], ..start(run(), 1) };
    let with_task = |change: &dyn Fn(TaskRow) -> TaskRow| {
        let run = run();
        let row = waiting_task(run, StepRef::whole(0), "queue", new_node());
        RunWrite { tasks: vec![TaskWrite::Put(Box::new(change(row)))], ..start(run, 1) }
    };
    let with_lease = |change: &dyn Fn(LeaseRow) -> LeaseRow| {
        with_task(&|row| {
            let row = leased_task(&row, 7);
            TaskRow { lease: row.lease.clone().map(change), ..row }
        })
    };
    let with_outbox = |change: &dyn Fn(OutboxWrite) -> OutboxWrite| {
        let claim = Claim { node: new_node(), until: at(500) };
        RunWrite { outbox: vec![change(new_outbox(claim))], ..start(run(), 1) }
    };
    let with_cache = |change: &dyn Fn(CacheWrite) -> CacheWrite| RunWrite {
        cache: Some(Box::new(change(no_change(at(1))))),
        ..start(run(), 1)
    };
    let with_kept = |change: &dyn Fn(KeptWrite) -> KeptWrite| {
        with_cache(&|cache| CacheWrite { kept: vec![change(kept(new_key(), "workflow", "step"))], ..cache })
    };
    let with_preimage = |change: &dyn Fn(PreimageWrite) -> PreimageWrite| {
        let whole = PreimageWrite {
            key: new_key(),
            workflow: "workflow".into(),
            step_id: "step".into(),
            preimage: Json::trusted("{}"),
        };
        with_cache(&|cache| CacheWrite { preimages: vec![change(whole.clone())], ..cache })
    };
    let with_artifact = |change: &dyn Fn(&mut milepost_store::rows::ArtifactRow)| {
        let run = run();
        let mut row = artifacts::recorded(run, 1, 0, new_key());
        change(&mut row);
        RunWrite { artifacts: vec![row], ..start(run, 1) }
    };
    let missed = |workflow: &str, step: &str| MissedWrite { workflow: workflow.into(), step_id: step.into(), times: 1 };
    vec![
        ("runs.workflow", head(NewHead { workflow: arc("w"), ..new_head() })),
        ("runs.workflow_version", head(NewHead { workflow_version: arc("v"), ..new_head() })),
        ("runs.request_id", head(NewHead { request_id: Some(name("r")), ..new_head() })),
        ("run_events.step_id", with_event(EventRow { step_id: Some(arc("s")), ..event(new_run(), 1, "StepFailed") })),
        ("run_events.data", with_event(EventRow { data: quoted(), ..event(new_run(), 1, "StepFailed") })),
        ("run_slots.slot_key", RunWrite { slot: Some(SlotWrite::Hold { key: name("k") }), ..start(run(), 1) }),
        ("tasks.step_id", with_task(&|row| TaskRow { step_id: arc("s"), ..row })),
        ("tasks.queue", with_task(&|row| TaskRow { queue: arc("q"), ..row })),
        ("tasks.skill", with_task(&|row| TaskRow { skill: arc("s"), ..row })),
        ("tasks.workflow", with_task(&|row| TaskRow { workflow: arc("w"), ..row })),
        ("tasks.slot_key", with_task(&|row| TaskRow { slot: Some(TaskSlot { key: arc("k"), limit: 1 }), ..row })),
        ("tasks.worker_id", with_lease(&|lease| LeaseRow { worker: arc("w"), ..lease })),
        ("tasks.progress", with_lease(&|lease| LeaseRow { progress: Some(quoted()), ..lease })),
        ("outbox.kind", with_outbox(&|row| OutboxWrite { kind: arc("k"), ..row })),
        ("outbox.payload", with_outbox(&|row| OutboxWrite { payload: quoted(), ..row })),
        ("step_cache.workflow", with_kept(&|kept| KeptWrite { workflow: arc("w"), ..kept })),
        ("step_cache.step_id", with_kept(&|kept| KeptWrite { step_id: arc("s"), ..kept })),
        ("step_cache.output", with_kept(&|kept| KeptWrite { output: quoted(), ..kept })),
        ("cache_preimages.workflow", with_preimage(&|row| PreimageWrite { workflow: arc("w"), ..row })),
        ("cache_preimages.step_id", with_preimage(&|row| PreimageWrite { step_id: arc("s"), ..row })),
        ("cache_preimages.preimage", with_preimage(&|row| PreimageWrite { preimage: quoted(), ..row })),
        ("cache_counts.workflow", with_cache(&|c| CacheWrite { missed: vec![missed(&name("w"), "s")], ..c })),
        ("cache_counts.step_id", with_cache(&|c| CacheWrite { missed: vec![missed("w", &name("s"))], ..c })),
        ("artifacts.step_id", with_artifact(&|row| row.step_id = Some(arc("s")))),
        ("artifacts.skill", with_artifact(&|row| row.skill = Some(arc("s")))),
        ("artifacts.kind", with_artifact(&|row| row.artifact.kind = name("k"))),
        ("artifacts.uri", with_artifact(&|row| row.artifact.uri = name("u"))),
        ("artifacts.media_type", with_artifact(&|row| row.artifact.media_type = Some(name("m")))),
        ("artifacts.filename", with_artifact(&|row| row.artifact.filename = Some(name("f")))),
        ("artifacts.metadata", with_artifact(&|row| row.artifact.metadata = quoted())),
    ]
}

async fn questions_are_answered_or_refused(store: &dyn Store, text: &str) {
    let key = || format!("{}{text}", unique("key"));
    let asked = [
        ("slots held", Question::SlotsHeld { org: ORG, key: key() }),
        ("run of a request", Question::RunOfRequest { org: ORG, workflow: "w".into(), request_id: key() }),
        ("epochs", Question::Epochs { org: ORG, workflow: key().into() }),
    ];
    for (what, question) in asked {
        let innocent = Question::SlotsHeld { org: ORG, key: unique("slot") };
        taken(what, store.ask(vec![innocent.clone(), question, innocent.clone()]).await.map(drop));
        let (transaction, answers) = store.ask(vec![innocent]).await.unwrap();
        assert_eq!(answers.len(), 1);
        drop(transaction);
    }
    goes_on(store).await;
}

async fn claims_are_settled_or_refused(store: &dyn Store, text: &str) {
    let node = new_node();
    let outcomes = [
        OutboxOutcome::Again { at: at(400), attempts: 1, error: Some(text.to_owned()) },
        OutboxOutcome::Dead { at: at(400), error: text.to_owned() },
    ];
    for outcome in outcomes {
        let claim = Claim { node, until: at(500) };
        let (first, second) = (new_outbox(claim), new_outbox(claim));
        written(store, RunWrite { outbox: vec![first.clone(), second.clone()], ..start(new_run(), 1) }).await;
        let done = |id: OutboxId| OutboxEnd { id, attempts: 1, outcome: OutboxOutcome::Done };
        let both = [done(first.id), OutboxEnd { outcome, ..done(second.id) }];
        if !taken("outbox.last_error", store.outbox().settle(node, &both).await) {
            assert!(store.outbox().get(ORG, first.id).await.unwrap().is_some(), "refused as a whole");
            store.outbox().settle(node, &both[..1]).await.unwrap();
            store.outbox().settle(node, &[done(second.id)]).await.unwrap();
        }
        assert_eq!(store.outbox().get(ORG, first.id).await.unwrap(), None);
        store.outbox().discard(ORG, second.id).await.unwrap();
        store.outbox().claim(Claim { node, until: at(900) }, at(400), 100).await.unwrap();
        store.outbox().settle(node, &[OutboxEnd { attempts: 2, ..done(second.id) }]).await.unwrap();
    }
    goes_on(store).await;
}

async fn leases_are_extended_or_not(store: &dyn Store, text: &str) {
    let (run, node) = (new_run(), new_node());
    let row = leased_task(&waiting_task(run, StepRef::whole(0), "queue", node), 7);
    written(store, RunWrite { tasks: vec![TaskWrite::Put(Box::new(row.clone()))], ..start(run, 1) }).await;
    let extension = |progress| LeaseExtension { task: row.task, nonce: 7, expires_at: at(900), progress };
    let progress = Some(Json::trusted(format!("\"{text}\"")));
    taken("tasks.progress", store.extend_leases(ORG, node, at(1), &[extension(progress)]).await);
    assert_eq!(store.extend_leases(ORG, node, at(1), &[extension(None)]).await.unwrap().len(), 1);
    written(store, RunWrite { tasks: vec![TaskWrite::Delete(row.task)], ..advance(run, 1, 1) }).await;
}

async fn projections_are_taken_or_refused(store: &dyn Store, text: &str) {
    let text = || text.to_owned();
    let quoted = Json::trusted(format!("\"{}\"", text()));
    type Change = Box<dyn Fn(SnapshotRow, StepRow) -> (SnapshotRow, StepRow) + Send>;
    let changes: Vec<(&str, Change)> = vec![
        (
            "run_snapshots.workflow",
            Box::new({
                let workflow = text();
                move |run, step| (SnapshotRow { workflow: workflow.clone(), ..run }, step)
            }),
        ),
        (
            "run_snapshots.workflow_version",
            Box::new({
                let workflow_version = text();
                move |run, step| (SnapshotRow { workflow_version: workflow_version.clone(), ..run }, step)
            }),
        ),
        (
            "run_snapshots.request_id",
            Box::new({
                let request_id = text();
                move |run, step| (SnapshotRow { request_id: Some(request_id.clone()), ..run }, step)
            }),
        ),
        (
            "run_snapshots.submitted_by",
            Box::new({
                let submitted_by = text();
                move |run, step| (SnapshotRow { submitted_by: Some(submitted_by.clone()), ..run }, step)
            }),
        ),
        (
            "run_snapshots.error",
            Box::new({
                let error = quoted.clone();
                move |run, step| (SnapshotRow { error: Some(error.clone()), ..run }, step)
            }),
        ),
        (
            "run_steps.step_id",
            Box::new({
                let step_id = text();
                move |run, step| (run, StepRow { step_id: step_id.clone(), ..step })
            }),
        ),
        (
            "run_steps.skill",
            Box::new({
                let skill = text();
                move |run, step| (run, StepRow { skill: skill.clone(), ..step })
            }),
        ),
        ("run_steps.error", Box::new(move |run, step| (run, StepRow { error: Some(quoted.clone()), ..step }))),
    ];
    for (what, change) in changes {
        let (hostile, innocent) = (new_run(), new_run());
        commit(store, batch([start(hostile, 1), start(innocent, 1)])).await;
        let (changed, changed_step) = change(snapshot(hostile, 1), step("a", StepStatus::Failed));
        let bad = milepost_store::rows::ProjectionWrite { steps: vec![changed_step], ..project(0, changed) };
        let good = project(0, snapshot(innocent, 1));
        if !taken(what, store.project(vec![good.clone(), bad]).await) {
            assert!(store.snapshot(ORG, innocent).await.unwrap().is_none(), "{what}: refused as a whole");
            assert_eq!(store.project(vec![good]).await.unwrap(), [WriteResult::Written], "{what}");
        }
        assert!(store.snapshot(ORG, innocent).await.unwrap().is_some());
    }
}

async fn logs_are_taken_or_refused(store: &dyn Store, text: &str) {
    let run = new_run();
    let chunk = |step: &str, blob: Option<String>| LogChunkRow {
        org: ORG,
        run,
        step_id: step.to_owned(),
        logical_attempt: 1,
        engine_attempt: 1,
        first_line: 0,
        lines: 1,
        content: text.as_bytes().to_vec(),
        blob,
    };
    taken("step_logs.step_id", store.append_logs(vec![chunk("a", None), chunk(text, None)]).await);
    taken("step_logs.blob", store.append_logs(vec![chunk("b", None), chunk("c", Some(text.to_owned()))]).await);
    // Content is bytes: whatever was said is kept.
    store.append_logs(vec![chunk("a", None), chunk("b", None)]).await.unwrap();
    let kept = store.logs(ORG, run, Some("a"), None, 10).await.unwrap();
    assert_eq!(kept[0].content, text.as_bytes());
}

async fn definitions_are_taken_or_refused(store: &dyn Store, text: &str) {
    let definitions = store.definitions();
    let name = |word: &str| format!("{}{text}", unique(word));
    let made = |tag: &str| {
        let blob = content(&unique("content"), at(1));
        let revision = version(&blob);
        let tag = Some(moved_tag(tag, 1, &revision, at(2)));
        DefinitionWrite { blobs: vec![blob], revisions: vec![revision], tag, ..DefinitionWrite::default() }
    };
    taken("tags.tag", definitions.write(ORG, &made(&name("tag"))).await);
    let tag = unique("tag");
    let mut write = made(&tag);
    write.tag.iter_mut().for_each(|write| write.moved.message = Some(text.to_owned()));
    taken("tag_moves.message", definitions.write(ORG, &write).await);
    let mut write = made(&unique("tag"));
    write.tag.iter_mut().for_each(|write| write.tag.moved_by = Some(text.to_owned()));
    taken("tags.moved_by", definitions.write(ORG, &write).await);
    let mut write = made(&unique("tag"));
    write.revisions[0].message = Some(text.to_owned());
    taken("revisions.message", definitions.write(ORG, &write).await);
    let mut write = made(&unique("tag"));
    write.blobs[0].media_type = text.to_owned();
    taken("cas_blobs.media_type", definitions.write(ORG, &write).await);
    for (key, answer) in [(name("key"), "{}".to_owned()), (unique("key"), text.to_owned())] {
        let request = Some(RequestRow { key, fingerprint: new_key(), answer, created_at: at(1) });
        taken(
            "definition_requests",
            definitions.write(ORG, &DefinitionWrite { request, ..made(&unique("tag")) }).await,
        );
    }
    let tag = unique("tag");
    assert!(definitions.write(ORG, &made(&tag)).await.unwrap(), "an innocent one is written");
    taken("tags.protection", definitions.protect(ORG, &tag, Some(text)).await);
    assert!(definitions.protect(ORG, &tag, None).await.unwrap());
}

async fn settings_are_taken_or_refused(store: &dyn Store, text: &str) {
    let name = || format!("{}{text}", unique("name"));
    let queue = name();
    let row = |concurrency| QueueRow { org: ORG, queue: queue.as_str().into(), concurrency, rate: None };
    taken("queues.queue", store.set_queue(&row(Some(1))).await);
    taken("queues.queue", store.set_queue(&row(None)).await);
    let sealed = |key_id: &str| SealedRow {
        version: 1,
        key_id: key_id.to_owned(),
        nonce: vec![7; 24],
        ciphertext: vec![1],
        created_at: at(1),
    };
    let secret = |name: String, queues: Vec<String>, key: &str| SecretWrite {
        name,
        expected_version: 0,
        queues,
        workflows: Vec::new(),
        sealed: Some(sealed(key)),
    };
    taken("secrets.name", store.secrets().put(ORG, &secret(name(), Vec::new(), "key")).await);
    taken("secrets.queues", store.secrets().put(ORG, &secret(unique("name"), vec![name()], "key")).await);
    taken("secret_versions.key_id", store.secrets().put(ORG, &secret(unique("name"), Vec::new(), text)).await);
    taken("cache_epochs.workflow", store.cache().disown(ORG, &name(), None).await);
    taken("cache_epochs.step_id", store.cache().disown(ORG, &unique("workflow"), Some(&name())).await);
    let key = name();
    taken("blob_notes.blob", store.artifacts().note_key(&key, at(1)).await);
    taken("blob_notes.blob", store.artifacts().clear_key(&key).await);
    goes_on(store).await;
}

/// Who asks for such a name is told that there is none, or that the store will not look.
async fn nothing_is_found_under_it(store: &dyn Store, text: &str) {
    let (run, name) = (new_run(), format!("{}{text}", unique("nobody")));
    written(store, start(run, 1)).await;
    let filter = RunFilter { limit: 10, ..RunFilter::default() };
    taken(
        "list by workflow",
        store.list_runs(ORG, &RunFilter { workflow: Some(name.clone()), ..filter.clone() }).await,
    );
    taken(
        "list by request",
        store.list_runs(ORG, &RunFilter { request_id: Some(name.clone()), ..filter.clone() }).await,
    );
    taken(
        "list by submitter",
        store.list_runs(ORG, &RunFilter { submitted_by: Some(name.clone()), ..filter.clone() }).await,
    );
    taken("count", store.count_matching(ORG, &RunFilter { workflow: Some(name.clone()), ..filter }, 10).await);
    taken("events of a step", store.step_events(ORG, run, &name, 0, 10).await);
    taken("steps", store.steps_by_id(ORG, run, std::slice::from_ref(&name)).await);
    taken("logs", store.logs(ORG, run, Some(&name), None, 10).await);
    taken("log lines", store.log_lines(ORG, run, &name, 1, 1).await);
    taken("slots", store.slots_to_wake_of(ORG, &name, 10).await);
    taken("pulled", store.pull_tasks(new_node(), &[name.clone(), unique("queue")], at(0), at(0), 10).await);
    taken("tag", store.definitions().tag(ORG, &name).await);
    taken("tags", store.definitions().tags(ORG, Some(&name), 10).await);
    taken("moves", store.definitions().moves(ORG, &name, None, 10).await);
    taken("move at", store.definitions().move_at(ORG, &name, at(1)).await);
    taken("request", store.definitions().request(ORG, &name).await);
    taken("secret", store.secrets().get(ORG, &name, None).await);
    taken("results", store.cache().results(ORG, &ResultFilter::Workflow(name.clone()), None, 10).await);
    taken("result stats", store.cache().result_stats(ORG, &ResultFilter::Workflow(name.clone())).await);
    taken("preimages", store.cache().preimages(ORG, &name, "step", 10).await);
    taken("epochs", store.cache().epochs(ORG, &name).await);
    taken("numbered", store.artifacts().numbered(ORG, run, &name, 1).await);
    goes_on(store).await;
}
