//! A reader that comes back after the server was restarted misses nothing and sees nothing twice.

use std::sync::Arc;

use milepost_api::Settings;
use milepost_core::id::RunId;
use serde_json::{Value, json};

use crate::support::*;

const STEPS: usize = 12;
const RESTARTS: usize = 3;

/// A reader that remembers what it saw.
trait Reader {
    /// Reads on after what was seen, until enough was seen or the server says something else.
    async fn read(server: &Server, run: RunId, seen: &mut Vec<Value>, enough: usize) -> Self;
    /// Reads what the server had sent when it shut down.
    async fn read_rest(self, seen: &mut Vec<Value>);
}

impl Reader for Sse {
    async fn read(server: &Server, run: RunId, seen: &mut Vec<Value>, enough: usize) -> Sse {
        let last = seen.len().to_string();
        let mut sse = server.sse(run, "", &[("Last-Event-ID", &last)]).await;
        while seen.len() < enough {
            seen.push(sse.next().await.expect("the run goes on").data);
        }
        sse
    }

    async fn read_rest(mut self, seen: &mut Vec<Value>) {
        let (rest, last) = self.rest().await;
        seen.extend(rest);
        assert_eq!(last.unwrap().name.as_deref(), Some("shutdown"));
    }
}

impl Reader for Ws {
    async fn read(server: &Server, run: RunId, seen: &mut Vec<Value>, enough: usize) -> Ws {
        let mut ws = server.ws("").await;
        ws.subscribe(run, seen.len() as u64).await;
        while seen.len() < enough {
            seen.push(ws.hear().await["event"].take());
        }
        ws
    }

    async fn read_rest(mut self, seen: &mut Vec<Value>) {
        let (rest, last) = self.rest().await;
        seen.extend(rest);
        assert_eq!(u16::from(last.unwrap_err().expect("a close frame").code), 1001);
    }
}

async fn read_across_restarts<R: Reader>() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let mut server = Server::on(folder.clone(), Settings::default()).await;
    let run = server.start(&gated(STEPS)).await;
    let mut seen: Vec<Value> = Vec::new();
    for _ in 0..RESTARTS {
        server.gate.add_permits(2);
        let enough = seen.len() + 3;
        let reader = R::read(&server, run, &mut seen, enough).await;
        server.drain();
        reader.read_rest(&mut seen).await;
        server.stop().await;
        server = Server::on(folder.clone(), Settings::default()).await;
    }
    server.gate.add_permits(STEPS);
    within(server.engine.wait(run)).await.unwrap();
    let log = server.log(run).await;
    assert!(seen.len() < log.len());
    R::read(&server, run, &mut seen, log.len()).await;
    assert!(seen == log);
    assert_eq!(log.last().map(|event| &event["event_type"]), Some(&json!("RunCompleted")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_events_goes_on_after_restarts() {
    read_across_restarts::<Sse>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_of_a_websocket_goes_on_after_restarts() {
    read_across_restarts::<Ws>().await;
}
