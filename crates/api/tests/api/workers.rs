//! What workers say and are told.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{Api, request};

fn one_step() -> Value {
    json!({"name": "one", "steps": {"a": {"skill": "x", "input": {"n": 1}, "timeout_ms": 60000}}})
}

async fn exchange(api: &Api, body: &Value) -> Value {
    let answer = api.post("/api/v1/worker/exchange", body).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    answer.body
}

async fn take(api: &Api) -> Value {
    exchange(api, &json!({"worker_id": "w", "capacity": 1})).await["tasks"][0].clone()
}

fn outcome(task: &Value) -> Value {
    json!({"task_id": task["task_id"], "lease_token": task["lease_token"], "outcome": "completed", "output": {"m": 2}})
}

#[tokio::test]
async fn a_task_says_all_that_a_worker_needs() {
    let api = Api::new().await;
    let run = api.start(&one_step()).await;
    let task = take(&api).await;
    let named = ["step_id", "skill", "input", "logical_attempt", "engine_attempt", "heartbeat_ms", "timeout_ms"];
    let said: Vec<&Value> = named.iter().map(|name| &task[name]).collect();
    let expected = [json!("a"), json!("x"), json!({"n": 1}), json!(1), json!(1), json!(10000), json!(60000)];
    assert_eq!(said, expected.iter().collect::<Vec<_>>());
    assert_eq!((&task["run_id"], &task["context"]["queue"]), (&json!(run), &json!("default")));
    assert_eq!((&task["secrets"], &task["env"]), (&json!({}), &json!({})));
    let open = api.get(&format!("/api/v1/tasks/{}", task["task_id"].as_str().unwrap())).await.body;
    assert_eq!((&open["status"], &open["worker_id"]), (&json!("running"), &json!("w")));
}

#[tokio::test]
async fn one_bad_item_never_spoils_the_others() {
    let api = Api::new().await;
    let run = api.start(&one_step()).await;
    let task = take(&api).await;
    let mut other = outcome(&task);
    other["task_id"] = json!("01a1defb-20b0-76b2-bcac-6128b7360903");
    let mut nonsense = outcome(&task);
    nonsense["lease_token"] = json!("nonsense");
    let answer = exchange(&api, &json!({"worker_id": "w", "results": [other, nonsense, outcome(&task)]})).await;
    let codes: Vec<&Value> = answer["rejected"].as_array().unwrap().iter().map(|item| &item["code"]).collect();
    assert_eq!(codes, ["bad_lease_token"; 2]);
    api.ended(&run).await;
    assert_eq!(api.get(&format!("/api/v1/runs/{run}")).await.body["output"], json!({"a": {"m": 2}}));
}

#[tokio::test]
async fn one_task_at_a_time_with_nothing_but_single_calls() {
    let api = Api::new().await;
    let claim = json!({"worker_id": "curl"});
    assert_eq!(api.post("/api/v1/tasks/claim", &claim).await.status, StatusCode::NO_CONTENT);
    let run = api.start(&one_step()).await;
    let task = api.post("/api/v1/tasks/claim", &claim).await.body;
    let path = |verb: &str| format!("/api/v1/tasks/{}/{verb}", task["task_id"].as_str().unwrap());
    let beat =
        json!({"lease_token": task["lease_token"], "progress": {"percent": 40}, "lines": [{"text": "half way"}]});
    let kept = api.post(&path("heartbeat"), &beat).await;
    assert_eq!((kept.status, &kept.body["directives"]), (StatusCode::OK, &json!([])));
    let open = api.get(&format!("/api/v1/tasks/{}", task["task_id"].as_str().unwrap())).await.body;
    assert_eq!(open["progress"], json!({"percent": 40}));
    let done = json!({"lease_token": task["lease_token"], "output": [1]});
    for _ in 0..2 {
        assert_eq!(api.post(&path("complete"), &done).await.body, json!({"accepted": true}));
    }
    let failed = json!({"lease_token": task["lease_token"], "error": {"code": "late", "message": "too late"}});
    api.post(&path("fail"), &failed).await.is_problem(409, "stale_attempt");
    api.post(&path("heartbeat"), &beat).await.is_problem(409, "stale_attempt");
    api.get(&format!("/api/v1/tasks/{}", task["task_id"].as_str().unwrap())).await.is_problem(404, "unknown_task");
    api.ended(&run).await;
    let logs = api.get(&format!("/api/v1/runs/{run}/logs")).await.body;
    assert_eq!(logs["items"][0]["text"], json!("half way"));
}

#[tokio::test]
async fn a_directive_names_its_task_and_tells_no_lease() {
    let api = Api::new().await;
    let run = api.start(&one_step()).await;
    let own = json!({"worker_id": "w", "worker_secret": "only this worker knows it", "capacity": 1, "wait_ms": 5000});
    let task = exchange(&api, &own).await["tasks"][0].clone();
    api.post(&format!("/api/v1/runs/{run}/pause"), &json!({})).await;
    assert_eq!(exchange(&api, &json!({"worker_id": "w"})).await["directives"], json!([]));
    let told = exchange(&api, &json!({"worker_id": "w", "worker_secret": own["worker_secret"]})).await;
    assert_eq!(told["directives"], json!([{"task_id": task["task_id"], "kind": "pause"}]));
    let lease = task["lease_token"].as_str().unwrap();
    let nonce = lease.rsplit('.').next().unwrap();
    for path in [format!("/api/v1/runs/{run}/events"), format!("/api/v1/tasks/{}", task["task_id"].as_str().unwrap())] {
        let shown = api.get(&path).await.body.to_string();
        assert!(shown.contains("\"w\"") && !shown.contains(nonce), "{path}: {shown}");
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_told() {
    let api = Api::new().await;
    for (body, code) in [
        (json!({"worker_id": ""}), "bad_name"),
        (json!({"worker_id": "w", "capacity": 1001}), "bad_body"),
        (json!({"worker_id": "w", "worker_secret": "too short"}), "bad_worker_secret"),
        (json!({"worker_id": "w", "wait_ms": 60001}), "bad_body"),
        (json!({"worker_id": "w", "colour": "red"}), "bad_body"),
        (
            json!({"worker_id": "w", "results": [{"task_id": "01a1defb-20b0-76b2-bcac-6128b7360903", "lease_token": "x",
                   "outcome": "failed"}]}),
            "bad_body",
        ),
    ] {
        api.post("/api/v1/worker/exchange", &body).await.is_problem(422, code);
    }
}

#[tokio::test]
async fn a_queue_is_limited_shown_and_set_free() {
    let api = Api::new().await;
    let put = |body: Value| {
        let request = request("PUT", "/api/v1/queues/default", &[JSON], &body.to_string());
        async { api.send(request).await }
    };
    let limits = json!({"concurrency": 1, "rate": {"limit": 100, "per_ms": 60000}});
    let set = put(limits.clone()).await;
    assert_eq!((set.status, &set.body["concurrency"]), (StatusCode::OK, &json!(1)), "{}", set.body);
    for _ in 0..2 {
        api.start(&one_step()).await;
    }
    take(&api).await;
    assert_eq!(take(&api).await, Value::Null, "no more than one at a time");
    let queue = api.get("/api/v1/queues").await.body["items"][0].clone();
    assert_eq!((&queue["waiting"], &queue["running"], &queue["rate"]), (&json!(1), &json!(1), &limits["rate"]));
    put(json!({"concurrency": 0})).await.is_problem(422, "bad_limit");
    put(json!({})).await;
    // What found no room tries again within a second.
    let waiting = json!({"worker_id": "w", "capacity": 1, "wait_ms": 30000});
    assert_eq!(exchange(&api, &waiting).await["tasks"].as_array().unwrap().len(), 1);
}

const JSON: (&str, &str) = ("content-type", "application/json");
