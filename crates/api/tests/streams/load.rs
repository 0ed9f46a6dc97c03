//! A thousand readers of one run.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;

use crate::support::*;

const READERS: usize = 1000;
const STEPS: usize = 100;

/// Both ends of every socket are in this process.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, wanted).unwrap();
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    assert!(allowed > 3 * READERS as u64, "this test needs {} open files; raise `ulimit -n`", 3 * READERS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_sockets_see_every_event_of_a_run_once_in_order() {
    allow_many_files();
    let server = Server::new().await;
    let run = server.start(&gated(STEPS)).await;
    let mut sockets = Vec::with_capacity(READERS);
    for _ in 0..READERS {
        let mut ws = server.ws("").await;
        ws.subscribe(run, 0).await;
        sockets.push(ws);
    }
    assert_eq!(server.engine.watched_runs(), 1);
    let readers: Vec<_> = sockets
        .into_iter()
        .map(|mut ws| {
            tokio::spawn(async move {
                let (seen, end) = ws.rest().await;
                let seqs: Vec<u64> = seen.iter().filter_map(|event| event["run_seq"].as_u64()).collect();
                (seqs, end.unwrap())
            })
        })
        .collect();
    for _ in 0..STEPS {
        server.gate.add_permits(1);
        tokio::task::yield_now().await;
    }
    within(server.engine.wait(run)).await.unwrap();
    let last = server.log(run).await.len() as u64;
    assert!(last > 2 * STEPS as u64);
    for reader in readers {
        let (seqs, end) = reader.await.unwrap();
        assert!(seqs.iter().copied().eq(1..=last), "{seqs:?}");
        assert_eq!(end, json!({"type": "end", "run_id": run, "status": "completed", "last_event_seq": last}));
    }
    server.unwatched().await;
    server.stop().await;
}
