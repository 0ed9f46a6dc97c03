//! A part of the engine that dies or hangs is noticed: first the engine is not ready, then it has failed.

use std::sync::Arc;
use std::time::Duration;

use milepost_core::status::RunStatus;
use milepost_engine::{Config, Engine, NewRun, SupervisionConfig};
use milepost_store::Store;

use crate::faults::Faulty;
use crate::support::*;

const WAITS: &str = "{name: w, steps: {w: {skill: wait, input: {signal: go}}}}";

fn impatient() -> Config {
    let supervision = SupervisionConfig {
        unready_after: Duration::from_millis(200),
        end_after: Some(Duration::from_millis(1500)),
        on_failure: None,
    };
    Config { supervision, node_lease_ms: 60, ..config() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_never_answers_is_a_failure_and_the_next_engine_goes_on() {
    let faulty = Faulty::slow(Duration::ZERO);
    let store: Arc<dyn Store> = faulty.clone();
    let engine = Arc::new(Engine::open_with(store.clone(), impatient()).await.unwrap());
    let id = start(&engine, WAITS, NewRun::default()).await;
    engine.flush_projections().await;
    assert!(engine.silent_parts().is_empty());

    faulty.hang(true);
    let (sender, signal) = (engine.clone(), Engine::new_signal("go"));
    let sent = signal.clone();
    let sent = tokio::spawn(async move { sender.signal(id, sent).await });
    within(async {
        while engine.silent_parts() != ["committer"] {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(engine.failure(), None, "not ready comes first");
    let failure = within(engine.failed()).await;
    assert_eq!(failure.part, "committer");
    assert!(failure.to_string().starts_with("the committer has not answered for"), "{failure}");
    assert!(!sent.is_finished(), "nothing was acknowledged");
    sent.abort();
    drop(sent.await);
    drop(engine);

    faulty.hang(false);
    let engine = Engine::open_with(store.clone(), config()).await.unwrap();
    within(engine.signal(id, signal)).await.unwrap();
    assert_eq!(ended(&engine, id).await, RunStatus::Completed);
    sound(&engine, id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_comes_back_in_time_ends_nothing() {
    let faulty = Faulty::slow(Duration::ZERO);
    let store: Arc<dyn Store> = faulty.clone();
    let mut config = impatient();
    config.supervision.end_after = None;
    let engine = Arc::new(Engine::open_with(store, config).await.unwrap());
    faulty.hang(true);
    let starter = engine.clone();
    let started = tokio::spawn(async move { starter.start_document(WAITS, NewRun::default()).await });
    within(async {
        while engine.silent_parts().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    faulty.hang(false);
    within(started).await.unwrap().unwrap();
    within(async {
        while !engine.silent_parts().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(engine.failure(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_panics_is_a_failure() {
    for (call, part) in [("commit", "committer"), ("project", "projector")] {
        let faulty = Faulty::slow(Duration::ZERO);
        let engine = Engine::open_with(faulty.clone(), config()).await.unwrap();
        faulty.panic_in(call);
        // Its answer may never come, or say that nobody takes it.
        let started = engine.start_document(WAITS, NewRun::default());
        let (failure, _) = within(futures::future::join(engine.failed(), started)).await;
        assert_eq!(failure.to_string(), format!("the {part} panicked: `{call}`, as the test wants it"));
    }
}
