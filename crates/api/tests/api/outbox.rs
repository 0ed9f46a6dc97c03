//! What is owed to others and what was given up; what receivers are sent.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use milepost_api::Settings;
use milepost_engine::{Config, Egress, OutboxConfig, PushConfig};
use serde_json::{Value, json};

use super::Api;

/// What a receiver is like.
#[derive(Clone)]
struct Receiver {
    url: String,
    status: Arc<Mutex<StatusCode>>,
    received: Arc<Mutex<Vec<Value>>>,
}

impl Receiver {
    async fn answering(status: StatusCode) -> Receiver {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let receiver = Receiver { url, status: Arc::new(Mutex::new(status)), received: Arc::default() };
        let routes = Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        receiver
    }

    fn document(&self) -> Value {
        json!({"name": "pushed", "steps": {"a": {"skill": "s", "runtime": "push", "push": {"url": self.url}}}})
    }
}

async fn receive(State(receiver): State<Receiver>, body: Bytes) -> StatusCode {
    receiver.received.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
    *receiver.status.lock().unwrap()
}

async fn server(max_tries: u32) -> Api {
    let push = PushConfig { egress: Egress { private_addresses: true, proxy: None }, ..PushConfig::default() };
    Api::open(Settings::default(), Config { push, outbox: OutboxConfig { max_tries }, ..Config::default() }).await
}

/// Waits until the list is so.
async fn listed(api: &Api, query: &str, is_so: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let look = async {
        loop {
            let page = api.get(&format!("/api/v1/outbox{query}")).await;
            assert_eq!(page.status, StatusCode::OK, "{}", page.body);
            let items = page.body["items"].as_array().unwrap().clone();
            if is_so(&items) {
                return items;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), look).await.expect("the outbox comes to be so")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_is_listed_and_tried_when_asked() {
    let api = server(12).await;
    let receiver = Receiver::answering(StatusCode::TOO_MANY_REQUESTS).await;
    let runs = [api.start(&receiver.document()).await, api.start(&receiver.document()).await];
    let items = listed(&api, "?status=pending", |items| {
        items.len() == 2 && items.iter().all(|item| item["last_error"].is_string())
    })
    .await;
    assert_eq!(
        (&items[0]["kind"], &items[0]["step_id"], &items[0]["url"]),
        (&json!("push"), &json!("a"), &json!(receiver.url))
    );
    assert!(runs.iter().all(|run| items.iter().any(|item| item["run_id"] == **run)));
    assert!(!items[0].to_string().contains("lease_token"), "what proves who one is stays inside");
    let page = api.get("/api/v1/outbox?limit=1").await.body;
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = api.get(&format!("/api/v1/outbox?limit=1&cursor={cursor}")).await.body;
    assert_eq!(page["items"][0]["id"], items[0]["id"]);
    assert_eq!((&rest["items"][0]["id"], &rest["next_cursor"]), (&items[1]["id"], &Value::Null));
    assert_eq!(api.get("/api/v1/outbox?status=dead").await.body["items"], json!([]));

    *receiver.status.lock().unwrap() = StatusCode::NO_CONTENT;
    for item in &items {
        let answer = api.post(&format!("/api/v1/outbox/{}/retry", item["id"].as_str().unwrap()), &json!({})).await;
        assert!(answer.status == StatusCode::OK || answer.code() == "unknown_delivery", "{}", answer.body);
    }
    for run in runs {
        api.ended(&run).await;
    }
    listed(&api, "", <[_]>::is_empty).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_listed_and_its_step_is_retried() {
    let api = server(1).await;
    let receiver = Receiver::answering(StatusCode::BAD_GATEWAY).await;
    let run = api.start(&receiver.document()).await;
    api.ended(&run).await;
    let dead = listed(&api, "?status=dead", |items| items.len() == 1).await.remove(0);
    assert_eq!((&dead["status"], &dead["attempts"], &dead["run_id"]), (&json!("dead"), &json!(1), &json!(run)));
    assert!(dead["died_at"].is_string() && dead["last_error"].as_str().unwrap().contains("502"));
    *receiver.status.lock().unwrap() = StatusCode::NO_CONTENT;
    let path = format!("/api/v1/outbox/{}/retry", dead["id"].as_str().unwrap());
    assert_eq!(api.post(&path, &json!({})).await.body["status"], "step_retried");
    let view = async {
        while api.get(&format!("/api/v1/runs/{run}")).await.body["status"] != "completed" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), view).await.expect("the run completes");
    api.post(&path, &json!({})).await.is_problem(404, "unknown_delivery");
}

#[tokio::test]
async fn what_is_asked_wrongly_is_refused() {
    let api = server(12).await;
    api.get("/api/v1/outbox?cursor=x").await.is_problem(400, "bad_cursor");
    api.get("/api/v1/outbox?status=lost").await.is_problem(400, "bad_query");
    api.get("/api/v1/outbox?limit=0").await.is_problem(400, "bad_limit");
    api.post("/api/v1/outbox/x/retry", &json!({})).await.is_problem(404, "unknown_delivery");
    let nobody = uuid::Uuid::now_v7();
    api.post(&format!("/api/v1/outbox/{nobody}/retry"), &json!({})).await.is_problem(404, "unknown_delivery");
}

/// Receivers and workers read the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_is_sent_what_a_worker_is_given() {
    let api = server(12).await;
    let receiver = Receiver::answering(StatusCode::NO_CONTENT).await;
    let step = json!({"skill": "s", "input": {"n": 1}, "timeout_ms": 60000, "env": ["PATH"]});
    let mut document = receiver.document();
    for (name, value) in step.as_object().unwrap() {
        document["steps"]["a"][name] = value.clone();
    }
    let run = api.start(&document).await;
    api.ended(&run).await;
    api.start(&json!({"name": "pulled", "steps": {"a": step}})).await;
    let given = api.post("/api/v1/tasks/claim", &json!({"worker_id": "w"})).await.body;
    let sent = receiver.received.lock().unwrap()[0].clone();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&sent), keys(&given));
    assert_eq!(keys(&sent["context"]), keys(&given["context"]));
    for same in ["skill", "input", "step_id", "logical_attempt", "engine_attempt", "timeout_ms", "env", "secrets"] {
        assert_eq!(sent[same], given[same], "{same}");
    }
}
