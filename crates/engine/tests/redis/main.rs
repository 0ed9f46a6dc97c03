//! Results with a Redis in front of the database: it spares reading outputs, and changes no answer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_engine::cache::{CacheConfig, RedisConfig, evict_results};
use milepost_engine::{Config, Engine, NewRun};
use milepost_store::Store;
use milepost_store::postgres::PostgresStore;
use milepost_store::rows::ResultFilter;
use milepost_store::sqlite::SqliteStore;
use serde_json::Value;
use tempfile::TempDir;

use server::RedisServer;

const TTL: Duration = Duration::from_secs(600);
/// However busy this machine is, Redis answers within.
const LONG: Duration = Duration::from_secs(30);

/// Three steps, with outputs of some bytes and of many.
const CHAIN: &str = r#"
name: chain
defaults: {cache: {enabled: true}}
steps:
  a: {skill: count, input: {n: 1}}
  b: {skill: count, input: {of: "${{ steps.a.output }}", text: "${{ 'x' * 100000 }}"}}
  c: {skill: count, input: {of: "${{ steps.b.output.text | length }}"}}
"#;

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("this takes far too long: something is stuck")
}

/// Looks until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let look = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// An engine with counters of its own.
struct Node {
    engine: Engine,
    counters: PrometheusHandle,
    runs: Arc<AtomicUsize>,
}

impl Node {
    async fn open(store: Arc<dyn Store>, org: OrgId, redis: Option<&str>) -> Node {
        let redis = redis.map(|url| RedisConfig::new(url, TTL).unwrap().with_patience(LONG));
        Node::open_with(store, org, redis).await
    }

    async fn open_with(store: Arc<dyn Store>, org: OrgId, redis: Option<RedisConfig>) -> Node {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (counters, runs) = (recorder.handle(), Arc::<AtomicUsize>::default());
        let count = runs.clone();
        let cache = CacheConfig { redis, ..CacheConfig::default() };
        let config = Config { org, cache, ..Config::default() }.skill("count", move |_, input: Value| {
            count.fetch_add(1, Ordering::SeqCst);
            async move { Ok(input) }
        });
        // The engine takes its handles while it opens, on this thread.
        let guard = metrics::set_default_local_recorder(&recorder);
        let engine = Engine::open_with(store, config).await.unwrap();
        drop(guard);
        Node { engine, counters, runs }
    }

    fn value(&self, series: &str) -> u64 {
        let page = self.counters.render();
        let found = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {series} in\n{page}")).parse().unwrap()
    }

    /// Results whose outputs came from Redis, and those from the database.
    fn reads(&self) -> (u64, u64) {
        let from = |place: &str| self.value(&format!("milepost_cache_reads_total{{from=\"{place}\"}}"));
        (from("redis"), from("database"))
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    async fn run(&self) -> RunId {
        let run = within(self.engine.start_document(CHAIN, NewRun::default())).await.unwrap().run;
        within(self.engine.wait(run)).await.unwrap();
        run
    }

    /// What a run's log says, but for when, of which run and by which node.
    async fn told(&self, run: RunId) -> Vec<(String, Option<Arc<str>>, Value)> {
        let events = self.engine.store().events(self.engine.org(), run, 0, 1000).await.unwrap();
        let told = events.into_iter().map(|event| {
            let mut data = event.data.to_value();
            if let Some(node) = data.pointer_mut("/engine_run_ref/node") {
                *node = Value::Null;
            }
            (event.event_type.to_string(), event.step_id, data)
        });
        told.collect()
    }

    async fn is_up(&self) {
        until("Redis answers", async || self.engine.redis_is_up() == Some(true)).await;
    }

    /// Runs once, and waits until Redis has the results.
    async fn warm(&self, redis: &mut Looker) -> RunId {
        self.is_up().await;
        let run = self.run().await;
        redis.has(3).await;
        run
    }
}

/// Somebody who looks into Redis.
struct Looker(redis::aio::MultiplexedConnection);

impl Looker {
    async fn at(server: &RedisServer) -> Looker {
        let client = redis::Client::open(server.url()).unwrap();
        Looker(client.get_multiplexed_async_connection().await.unwrap())
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&[u8]]) -> T {
        let mut command = redis::Cmd::new();
        command.arg(words);
        command.query_async(&mut self.0).await.unwrap()
    }

    async fn names(&mut self) -> Vec<String> {
        let mut names: Vec<String> = self.ask(&[b"KEYS", b"*"]).await;
        names.sort();
        names
    }

    async fn get(&mut self, name: &str) -> Vec<u8> {
        self.ask(&[b"GET", name.as_bytes()]).await
    }

    async fn set(&mut self, name: &str, value: &[u8]) {
        self.ask::<()>(&[b"SET", name.as_bytes(), value]).await;
    }

    async fn has(&mut self, count: u64) {
        until("Redis has the results", async || self.ask::<u64>(&[b"DBSIZE"]).await == count).await;
    }
}

fn sqlite(folder: &TempDir) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(&folder.path().join("runs.db")).unwrap())
}

const OURS: OrgId = OrgId::DEFAULT;

/// A node with a Redis of its own that has the results of a run, and that run.
async fn warm() -> (TempDir, RedisServer, Looker, Node, RunId) {
    let (folder, server) = (tempfile::tempdir().unwrap(), RedisServer::start());
    let mut redis = Looker::at(&server).await;
    let node = Node::open(sqlite(&folder), OURS, Some(&server.url())).await;
    let run = node.warm(&mut redis).await;
    (folder, server, redis, node, run)
}

#[tokio::test]
async fn outputs_come_from_redis_and_the_log_is_what_it_is_without() {
    let (_folder, _server, mut redis, node, first) = warm().await;
    assert_eq!((node.reads(), node.value("milepost_redis_written_total")), ((0, 0), 3));
    for name in redis.names().await {
        let key = name.strip_prefix("milepost:1:result:").unwrap();
        assert!(key.parse::<Digest>().is_ok(), "{name}");
        let left: i64 = redis.ask(&[b"TTL", name.as_bytes()]).await;
        assert!((1..=600).contains(&left), "{name} has {left} s left");
        let value = redis.get(&name).await;
        assert_eq!(Digest::of(&value[32..]).0, value[..32]);
    }
    let second = node.run().await;
    assert_eq!((node.reads(), node.runs()), ((3, 0), 3));
    let alone = Node::open(node.engine.store().clone(), OURS, None).await;
    let third = alone.run().await;
    assert_eq!((alone.reads(), alone.runs(), alone.engine.redis_is_up()), ((0, 3), 0, None));
    assert_eq!(node.told(second).await, alone.told(third).await);
    assert_eq!(node.engine.run(second).await.unwrap().output, node.engine.run(first).await.unwrap().output);
}

#[tokio::test]
async fn outputs_come_from_redis_on_postgres() {
    let server = std::env::var("MILEPOST_TEST_POSTGRES").expect(
        "MILEPOST_TEST_POSTGRES is not set; run these tests with `scripts/with-postgres cargo test -p milepost-engine`",
    );
    let schema = format!("t_{}", uuid::Uuid::now_v7().simple());
    let (client, connection) = tokio_postgres::connect(&server, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
    let url = format!("{server}?options=-c%20search_path%3D{schema}&application_name={schema}");
    let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(&url).await.unwrap());
    let server = RedisServer::start();
    let mut redis = Looker::at(&server).await;
    let node = Node::open(store.clone(), OURS, Some(&server.url())).await;
    node.warm(&mut redis).await;
    let second = node.run().await;
    assert_eq!((node.reads(), node.runs()), ((3, 0), 3));
    let alone = Node::open(store, OURS, None).await;
    let third = alone.run().await;
    assert_eq!(node.told(second).await, alone.told(third).await);
}

#[tokio::test]
async fn a_redis_that_was_emptied_is_filled_again_by_what_is_read() {
    let (_folder, _server, mut redis, node, _) = warm().await;
    let expected = node.told(node.run().await).await;
    redis.ask::<()>(&[b"FLUSHALL"]).await;
    assert_eq!(node.told(node.run().await).await, expected);
    assert_eq!((node.reads(), node.runs()), ((3, 3), 3));
    redis.has(3).await;
    assert_eq!(node.told(node.run().await).await, expected);
    assert_eq!(node.reads(), (6, 3));
}

#[tokio::test]
async fn many_large_outputs_are_waited_for_as_long_as_they_keep_coming() {
    let (folder, server) = (tempfile::tempdir().unwrap(), RedisServer::start());
    let mut redis = Looker::at(&server).await;
    let node = Node::open(sqlite(&folder), OURS, Some(&server.url())).await;
    node.is_up().await;
    let document = "{name: l, steps: {all: {skill: count, foreach: '${{ range(100) | list }}', \
                    input: {n: '${{ item }}', text: '${{ \"x\" * 100000 }}'}, cache: {enabled: true}}}}";
    for _ in 0..2 {
        let run = within(node.engine.start_document(document, NewRun::default())).await.unwrap().run;
        within(node.engine.wait(run)).await.unwrap();
        redis.has(100).await;
    }
    assert_eq!((node.reads(), node.runs()), ((100, 0), 100));
}

#[tokio::test]
async fn what_is_forged_in_redis_is_not_believed() {
    let (_folder, _server, mut redis, node, _) = warm().await;
    let expected = node.told(node.run().await).await;
    let names = redis.names().await;
    let mut whole = Vec::new();
    for name in &names {
        whole.push(redis.get(name).await);
    }
    let forged = [&Digest::of(b"{\"n\":666}").0[..], b"{\"n\":666}"].concat();
    type Forge = fn(&[u8], &[u8]) -> Vec<u8>;
    let forge: [Forge; 6] = [
        |_, _| b"garbage".to_vec(),
        |_, _| Vec::new(),
        |whole, _| whole[..whole.len() - 1].to_vec(),
        |whole, _| [&whole[..32], b"{\"n\":666}"].concat(),
        |whole, _| [&whole[..32], &whole[32..].repeat(2)].concat(),
        // Whole in itself, and not what the database has.
        |_, forged| forged.to_vec(),
    ];
    for (round, forge) in forge.iter().enumerate() {
        for (name, whole) in names.iter().zip(&whole) {
            redis.set(name, &forge(whole, &forged)).await;
        }
        let before = node.reads();
        assert_eq!(node.told(node.run().await).await, expected, "round {round}");
        assert_eq!(node.reads(), (before.0, before.1 + 3), "round {round}");
        until("Redis has what is true", async || {
            let mut all = true;
            for (name, whole) in names.iter().zip(&whole) {
                all &= redis.get(name).await == *whole;
            }
            all
        })
        .await;
    }
    for (name, other) in names.iter().zip(whole.iter().cycle().skip(1)) {
        redis.set(name, other).await;
    }
    assert_eq!(node.told(node.run().await).await, expected, "another's bytes");
    for name in &names {
        redis.ask::<()>(&[b"DEL", name.as_bytes()]).await;
        redis.ask::<()>(&[b"LPUSH", name.as_bytes(), b"a list"]).await;
    }
    assert_eq!(node.told(node.run().await).await, expected, "another type");
    assert_eq!((node.runs(), node.engine.redis_is_up()), (3, Some(true)));
}

#[tokio::test]
async fn a_redis_that_dies_is_missed_by_nobody_and_used_again_when_it_is_back() {
    let (_folder, mut server, _, node, _) = warm().await;
    let expected = node.told(node.run().await).await;
    assert_eq!(node.reads(), (3, 0));
    server.kill();
    for round in 1..=3 {
        assert_eq!(node.told(node.run().await).await, expected);
        assert_eq!(node.reads(), (3, 3 * round));
    }
    assert_eq!((node.engine.redis_is_up(), node.value("milepost_redis_down")), (Some(false), 1));
    server.start_again();
    node.is_up().await;
    let mut redis = Looker::at(&server).await;
    assert_eq!(node.told(node.run().await).await, expected);
    redis.has(3).await;
    assert_eq!(node.told(node.run().await).await, expected);
    assert_eq!((node.reads(), node.value("milepost_redis_down"), node.runs()), ((6, 12), 0, 3));
}

/// With the patience that servers have.
#[tokio::test]
async fn a_redis_that_hangs_holds_nobody_up() {
    let (folder, server) = (tempfile::tempdir().unwrap(), RedisServer::start());
    let config = RedisConfig::new(&server.url(), TTL).unwrap();
    let node = Node::open_with(sqlite(&folder), OURS, Some(config)).await;
    node.is_up().await;
    node.run().await;
    let expected = node.told(node.run().await).await;
    let process = rustix::process::Pid::from_raw(server.process().cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    let before = node.reads();
    until("Redis is given up", async || {
        assert_eq!(node.told(node.run().await).await, expected);
        node.engine.redis_is_up() == Some(false)
    })
    .await;
    assert_eq!(node.reads().0, before.0);
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    until("outputs come from Redis again", async || {
        assert_eq!(node.told(node.run().await).await, expected);
        node.reads().0 > before.0
    })
    .await;
    assert_eq!(node.runs(), 3);
}

#[tokio::test]
async fn a_redis_that_is_nowhere_is_no_obstacle() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = RedisServer::start();
    server.kill();
    let node = Node::open(sqlite(&folder), OURS, Some(&server.url())).await;
    node.run().await;
    node.run().await;
    assert_eq!((node.reads(), node.runs(), node.engine.redis_is_up()), ((0, 3), 3, Some(false)));
    within(node.engine.shutdown()).await;
}

#[tokio::test]
async fn what_is_evicted_or_disowned_is_not_taken_whatever_redis_has() {
    let (_folder, _server, mut redis, node, _) = warm().await;
    let step = ResultFilter::Step { workflow: "chain".to_owned(), step_id: "b".to_owned() };
    assert_eq!(evict_results(node.engine.store(), OURS, &step).await.unwrap(), 1);
    assert_eq!(redis.names().await.len(), 3, "Redis still has it");
    node.run().await;
    assert_eq!((node.runs(), node.reads()), (4, (2, 0)));
    node.engine.store().cache().disown(OURS, "chain", None).await.unwrap();
    node.run().await;
    assert_eq!((node.runs(), node.reads()), (7, (2, 0)));
    redis.has(6).await;
    node.run().await;
    assert_eq!((node.runs(), node.reads()), (7, (5, 0)));
}

#[tokio::test]
async fn an_org_has_no_use_of_what_redis_has_of_another() {
    let (_folder, server, mut redis, node, _) = warm().await;
    let theirs = Node::open(node.engine.store().clone(), OrgId(2), Some(&server.url())).await;
    theirs.is_up().await;
    // As if they had guessed a name, too.
    for name in redis.names().await {
        let value = redis.get(&name).await;
        redis.set(&name.replace("milepost:1:", "milepost:2:"), &value).await;
    }
    theirs.run().await;
    assert_eq!((theirs.runs(), theirs.reads()), (3, (0, 0)));
    redis.has(9).await;
    theirs.run().await;
    node.run().await;
    assert_eq!((theirs.reads(), node.reads(), theirs.runs(), node.runs()), ((3, 0), (3, 0), 3, 3));
}

#[tokio::test]
async fn a_result_for_one_run_has_the_run_in_its_name() {
    let (folder, server) = (tempfile::tempdir().unwrap(), RedisServer::start());
    let mut redis = Looker::at(&server).await;
    let node = Node::open(sqlite(&folder), OURS, Some(&server.url())).await;
    node.is_up().await;
    let document = "{name: w, steps: {a: {skill: count, input: 1, cache: {enabled: true, scope: run_only}}}}";
    for count in 1..=2 {
        let run = node.engine.start_document(document, NewRun::default()).await.unwrap().run;
        within(node.engine.wait(run)).await.unwrap();
        redis.has(count).await;
        assert!(redis.names().await.iter().any(|name| name.ends_with(&format!(":{run}"))));
    }
    assert_eq!((node.runs(), node.reads()), (2, (0, 0)));
}

#[tokio::test]
async fn what_waits_to_be_written_is_written_when_an_engine_ends() {
    let (folder, server) = (tempfile::tempdir().unwrap(), RedisServer::start());
    let mut redis = Looker::at(&server).await;
    let node = Node::open(sqlite(&folder), OURS, Some(&server.url())).await;
    node.is_up().await;
    node.run().await;
    within(node.engine.shutdown()).await;
    assert_eq!(redis.names().await.len(), 3);
}

#[tokio::test]
async fn a_redis_that_takes_nothing_more_is_still_read() {
    let (_folder, _server, mut redis, node, _) = warm().await;
    let names = redis.names().await;
    redis.ask::<()>(&[b"DEL", names[0].as_bytes()]).await;
    redis.ask::<()>(&[b"CONFIG", b"SET", b"maxmemory", b"1"]).await;
    redis.ask::<()>(&[b"CONFIG", b"SET", b"maxmemory-policy", b"noeviction"]).await;
    node.run().await;
    until("what Redis did not take is counted", async || node.value("milepost_redis_dropped_total") == 1).await;
    node.run().await;
    assert_eq!((node.reads(), node.runs(), node.engine.redis_is_up()), ((4, 2), 3, Some(true)));
}
