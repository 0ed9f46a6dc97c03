//! Answers that stay true until the commit.
//!
//! Whoever asks how many slots of a key are held takes a lock on that key until the end of its transaction, so nobody else
//! can decide to hold one meanwhile. Slots may be given back at any time: the number can fall, never rise. Which
//! run has a request id and what an event says need no lock: the first is checked again by the write, the second never changes.
//! Nor do results of steps: one that is found is copied, and one that is disowned meanwhile was found before. Who makes one is
//! checked again by the write of whoever wants to.

use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::{Object, Pool};
use milepost_core::id::RunId;
use tokio_postgres::types::ToSql;

use super::cache::{self, Wanted};
use super::columns::{self, col, int8};
use super::commit::commit_in;
use super::flights;
use super::queues;
use super::transaction::Open;
use crate::rows::{Answer, Batch, Question, RequestedRun, TaskLimits, WriteResult};
use crate::{Result, StoreError, Transaction};

pub(super) struct PostgresTransaction(Open);

pub(super) async fn ask(pool: &Pool, questions: &[Question]) -> Result<(Box<dyn Transaction>, Vec<Answer>)> {
    let open = Open::on(pool).await?;
    let connection = open.connection()?;
    let (begun, answers) = tokio::join!(connection.batch_execute("BEGIN"), answer(connection, questions));
    begun?;
    let answers = answers?;
    Ok((Box::new(PostgresTransaction(open)), answers))
}

#[async_trait]
impl Transaction for PostgresTransaction {
    async fn ask(&mut self, questions: Vec<Question>) -> Result<Vec<Answer>> {
        answer(self.0.connection()?, &questions).await
    }

    async fn commit(self: Box<Self>, batch: Arc<Batch>) -> Result<Vec<WriteResult>> {
        queues::take(self.0.connection()?, &batch.rates).await?;
        let results =
            if batch.writes.is_empty() { Vec::new() } else { commit_in(self.0.connection()?, &batch).await? };
        self.0.commit().await?;
        Ok(results)
    }
}

// Locks are taken in the order of their numbers, so that two who ask for the same keys do not wait for each other.
const LOCK: &str = "SELECT pg_advisory_xact_lock(lock) FROM (
        SELECT DISTINCT hashtextextended(q.slot_key, q.org_id) AS lock
        FROM unnest($1::int4[], $2::text[]) AS q (org_id, slot_key) ORDER BY 1
    ) AS locks";

const HELD: &str = "SELECT q.n, (SELECT count(*) FROM run_slots AS s
                     WHERE s.org_id = q.org_id AND s.slot_key = q.slot_key AND s.holding)
    FROM unnest($1::int4[], $2::text[]) WITH ORDINALITY AS q (org_id, slot_key, n)";

const REQUESTED: &str = "SELECT q.n, r.run_id, r.version_hash, r.asked
    FROM unnest($1::int4[], $2::text[], $3::text[]) WITH ORDINALITY AS q (org_id, request_id, workflow, n)
    JOIN run_requests AS r ON r.org_id = q.org_id AND r.request_id = q.request_id AND r.workflow = q.workflow
        AND r.project_id = 1 AND r.environment_id = 1";

/// Questions of one kind, column by column, with their places among all questions.
#[derive(Default)]
struct Keyed<'a> {
    place: Vec<usize>,
    org: Vec<i32>,
    key: Vec<&'a str>,
}

#[derive(Default)]
struct Events {
    place: Vec<usize>,
    org: Vec<i32>,
    run: Vec<uuid::Uuid>,
    seq: Vec<i64>,
}

async fn answer(connection: &Object, questions: &[Question]) -> Result<Vec<Answer>> {
    let (mut slots, mut requests, mut events) = (Keyed::default(), Keyed::default(), Events::default());
    let mut workflows: Vec<&str> = Vec::new();
    let mut limits = Vec::new();
    let (mut results, mut result_keys, mut epochs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut under_way, mut flight_keys) = (Vec::new(), Vec::new());
    let mut answers = Vec::with_capacity(questions.len());
    for (place, question) in questions.iter().enumerate() {
        match question {
            Question::SlotsHeld { org, key } => {
                slots.push(place, org.0, key);
                answers.push(Answer::SlotsHeld(0));
            }
            Question::RunOfRequest { org, workflow, request_id } => {
                requests.push(place, org.0, request_id);
                workflows.push(workflow);
                answers.push(Answer::RunOfRequest(None));
            }
            Question::Event { org, run, seq } => {
                events.place.push(place);
                events.org.push(org.0);
                events.run.push(run.0);
                events.seq.push(int8(*seq));
                answers.push(Answer::Event(None));
            }
            Question::Limits { org, queue, key } => {
                limits.push((place, *org, &**queue, key.as_deref()));
                answers.push(Answer::Limits(TaskLimits::default()));
            }
            Question::Results { org, keys, held } => {
                results.push((place, keys.len()));
                let held = held.iter().copied().chain(std::iter::repeat(None));
                result_keys.extend(keys.iter().zip(held).map(|(key, held)| Wanted { org: *org, key: *key, held }));
                answers.push(Answer::Results(Vec::new()));
            }
            Question::Flights { org, keys } => {
                under_way.push((place, keys.len()));
                flight_keys.extend(keys.iter().map(|key| (*org, *key)));
                answers.push(Answer::Flights(Vec::new()));
            }
            Question::Epochs { org, workflow } => {
                epochs.push((place, *org, workflow));
                answers.push(Answer::Epochs(Vec::new()));
            }
        }
    }
    if !slots.place.is_empty() {
        for (place, held) in slots.held(connection).await? {
            answers[place] = Answer::SlotsHeld(held);
        }
    }
    if !limits.is_empty() {
        let orgs: Vec<i32> = limits.iter().flat_map(|(_, org, _, _)| [org.0, org.0]).collect();
        let names = limits.iter().flat_map(|(_, _, queue, key)| [format!("queue {queue}"), format!("key {key:?}")]);
        query(connection, LOCK, &[&orgs, &names.collect::<Vec<_>>()]).await?;
        for (place, org, queue, key) in limits {
            answers[place] = Answer::Limits(queues::limits(connection, org, queue, key).await?);
        }
    }
    if !results.is_empty() {
        let mut found = cache::find(connection, &result_keys).await?.into_iter();
        for (place, count) in results {
            answers[place] = Answer::Results(found.by_ref().take(count).collect());
        }
    }
    if !under_way.is_empty() {
        let mut found = flights::find(connection, &flight_keys).await?.into_iter();
        for (place, count) in under_way {
            answers[place] = Answer::Flights(found.by_ref().take(count).collect());
        }
    }
    for (place, org, workflow) in epochs {
        answers[place] = Answer::Epochs(cache::epochs(connection, org, workflow).await?);
    }
    if !requests.place.is_empty() {
        for row in query(connection, REQUESTED, &[&requests.org, &requests.key, &workflows]).await? {
            let version_hash = col::<Option<&[u8]>>(&row, 2)?.map(columns::digest).transpose()?;
            let known = RequestedRun::read(RunId(col(&row, 1)?), version_hash, col(&row, 3)?);
            answers[requests.place[nth(&row)?]] = Answer::RunOfRequest(Some(known));
        }
    }
    if !events.place.is_empty() {
        let sql = format!(
            "SELECT q.n, {} FROM unnest($1::int4[], $2::uuid[], $3::int8[]) WITH ORDINALITY AS q (org_id, run_id, seq, n)
             JOIN run_events AS e ON e.run_id = q.run_id AND e.run_seq = q.seq AND e.org_id = q.org_id",
            columns::EVENT
        );
        for row in query(connection, &sql, &[&events.org, &events.run, &events.seq]).await? {
            answers[events.place[nth(&row)?]] = Answer::Event(Some(columns::event(&row, 1)?));
        }
    }
    Ok(answers)
}

impl<'a> Keyed<'a> {
    fn push(&mut self, place: usize, org: i32, key: &'a str) {
        self.place.push(place);
        self.org.push(org);
        self.key.push(key);
    }

    async fn held(&self, connection: &Object) -> Result<Vec<(usize, u32)>> {
        // The count is a statement of its own: it must see what those committed who had the locks before.
        let lock = connection.prepare_cached(LOCK).await?;
        let held = connection.prepare_cached(HELD).await?;
        let parameters: [&(dyn ToSql + Sync); 2] = [&self.org, &self.key];
        let (locked, rows) = tokio::join!(connection.query(&lock, &parameters), connection.query(&held, &parameters));
        locked?;
        rows?
            .iter()
            .map(|row| {
                let count = u32::try_from(col::<i64>(row, 1)?).unwrap_or(u32::MAX);
                Ok((self.place[nth(row)?], count))
            })
            .collect()
    }
}

async fn query(connection: &Object, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<tokio_postgres::Row>> {
    let statement = connection.prepare_cached(sql).await?;
    Ok(connection.query(&statement, parameters).await?)
}

/// The place that `WITH ORDINALITY` gave, from 0.
fn nth(row: &tokio_postgres::Row) -> Result<usize> {
    usize::try_from(col::<i64>(row, 0)? - 1).map_err(|_| StoreError::Corrupt("an answer without a question".to_owned()))
}
