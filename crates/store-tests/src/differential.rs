//! The same random writes to several stores: they must answer alike and keep alike.
//!
//! A failure names the seed and the step. Ids are fresh each time, but they are made in the same order.

use std::fmt::Debug;
use std::sync::Arc;

use milepost_core::cache::Trust;
use milepost_core::event::StepRef;
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::status::{RunStatus, SkipReason, StepStatus};
use milepost_core::time::Timestamp;
use milepost_store::rows::{
    Answer, ArtifactFilter, Batch, CacheWrite, CheckpointRow, DefinitionWrite, HeadWrite, KeptWrite, Led, LogChunkRow,
    MissedWrite, NewHead, PatchedHead, ProjectionWrite, Question, ResultFilter, ResultKey, RevisionRow, RunFilter,
    RunWrite, SlotWrite, SnapshotRow, StatusWrite, StepRow, TaskWrite, TimerWrite, WriteResult,
};
use milepost_store::{Result, Store, StoreError};
use uuid::Uuid;

use crate::conformance::{began, content, moved_tag, new_key, no_change, recorded, version};
use crate::random::Random;
use crate::rows::{
    ORG, advance, at, event, new_head, new_node, new_run, plain, plain_events, project, snapshot, start_with, step,
    unique,
};

/// Names as nobody should choose them, which every store keeps as they are.
fn odd(word: &str) -> String {
    format!("{}\u{1b}\r\n\u{7f}'\"\\%_{{}}\u{feff}\u{202e}💥", unique(word))
}

const EVENT_TYPES: &[&str] = &[
    "RunQueued",
    "RunApproved",
    "RunStarted",
    "RunPaused",
    "RunResumed",
    "RunFailed",
    "RunReopened",
    "RunCompleted",
    "StepStarted",
    "StepCompleted",
    "StepFailed",
    "StepSkipped",
];
/// How many may hold each of the keys.
const KEY_LIMITS: &[u32] = &[1, 2, 5];

/// Applies `steps` random operations to all stores; compares every answer, and from time to time all that is kept.
///
/// # Panics
/// The stores differ.
pub async fn differential(stores: &[Arc<dyn Store>], seed: u64, steps: usize) {
    let mut world = World::new(seed);
    for number in 0..steps {
        let context = format!("seed {seed}, step {number}");
        world.step(stores, &context).await;
        if number % 64 == 63 || number + 1 == steps {
            world.compare_all(stores, &context).await;
        }
    }
}

/// What the generator knows: what was sent, and where the first store says that it stands.
struct World {
    random: Random,
    runs: Vec<Known>,
    keys: Vec<(String, u32)>,
    nodes: Vec<NodeId>,
    requests: Vec<(Arc<str>, String)>,
    tags: Vec<String>,
    workflows: Vec<Arc<str>>,
    /// Keys of results.
    results: Vec<Digest>,
    /// For files alone: what else happens does not depend on them.
    files: Random,
    /// The same for questions that not every store takes.
    hostile: Random,
}

struct Known {
    run: RunId,
    last_seq: u64,
    projected: u64,
    head: Box<NewHead>,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            random: Random::new(seed),
            runs: Vec::new(),
            keys: KEY_LIMITS.iter().map(|limit| (odd("slot"), *limit)).collect(),
            nodes: (0..3).map(|_| new_node()).collect(),
            requests: Vec::new(),
            tags: (0..3).map(|_| odd("tag")).collect(),
            workflows: (0..3).map(|_| odd("workflow").into()).collect(),
            results: (0..8).map(|_| new_key()).collect(),
            files: Random::new(seed),
            hostile: Random::new(seed),
        }
    }

    async fn step(&mut self, stores: &[Arc<dyn Store>], context: &str) {
        match self.random.below(10) {
            0 | 1 => self.project(stores, context).await,
            2 | 3 => self.ask(stores, context).await,
            4 => self.register(stores, context).await,
            5 if self.random.once_in(4) => self.forget(stores, context).await,
            5 if self.random.once_in(2) => self.tend_results(stores, context).await,
            5 => self.write_logs(stores, context).await,
            _ => self.commit(stores, context).await,
        }
    }

    async fn commit(&mut self, stores: &[Arc<dyn Store>], context: &str) {
        let batch = self.batch();
        let mut results = Vec::new();
        for store in stores {
            results.push(outcome(store.commit(Arc::new(batch.clone())).await));
        }
        same(stores, &results, context, &batch);
        self.learn(&batch, &results[0]);
    }

    /// Asks, then commits or drops.
    async fn ask(&mut self, stores: &[Arc<dyn Store>], context: &str) {
        let (first, second) = (self.questions(), self.questions());
        let batch = (!self.random.once_in(3)).then(|| self.batch());
        let mut results = Vec::new();
        if self.hostile.once_in(8) {
            refuse_or_answer(stores, context).await;
        }
        for store in stores {
            let (mut transaction, answers) = store.ask(first.clone()).await.expect("questions can be answered");
            let again = transaction.ask(second.clone()).await.expect("more questions can be answered");
            let done = match &batch {
                Some(batch) => Some(outcome(transaction.commit(Arc::new(batch.clone())).await)),
                None => None,
            };
            results.push((plain_answers(answers), plain_answers(again), done));
        }
        same(stores, &results, context, &(first, second, &batch));
        if let (Some(batch), Some(done)) = (&batch, &results[0].2) {
            self.learn(batch, done);
        }
    }

    async fn project(&mut self, stores: &[Arc<dyn Store>], context: &str) {
        let mut writes: Vec<ProjectionWrite> = Vec::new();
        for _ in 0..=self.random.below(3) {
            if let Some(index) = self.any_run()
                && !writes.iter().any(|write| write.run == self.runs[index].run)
            {
                writes.push(self.projection(index));
            }
        }
        let mut results = Vec::new();
        for store in stores {
            results.push(outcome(store.project(writes.clone()).await));
        }
        same(stores, &results, context, &writes);
        for (write, result) in writes.iter().zip(results[0].iter().flatten()) {
            if *result == WriteResult::Written {
                self.known(write.run).projected = write.snapshot.last_event_seq;
            }
        }
    }

    async fn register(&mut self, stores: &[Arc<dyn Store>], context: &str) {
        let blob = content(&format!("content {}", self.random.below(8)), at(0));
        let tag = self.random.pick(&self.tags).clone();
        let id = Uuid::from_slice(&blob.hash.0[..16]).expect("half a digest");
        let revision = RevisionRow { revision_id: id, ..version(&blob) };
        let number = 1 + self.random.below(4);
        let dropped = if self.random.once_in(4) { self.any_run() } else { None };
        let mut results = Vec::new();
        for store in stores {
            let definitions = store.definitions();
            let new = DefinitionWrite {
                blobs: vec![blob.clone()],
                revisions: vec![revision.clone()],
                ..DefinitionWrite::default()
            };
            let made = definitions.write(ORG, &new).await.expect("a document can be stored");
            let moved = moved_tag(&tag, number, &revision, at(number.cast_signed()));
            let moved = DefinitionWrite { tag: Some(moved), ..DefinitionWrite::default() };
            let moved = definitions.write(ORG, &moved).await.expect("a tag can be moved");
            if let Some(index) = dropped {
                store.drop_projection(ORG, self.runs[index].run).await.expect("a projection can be dropped");
            }
            let history = definitions.moves(ORG, &tag, None, 100).await.ok();
            let chain = definitions.chain(ORG, id).await.ok();
            results.push((made, moved, definitions.tag(ORG, &tag).await.ok(), history, chain));
        }
        same(stores, &results, context, &blob);
        if let Some(index) = dropped {
            self.runs[index].projected = 0;
        }
    }

    async fn write_logs(&mut self, stores: &[Arc<dyn Store>], context: &str) {
        let Some(index) = self.any_run() else { return };
        let run = self.runs[index].run;
        let chunks: Vec<LogChunkRow> = (0..self.random.below(4)).map(|_| self.chunk(run)).collect();
        let mut results = Vec::new();
        for store in stores {
            results.push(outcome(store.append_logs(chunks.clone()).await));
        }
        same(stores, &results, context, &chunks);
    }

    async fn tend_results(&mut self, stores: &[Arc<dyn Store>], context: &str) {
        let workflow = self.random.pick(&self.workflows).to_string();
        let step_id = format!("s{}", self.random.below(2));
        let filter = match self.random.below(3) {
            0 => ResultFilter::Key(*self.random.pick(&self.results)),
            1 => ResultFilter::Step { workflow: workflow.clone(), step_id: step_id.clone() },
            _ => ResultFilter::Workflow(workflow.clone()),
        };
        let step = self.random.once_in(2).then_some(step_id);
        let mut results = Vec::new();
        for store in stores {
            let epoch = store.cache().disown(ORG, &workflow, step.as_deref()).await;
            results.push((outcome(store.cache().evict(ORG, &filter, 2).await), outcome(epoch)));
        }
        same(stores, &results, context, &filter);
    }

    fn cache_write(&mut self, run: RunId) -> CacheWrite {
        let mut cache = no_change(at(i64::from(self.small())));
        for (number, key) in self.results.clone().into_iter().enumerate() {
            let own = self.random.once_in(3).then_some(run);
            let key = ResultKey { key, run: own };
            // Few, so that who asks may have the right one.
            let (output, output_hash) = output(self.random.below(4));
            match self.random.below(7) {
                0 => cache.preimages.push(began(key.key, "w", &self.random.below(9).to_string())),
                1 => cache.kept.push(KeptWrite {
                    key,
                    workflow: self.workflows[number % self.workflows.len()].clone(),
                    step_id: format!("s{}", number % 2).into(),
                    trust: if number % 3 == 0 { Trust::Protected } else { Trust::Open },
                    output,
                    output_hash,
                    beyond: None,
                    seq: self.random.below(100),
                    duration_ms: self.random.below(100),
                }),
                2 => cache.used.push(key),
                3 => cache.missed.push(MissedWrite {
                    workflow: self.workflows[number % self.workflows.len()].clone(),
                    step_id: format!("s{}", number % 2).into(),
                    times: 1 + self.random.below(3),
                }),
                4 => {
                    let step = StepRef::whole(u32::try_from(self.random.below(3)).expect("a small number"));
                    match self.random.below(4) {
                        0 => cache.flights.landed.push(step),
                        _ => cache.flights.led.push(Led { key, step, anyway: self.random.once_in(2) }),
                    }
                }
                _ => {}
            }
        }
        cache.flights.landed_but = self.random.once_in(6).then(|| vec![StepRef::whole(1)]);
        cache.run_ended = self.random.once_in(4);
        cache
    }

    fn chunk(&mut self, run: RunId) -> LogChunkRow {
        let mut small = || u32::try_from(self.random.below(3)).expect("a small number");
        LogChunkRow {
            org: ORG,
            run,
            step_id: format!("step[{}]", small()),
            logical_attempt: small(),
            engine_attempt: small(),
            first_line: small(),
            lines: 1,
            content: vec![u8::try_from(small()).expect("a small number"); 20],
            blob: None,
        }
    }

    /// Brings some runs to their end, projected and in nobody's hands.
    async fn end_some(&mut self, stores: &[Arc<dyn Store>], context: &str) {
        for _ in 0..4 {
            let Some(index) = self.any_run() else { return };
            let Known { run, last_seq, projected, .. } = self.runs[index];
            let ended = StatusWrite {
                status: *self.random.pick(&[RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled]),
                started_at: Some(at(1)),
                completed_at: Some(self.ended_at()),
            };
            let head = HeadWrite::Update { status: Some(ended.clone()), owner: None };
            let batch = Batch { writes: vec![RunWrite { head, ..advance(run, last_seq, 0) }], ..Batch::default() };
            let known = self.runs[index].head.clone();
            let row = SnapshotRow {
                status: ended.status,
                completed_at: ended.completed_at,
                workflow: known.workflow.to_string(),
                request_id: known.request_id,
                base_run: known.base_run,
                parent_run: known.parent_run,
                created_at: known.created_at,
                submitted_by: submitter(run),
                ..snapshot(run, last_seq)
            };
            let write = ProjectionWrite { release: true, ..project(projected, row) };
            let mut results = Vec::new();
            for store in stores {
                let committed = outcome(store.commit(Arc::new(batch.clone())).await);
                results.push((committed, outcome(store.project(vec![write.clone()]).await)));
            }
            same(stores, &results, context, &(batch, write));
            self.runs[index].projected = last_seq;
        }
    }

    /// Those that went are no part of the world any more: a store may keep remains of them that nobody asks for.
    async fn forget(&mut self, stores: &[Arc<dyn Store>], context: &str) {
        self.end_some(stores, context).await;
        let ended_before = self.ended_at();
        let mut results = Vec::new();
        for store in stores {
            results.push(outcome(store.forget_runs(ended_before, 1_000_000).await).map(|forgotten| forgotten.runs));
        }
        same(stores, &results, context, &ended_before);
        let known: Vec<_> = self.runs.iter().map(|known| (ORG, known.run)).collect();
        let mut kept = Vec::new();
        for store in stores {
            let mut seqs = store.last_seqs(&known).await.expect("heads can be read");
            seqs.sort_unstable();
            kept.push(seqs);
        }
        same(stores, &kept, context, &ended_before);
        self.runs.retain(|known| kept[0].iter().any(|(_, run, _)| *run == known.run));
    }

    fn ended_at(&mut self) -> Timestamp {
        at(i64::try_from(self.random.below(100)).expect("a small number"))
    }

    fn any_run(&mut self) -> Option<usize> {
        let count = self.runs.len() as u64;
        // Mostly one of the newest: their logs grow.
        let back = if self.random.once_in(5) { self.random.below(count.max(1)) } else { self.random.below(8) };
        usize::try_from(count.checked_sub(1 + back.min(count.saturating_sub(1)))?).ok()
    }

    fn known(&mut self, run: RunId) -> &mut Known {
        self.runs.iter_mut().find(|known| known.run == run).expect("only known runs are written")
    }

    fn learn(&mut self, batch: &Batch, results: &Result<Vec<WriteResult>, &'static str>) {
        for (write, result) in batch.writes.iter().zip(results.iter().flatten()) {
            if *result != WriteResult::Written {
                continue;
            }
            if let HeadWrite::Insert(head) = &write.head {
                self.requests.extend(head.request_id.clone().map(|id| (head.workflow.clone(), id)));
                self.runs.push(Known { run: write.run, last_seq: 0, projected: 0, head: head.clone() });
            }
            self.known(write.run).last_seq = write.last_seq;
        }
    }

    /// Valid writes, stale ones, taken ids, groups of any shape; at most one write per run.
    fn batch(&mut self) -> Batch {
        let mut writes: Vec<RunWrite> = Vec::new();
        let groups = 1 + self.random.below(4);
        for number in 0..=self.random.below(6) {
            let mut write = self.write();
            let group = if self.random.once_in(2) { self.random.below(groups) } else { 100 + number };
            write.group = u32::try_from(group).expect("a small number");
            if !writes.iter().any(|other| clash(other, &write)) {
                writes.push(write);
            }
        }
        if writes.len() > 1 {
            // Who leads depends on which of the others has ended before: stores may move heads in any order.
            writes.iter_mut().filter_map(|write| write.cache.as_mut()).for_each(|cache| cache.flights.led.clear());
        }
        Batch { writes, ..Batch::default() }
    }

    fn write(&mut self) -> RunWrite {
        let existing = if self.random.once_in(4) { None } else { self.any_run() };
        let count = self.random.below(4);
        let mut write = match existing {
            None => self.start(count + 1),
            Some(index) if self.random.once_in(20) => {
                let run = self.runs[index].run;
                start_with(run, count + 1, self.head(run))
            }
            Some(index) => {
                let Known { run, last_seq, .. } = self.runs[index];
                let expected = if self.random.once_in(8) { last_seq.saturating_sub(1) } else { last_seq };
                let (status, owner) = (self.maybe_status(), self.maybe_node());
                let head = match self.random.below(8) {
                    0 => {
                        let plan_hash = Digest::of(&self.random.below(1000).to_be_bytes());
                        HeadWrite::Patch(Box::new(PatchedHead { plan_hash, status, owner }))
                    }
                    _ => HeadWrite::Update { status, owner },
                };
                RunWrite { head, ..advance(run, expected, count) }
            }
        };
        for event in &mut write.events {
            event.event_type = (*self.random.pick(EVENT_TYPES)).into();
            event.data = Json::trusted(format!(r#"{{"n":{},"status":"queued"}}"#, self.random.below(100)));
            event.signal = self.random.once_in(3).then(|| SignalId(Uuid::from_u128(u128::from(self.random.next()))));
            event.step_id = self.random.once_in(2).then(|| "shots[3]".into());
            event.logical_attempt = self.random.once_in(2).then_some(2);
        }
        if self.random.once_in(25)
            && let Some(first) = write.events.first_mut()
        {
            first.idempotency_key = event(write.run, 1, "").idempotency_key;
        }
        self.beside(&mut write);
        write
    }

    fn start(&mut self, events: u64) -> RunWrite {
        let run = new_run();
        let mut head = self.head(run);
        head.request_id = match self.random.below(6) {
            0 => Some(odd("request")),
            1 if !self.requests.is_empty() => Some(self.random.pick(&self.requests).1.clone()),
            _ => None,
        };
        start_with(run, events, head)
    }

    fn head(&mut self, run: RunId) -> NewHead {
        let status = self.maybe_status().unwrap_or(crate::rows::status(RunStatus::Queued));
        NewHead {
            owner: self.maybe_node(),
            status,
            priority: self.small(),
            workflow: self.random.pick(&self.workflows).clone(),
            base_run: self.maybe_run(),
            parent_run: self.maybe_run(),
            created_at: Timestamp(drawn_at(run).0 + i64::try_from(self.random.below(3000)).expect("a small number")),
            ..new_head()
        }
    }

    fn maybe_run(&mut self) -> Option<RunId> {
        let index = self.any_run()?;
        self.random.once_in(4).then_some(self.runs[index].run)
    }

    /// Timers, slot, tasks and checkpoint.
    fn beside(&mut self, write: &mut RunWrite) {
        for seq in write.expected_seq + 1..=write.last_seq {
            if self.random.once_in(3) {
                let due_at = at(i64::try_from(self.random.below(1 << 40)).expect("less than 2^40"));
                write.timers.push(TimerWrite::Arm { seq, due_at });
            }
        }
        if write.expected_seq > 0 && self.random.once_in(2) {
            write.timers.push(TimerWrite::Disarm { seq: 1 + self.random.below(write.expected_seq) });
        }
        let (key, limit) = self.random.pick(&self.keys).clone();
        write.slot = match self.random.below(8) {
            0 => Some(SlotWrite::Hold { key }),
            1 | 2 => Some(SlotWrite::Wait { key, limit, priority: self.small() }),
            3 => Some(SlotWrite::Release),
            _ => None,
        };
        for step in 0..3 {
            let node = self.maybe_node().unwrap_or(NodeId(7));
            let row = crate::conformance::waiting_task(write.run, StepRef::whole(step), "q", node);
            write.tasks.extend(match self.random.below(12) {
                0 => Some(TaskWrite::Put(Box::new(row))),
                1 => Some(TaskWrite::Put(Box::new(crate::conformance::leased_task(&row, self.random.below(9))))),
                2 => Some(TaskWrite::Delete(row.task)),
                3 => Some(TaskWrite::Withdraw(row.task)),
                _ => None,
            });
        }
        if self.random.once_in(3) {
            write.cache = Some(Box::new(self.cache_write(write.run)));
        }
        if let Some(event) = write.events.last().filter(|_| self.files.once_in(4)) {
            write.artifacts = (0..=self.files.below(2) as u32)
                .map(|place| recorded(write.run, event.seq, place, *self.files.pick(&self.results)))
                .collect();
        }
        if self.random.once_in(6) {
            let state = self.random.next().to_be_bytes().to_vec();
            write.checkpoint = Some(CheckpointRow { seq: write.last_seq, format: 1, state });
        }
    }

    fn projection(&mut self, index: usize) -> ProjectionWrite {
        let Known { run, last_seq, projected, ref head } = self.runs[index];
        let head = head.clone();
        let expected = if self.random.once_in(6) { projected + 1 } else { projected };
        let seq = projected + self.random.below(last_seq.saturating_sub(projected) + 1);
        let status = *self.random.pick(RunStatus::ALL);
        let row = SnapshotRow {
            status,
            completed_at: status.is_terminal().then(|| self.ended_at()),
            workflow: head.workflow.to_string(),
            request_id: head.request_id,
            base_run: head.base_run,
            parent_run: head.parent_run,
            created_at: head.created_at,
            submitted_by: submitter(run),
            updated_at: at(i64::try_from(seq).expect("a small number")),
            engine_node: self.random.once_in(2).then_some(NodeId(-7)),
            steps_done: u32::try_from(self.random.below(9)).expect("a small number"),
            error: self.random.once_in(3).then(|| Json::trusted("3")),
            // A snapshot at 0 would look like none.
            ..snapshot(run, seq.max(1))
        };
        let steps = (0..self.random.below(4)).map(|number| self.projected_step(number)).collect();
        ProjectionWrite { steps, release: self.random.once_in(2), ..project(expected, row) }
    }

    fn projected_step(&mut self, number: u64) -> StepRow {
        StepRow {
            skip_reason: self.random.once_in(4).then(|| *self.random.pick(SkipReason::ALL)),
            input_hash: self.random.once_in(2).then(|| Digest::of(b"input")),
            output_seq: self.random.once_in(2).then(|| self.random.below(50)),
            ..step(&format!("step[{number}]"), *self.random.pick(StepStatus::ALL))
        }
    }

    fn questions(&mut self) -> Vec<Question> {
        let mut questions = Vec::new();
        for _ in 0..self.random.below(4) {
            let run = self.any_run();
            questions.push(match (self.random.below(6), run) {
                (5, Some(index)) => {
                    let run = Some(self.runs[index].run).filter(|_| self.random.once_in(2));
                    let keys = self.results.iter().map(|key| ResultKey { key: *key, run }).collect();
                    Question::Flights { org: ORG, keys }
                }
                (3, Some(index)) => {
                    let run = Some(self.runs[index].run).filter(|_| self.random.once_in(2));
                    let keys = self.results.iter().map(|key| ResultKey { key: *key, run }).collect();
                    let held = (0..self.random.below(4)).map(|n| (n > 0).then(|| output(n).1)).collect();
                    Question::Results { org: ORG, keys, held }
                }
                (4, _) => Question::Epochs { org: ORG, workflow: self.random.pick(&self.workflows).clone() },
                (0, Some(index)) => {
                    let Known { run, last_seq, .. } = self.runs[index];
                    Question::Event { org: ORG, run, seq: 1 + self.random.below(last_seq + 1) }
                }
                (1, _) if !self.requests.is_empty() => {
                    let (workflow, request_id) = self.random.pick(&self.requests).clone();
                    Question::RunOfRequest { org: ORG, workflow, request_id }
                }
                _ => Question::SlotsHeld { org: ORG, key: self.random.pick(&self.keys).0.clone() },
            });
        }
        questions
    }

    fn maybe_status(&mut self) -> Option<StatusWrite> {
        let status = *self.random.pick(RunStatus::ALL);
        let completed_at = status.is_terminal().then(|| self.ended_at());
        self.random.once_in(3).then_some(StatusWrite { status, started_at: Some(at(1)), completed_at })
    }

    fn maybe_node(&mut self) -> Option<NodeId> {
        let node = *self.random.pick(&self.nodes);
        self.random.once_in(3).then_some(node)
    }

    fn small(&mut self) -> i32 {
        i32::try_from(self.random.below(4)).expect("a small number") - 1
    }

    async fn compare_all(&self, stores: &[Arc<dyn Store>], context: &str) {
        for known in &self.runs {
            let mut kept = Vec::new();
            for store in stores {
                kept.push(run_as_kept(&**store, known.run).await);
            }
            same(stores, &kept, context, &known.run);
        }
        let mut kept = Vec::new();
        for store in stores {
            kept.push(self.all_as_kept(&**store).await);
        }
        same(stores, &kept, context, &"lists");
    }

    /// Lists that have only runs of this test.
    fn filters(&self) -> Vec<RunFilter> {
        let mut filters = Vec::new();
        let all = |workflow: &Arc<str>| RunFilter {
            workflow: Some(workflow.to_string()),
            limit: 1_000_000,
            ..RunFilter::default()
        };
        let some = [RunStatus::Running, RunStatus::Failed, RunStatus::Completed].to_vec();
        for workflow in &self.workflows {
            filters.push(all(workflow));
            filters.push(RunFilter { statuses: some.clone(), ..all(workflow) });
            filters.push(RunFilter { limit: 3, statuses: some[..1].to_vec(), ..all(workflow) });
        }
        // Four runs spread over all of them: what comes from them, is like them, was before or after them.
        for known in self.runs.iter().step_by(self.runs.len().div_ceil(4).max(1)) {
            let (run, head) = (known.run, &known.head);
            let any = RunFilter { limit: 1_000_000, ..RunFilter::default() };
            filters.push(RunFilter { base_run: Some(run), ..any.clone() });
            filters.push(RunFilter { parent_run: Some(run), statuses: some.clone(), ..any.clone() });
            filters.push(RunFilter { parent_run: head.parent_run, base_run: Some(run), ..any.clone() });
            filters.extend(head.request_id.clone().map(|id| RunFilter { request_id: Some(id), ..any.clone() }));
            filters.push(RunFilter { submitted_by: submitter(run), ..all(&head.workflow) });
            filters.push(RunFilter { before: Some(run), limit: 5, ..all(&head.workflow) });
            filters.push(RunFilter { created_from: Some(head.created_at), ..all(&head.workflow) });
            filters.push(RunFilter { created_until: Some(head.created_at), limit: 9, ..all(&head.workflow) });
            filters.push(RunFilter {
                created_from: Some(head.created_at),
                statuses: some.clone(),
                ..all(&head.workflow)
            });
        }
        filters
    }

    /// What is kept across runs, as far as it is of this test.
    async fn all_as_kept(&self, store: &dyn Store) -> String {
        const ALL: u32 = 1_000_000;
        let ours = |run: &RunId| self.runs.iter().any(|known| known.run == *run);
        let mut text = String::new();
        let mut note = |what: &dyn Debug| text.push_str(&format!("{what:?}\n"));
        for (key, _) in &self.keys {
            note(&store.slots_to_wake_of(ORG, key, ALL).await.expect("slots can be read"));
        }
        let mut woken = store.slots_to_wake(ALL).await.expect("slots can be read");
        woken.retain(|slot| ours(&slot.run));
        woken.sort_by(|a, b| (&a.key, a.run).cmp(&(&b.key, b.run)));
        note(&woken);
        let mut timers = store.timers_until(None, at(i64::MAX >> 12), ALL).await.expect("timers can be read");
        timers.retain(|timer| ours(&timer.run));
        note(&timers);
        for node in &self.nodes {
            note(&store.owned_runs(*node, None, ALL).await.expect("owned runs can be read"));
        }
        for workflow in &self.workflows {
            let filter = ResultFilter::Workflow(workflow.to_string());
            note(&store.cache().results(ORG, &filter, None, ALL).await.expect("results can be listed"));
            note(&store.cache().result_stats(ORG, &filter).await.expect("results can be counted"));
            note(&store.cache().epochs(ORG, workflow).await.expect("epochs can be read"));
        }
        for key in &self.results {
            note(&store.cache().preimage(ORG, *key).await.expect("a pre-image can be read"));
        }
        let keys: Vec<_> = self.results.iter().map(|key| (ORG, ResultKey { key: *key, run: None })).collect();
        note(&store.flights().under_way(&keys).await.expect("flights can be read"));
        let mut behind = store.flights().left_behind(ALL).await.expect("flights can be looked over");
        behind.retain(|row| self.results.contains(&row.key.key));
        behind.sort_by_key(|row| row.key);
        note(&behind);
        for filter in self.filters() {
            note(&store.list_runs(ORG, &filter).await.expect("runs can be listed"));
            note(&store.count_matching(ORG, &filter, 7).await.expect("runs can be counted"));
        }
        let known: Vec<_> = self.runs.iter().map(|known| (ORG, known.run)).collect();
        let mut seqs = store.last_seqs(&known).await.expect("heads can be read");
        seqs.sort_unstable();
        note(&seqs);
        let mut behind = store.unprojected(ALL).await.expect("projections can be compared");
        behind.retain(|(_, run, _)| ours(run));
        behind.sort_unstable();
        note(&behind);
        let mut open = store.open_runs(None, ALL).await.expect("open runs can be read");
        open.retain(|head| ours(&head.run));
        note(&open);
        let mut gaps = store.log_gaps(ALL).await.expect("logs can be looked over");
        gaps.retain(|gap| ours(&gap.run));
        assert_eq!(gaps, [], "{} has holes in a log", store.name());
        text
    }
}

/// Always the same of one run.
fn submitter(run: RunId) -> Option<String> {
    match run.0.as_bytes()[15] % 3 {
        0 => None,
        1 => Some("ada".to_owned()),
        _ => Some("Zoé \u{202e}'\"\\%_".to_owned()),
    }
}

/// When an id was drawn.
fn drawn_at(run: RunId) -> Timestamp {
    let ms = i64::try_from(run.0.as_u128() >> 80).expect("48 bits");
    Timestamp(ms * 1000)
}

/// Two writes of one batch that would leave it to chance which one wins.
fn clash(one: &RunWrite, other: &RunWrite) -> bool {
    let request = |write: &RunWrite| match &write.head {
        HeadWrite::Insert(head) => head.request_id.clone().map(|id| (head.workflow.clone(), id)),
        HeadWrite::Update { .. } | HeadWrite::Patch(_) => None,
    };
    one.run == other.run || (request(one).is_some() && request(one) == request(other))
}

/// What one store has of a run, as text.
async fn run_as_kept(store: &dyn Store, run: RunId) -> String {
    let head = store.head(ORG, run).await.expect("a head can be read");
    let loaded = store.load_runs(&[(ORG, run)]).await.expect("a run can be loaded");
    let loaded: Vec<_> = loaded.into_iter().map(|run| (run.head, run.checkpoint, plain_events(run.tail))).collect();
    let events = plain_events(store.events(ORG, run, 0, u32::MAX >> 1).await.expect("events can be read"));
    let mut timers = store.timers_of(ORG, run).await.expect("timers can be read");
    timers.sort_by_key(|timer| timer.seq);
    let mut tasks = store.tasks_of(ORG, run).await.expect("tasks can be read");
    tasks.sort_by_key(|task| task.task);
    let slot = store.slot_of(ORG, run).await.expect("a slot can be read");
    // What a row that holds says of priority is nobody's business.
    let slot = slot.map(|slot| (slot.key, slot.holding, (!slot.holding).then_some((slot.limit, slot.priority))));
    let transitions = store.transitions(ORG, run).await.expect("transitions can be read");
    let snapshot = store.snapshot(ORG, run).await.expect("a snapshot can be read");
    let projection = store.projection(ORG, run).await.expect("a projection can be read");
    let logs = store.logs(ORG, run, None, None, 1000).await.expect("logs can be read");
    let artifacts = store.artifacts().artifacts(ORG, run, &ArtifactFilter::default(), None, 1000).await;
    let artifacts = artifacts.expect("artifacts can be read");
    [
        format!("{head:#?}\n{loaded:#?}\n{events:#?}\n{timers:#?}\n{tasks:#?}\n{slot:#?}\n{transitions:#?}"),
        format!("{snapshot:#?}\n{projection:#?}\n{logs:#?}\n{artifacts:#?}"),
    ]
    .join("\n")
}

fn plain_answers(answers: Vec<Answer>) -> String {
    let plain = answers.into_iter().map(|answer| match answer {
        Answer::Event(event) => Answer::Event(event.map(plain)),
        other => other,
    });
    format!("{:?}", plain.collect::<Vec<_>>())
}

/// Which error it is counts, not its words.
fn outcome<T>(result: Result<T>) -> Result<T, &'static str> {
    result.map_err(|error| match error {
        StoreError::Unavailable(_) => "unavailable",
        StoreError::Refused(_) => "refused",
        StoreError::Corrupt(_) => "corrupt",
        StoreError::DiskFull(_) => "disk full",
        StoreError::Unusable(_) => "unusable",
    })
}

fn same<T: PartialEq + Debug>(stores: &[Arc<dyn Store>], results: &[T], context: &str, input: &dyn Debug) {
    for (store, result) in stores.iter().zip(results).skip(1) {
        let names = (stores[0].name(), store.name());
        assert!(
            *result == results[0],
            "{context}: {} and {} differ\n{:?}\n{result:?}\nafter {input:#?}",
            names.0,
            names.1,
            results[0]
        );
    }
}

/// An output, and its hash.
fn output(number: u64) -> (Json, Digest) {
    let text = number.to_string();
    (Json::trusted(text.as_str()), Digest::of(text.as_bytes()))
}

/// A question that not every store takes. Those that refuse it go on as if nobody had asked.
async fn refuse_or_answer(stores: &[Arc<dyn Store>], context: &str) {
    for store in stores {
        let question = Question::RunOfRequest { org: ORG, workflow: "w".into(), request_id: "a\0b".to_owned() };
        match store.ask(vec![question]).await {
            Ok(_) | Err(StoreError::Refused(_)) => {}
            Err(error) => panic!("{context}: {} says {error}", store.name()),
        }
    }
}
