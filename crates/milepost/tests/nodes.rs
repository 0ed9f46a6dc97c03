//! Three servers on one Postgres, one of them killed every few seconds, under load: nothing is lost, nothing is recorded
//! twice, every run ends, and who follows a run sees every event of it once.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use milepost_core::id::RunId;
use milepost_store::Store;
use milepost_store::postgres::PostgresStore;
use serde_json::{Value, json};

use common::{Random, all_end, postgres_schema, verify};

const NODES: usize = 3;
const CALLERS: u64 = 8;
const FOLLOWERS: u64 = 4;

/// How long nodes are killed; shorter for a quick look.
fn duration() -> Duration {
    let seconds = std::env::var("MILEPOST_TEST_NODES_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(120))
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_keep_the_promise_while_one_after_the_other_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let url = postgres_schema("nodes");
    let cluster = Arc::new(Cluster::start(&url, folder.path()));
    cluster.deploy().await;
    let load = Arc::new(Load::default());
    let callers: Vec<_> = (0..CALLERS).map(|n| tokio::spawn(call(cluster.clone(), load.clone(), n))).collect();
    let followers: Vec<_> =
        (0..FOLLOWERS).map(|n| tokio::spawn(follow_some(cluster.clone(), load.clone(), n))).collect();
    let kills = kill_for(&cluster, duration()).await;
    load.over.store(true, Ordering::Relaxed);
    for task in callers.into_iter().chain(followers) {
        task.await.unwrap();
    }
    let acknowledged = load.acknowledged.lock().unwrap().clone();
    let followed = load.followed.load(Ordering::Relaxed);
    assert!(kills > 0 && acknowledged.len() > 100, "{} runs: this was no load", acknowledged.len());
    assert!(followed > 0, "no run was followed to its end");
    let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(&url).await.unwrap());
    all_end(&*store).await;
    drop(cluster);
    verify(store, &acknowledged).await;
}

#[derive(Default)]
struct Load {
    over: AtomicBool,
    acknowledged: Mutex<BTreeSet<RunId>>,
    followed: AtomicU64,
}

struct Cluster {
    database: String,
    nodes: Vec<Mutex<Node>>,
    client: reqwest::Client,
}

struct Node {
    child: Child,
    data: PathBuf,
    url: Option<String>,
}

impl Node {
    fn start(database: &str, data: PathBuf) -> Node {
        let child = Command::new(env!("CARGO_BIN_EXE_milepost"))
            .args(["serve", "--listen", "127.0.0.1:0", "--db", database, "--data"])
            .arg(&data)
            .env("RUST_LOG", "error")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Node { child, data, url: None }
    }

    /// Its address, once it is ready.
    fn url(&mut self) -> Option<String> {
        if self.url.is_none() {
            let text = std::fs::read_to_string(self.data.join("server.json")).ok()?;
            let value: Value = serde_json::from_str(&text).ok()?;
            self.url = (value["pid"] == self.child.id()).then(|| value["url"].as_str().unwrap().to_owned());
        }
        self.url.clone()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Cluster {
    fn start(database: &str, folder: &Path) -> Cluster {
        let node = |n: usize| Mutex::new(Node::start(database, folder.join(format!("node{n}"))));
        Cluster {
            database: database.to_owned(),
            nodes: (0..NODES).map(node).collect(),
            client: reqwest::Client::builder().timeout(Duration::from_secs(30)).build().unwrap(),
        }
    }

    /// Kills a node as a crash would, and starts another in its place.
    fn kill(&self, n: usize) {
        let mut node = self.nodes[n].lock().unwrap();
        let data = node.data.clone();
        node.child.kill().unwrap();
        node.child.wait().unwrap();
        *node = Node::start(&self.database, data);
    }

    /// A call to some node; none that is down, being killed or starting is an error.
    async fn call(&self, n: usize, method: reqwest::Method, path: &str, body: Option<&Value>) -> Option<Value> {
        let url = self.nodes[n % NODES].lock().unwrap().url()?;
        let request = self.client.request(method, format!("{url}/api/v1{path}"));
        let request = body.iter().fold(request, |request, body| request.json(body));
        let response = request.send().await.ok()?;
        let status = response.status();
        let text = response.text().await.ok()?;
        assert!(status.is_success() || status.is_server_error(), "{path}: {status} {text}");
        status.is_success().then(|| serde_json::from_str(&text).unwrap())
    }

    async fn deploy(&self) {
        let child = json!({"name": "child", "steps": {
            "a": {"skill": "echo", "input": {"n": "${{ payload.n }}"}},
            "b": {"skill": "echo", "input": {"n": "${{ steps.a.output.n }}"}},
        }});
        let mixed = json!({"name": "mixed",
        "defaults": {"retry": {"max_attempts": 5, "backoff_ms": 5, "max_backoff_ms": 20}},
        "steps": {
            "flaky": {"skill": "fail", "input": {"times": 2}},
            "nap": {"skill": "sleep", "input": {"ms": 300}, "depends_on": ["flaky"]},
            "many": {"skill": "echo", "foreach": [1, 2, 3, 4, 5], "input": {"n": "${{ item }}"}, "depends_on": ["flaky"]},
            "child": {"skill": "workflow", "input": {"ref": "child", "payload": {"n": "${{ steps.many.output[4].n }}"}}},
            "last": {"skill": "echo", "input": {"n": "${{ steps.child.output.b.n }}"}, "depends_on": ["nap"]},
        }});
        for document in [child, mixed] {
            let body = json!({ "document": document });
            let deadline = Instant::now() + Duration::from_secs(30);
            while self.call(0, reqwest::Method::POST, "/workflows", Some(&body)).await.is_none() {
                assert!(Instant::now() < deadline, "the first node is not ready");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Starts runs at any node. A request that was not answered is sent again, elsewhere, with the same request id.
async fn call(cluster: Arc<Cluster>, load: Arc<Load>, caller: u64) {
    let mut random = Random(caller);
    for n in 0_u64.. {
        if load.over.load(Ordering::Relaxed) {
            return;
        }
        let body = json!({"workflow": "mixed", "payload": {"n": n}, "request_id": format!("{caller}/{n}")});
        loop {
            if let Some(started) = cluster.call(random.below(NODES), reqwest::Method::POST, "/runs", Some(&body)).await
            {
                load.acknowledged.lock().unwrap().insert(started["run_id"].as_str().unwrap().parse().unwrap());
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Follows one run after the other to its end, at any node, going on elsewhere when a node is gone.
async fn follow_some(cluster: Arc<Cluster>, load: Arc<Load>, follower: u64) {
    let mut random = Random(1000 + follower);
    while !load.over.load(Ordering::Relaxed) {
        let run = load.acknowledged.lock().unwrap().last().copied();
        let Some(run) = run else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let mut last = 0;
        while !follow(&cluster, random.below(NODES), run, &mut last).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        load.followed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads a stream as far as it goes. Answers whether the run has ended.
async fn follow(cluster: &Cluster, n: usize, run: RunId, last: &mut u64) -> bool {
    let Some(url) = cluster.nodes[n].lock().unwrap().url() else { return false };
    let request =
        cluster.client.get(format!("{url}/api/v1/runs/{run}/stream")).header("last-event-id", last.to_string());
    let Ok(mut response) = request.send().await else { return false };
    if response.status() == 204 {
        return true;
    }
    let mut text = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        text.extend_from_slice(&chunk);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let line = String::from_utf8(line).unwrap();
            if let Some(seq) = line.strip_prefix("id: ") {
                let seq: u64 = seq.trim().parse().unwrap();
                assert_eq!(seq, *last + 1, "run {run}: event {seq} came after {last}");
                *last = seq;
            }
            if line.starts_with("event: end") {
                return true;
            }
        }
    }
    false
}

async fn kill_for(cluster: &Cluster, duration: Duration) -> u32 {
    let mut random = Random(7);
    let (began, mut kills) = (Instant::now(), 0);
    while began.elapsed() < duration {
        tokio::time::sleep(Duration::from_millis(2000 + random.below(2000) as u64)).await;
        cluster.kill(random.below(NODES));
        kills += 1;
    }
    kills
}
