//! Update runs, and definitions of a run's own.

use axum::http::StatusCode;
use serde_json::json;

use super::{Api, echo};

fn campaign() -> serde_json::Value {
    json!({
        "name": "campaign",
        "steps": {"music": {"skill": "echo", "input": {"mood": "${{ payload.audio.mood }}"}}},
        "changes": {"audio.update": {"merge": "/audio"}},
    })
}

#[tokio::test]
async fn an_update_run_has_the_payload_of_its_base_with_the_changes() {
    let api = Api::new().await;
    let body = json!({ "document": campaign(), "payload": {"audio": {"mood": "calm", "length": 30}} });
    let base = api.post("/api/v1/runs", &body).await.body["run_id"].as_str().unwrap().to_owned();
    api.ended(&base).await;
    let update = json!({ "base_run_id": base, "changes": [{"type": "audio.update", "payload": {"mood": "wild"}}] });
    let answer = api.post("/api/v1/runs", &update).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    let run = answer.body["run_id"].as_str().unwrap().to_owned();
    api.ended(&run).await;
    let shown = api.get(&format!("/api/v1/runs/{run}")).await.body;
    assert_eq!((&shown["trigger_type"], &shown["base_run_id"]), (&json!("update"), &json!(base)));
    assert_eq!(shown["payload"], json!({"audio": {"mood": "wild", "length": 30}}));
    assert_eq!(shown["output"], json!({"music": {"mood": "wild"}}));
    let listed = api.get(&format!("/api/v1/runs?base_run_id={base}&fields=run_id")).await.body;
    assert_eq!(listed["items"], json!([{ "run_id": run }]));
}

#[tokio::test]
async fn a_change_that_does_not_fit_is_refused() {
    let api = Api::new().await;
    let base = api.ended_run(&echo()).await;
    let unknown = json!({ "base_run_id": base, "changes": [{"type": "audio.update"}] });
    assert_eq!(api.post("/api/v1/runs", &unknown).await.status, StatusCode::UNPROCESSABLE_ENTITY);
    api.post("/api/v1/runs", &json!({ "changes": [] })).await.is_problem(422, "no_base_run");
    let both = json!({ "base_run_id": base, "payload": {} });
    api.post("/api/v1/runs", &both).await.is_problem(422, "two_payloads");
    let nobody = json!({ "base_run_id": "01a1defb-20b0-76b2-bcac-6128b7360903" });
    api.post("/api/v1/runs", &nobody).await.is_problem(404, "unknown_run");
}

#[tokio::test]
async fn a_patch_is_for_one_run() {
    let api = Api::new().await;
    api.post("/api/v1/workflows", &json!({ "document": echo() })).await;
    let patch = json!([{"op": "replace", "path": "/steps/only/input/n", "value": 99}]);
    let answer = api.post("/api/v1/runs", &json!({ "workflow": "echo", "patch": patch })).await;
    let run = answer.body["run_id"].as_str().unwrap().to_owned();
    api.ended(&run).await;
    assert_eq!(api.get(&format!("/api/v1/runs/{run}")).await.body["output"], json!({"only": {"n": 99}}));
    let plain =
        api.post("/api/v1/runs", &json!({ "workflow": "echo" })).await.body["run_id"].as_str().unwrap().to_owned();
    api.ended(&plain).await;
    assert_eq!(api.get(&format!("/api/v1/runs/{plain}")).await.body["output"], json!({"only": {"n": 7}}));
    let failing = json!([{"op": "remove", "path": "/steps/nobody"}]);
    let refused = api.post("/api/v1/runs", &json!({ "workflow": "echo", "patch": failing })).await;
    refused.is_problem(422, "patch_failed");
    api.post("/api/v1/runs", &json!({ "patch": [] })).await.is_problem(422, "nothing_to_patch");
}

#[tokio::test]
async fn a_run_is_read_as_it_was() {
    let api = Api::new().await;
    let run = api.ended_run(&echo()).await;
    let first = api.get(&format!("/api/v1/runs/{run}/at/1")).await.body;
    assert_eq!((&first["status"], &first["last_event_seq"]), (&json!("queued"), &json!(1)));
    let last = api.get(&format!("/api/v1/runs/{run}")).await.body;
    let seq = last["last_event_seq"].as_u64().unwrap();
    assert_eq!(api.get(&format!("/api/v1/runs/{run}/at/{seq}")).await.body, last);
    for seq in ["0", "99", &u64::MAX.to_string()] {
        api.get(&format!("/api/v1/runs/{run}/at/{seq}")).await.is_problem(404, "unknown_event");
    }
    api.get(&format!("/api/v1/runs/{run}/at/x")).await.is_problem(400, "bad_path");
}

#[tokio::test]
async fn a_step_tells_its_attempts_and_its_input() {
    let api = Api::new().await;
    let run = api.ended_run(&super::failing()).await;
    api.post(&format!("/api/v1/runs/{run}/retry"), &json!({})).await;
    api.ended(&run).await;
    let step = api.get(&format!("/api/v1/runs/{run}/steps/bad")).await.body;
    let statuses: Vec<&str> =
        step["attempts"].as_array().unwrap().iter().map(|attempt| attempt["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["failed", "completed"], "{step}");
    assert_eq!(step["input"]["code"], "broken", "{step}");
    api.get(&format!("/api/v1/runs/{run}/steps/bda")).await.is_problem(404, "unknown_step");
}

#[tokio::test]
async fn a_plan_says_what_would_run_and_stores_nothing() {
    let api = Api::new().await;
    let mut document = echo();
    document["steps"]["never"] = json!({"skill": "echo", "when": "${{ payload.n > 5 }}"});
    let body = json!({ "document": document, "payload": {"n": 1} });
    let plan = api.post("/api/v1/runs/plan", &body).await;
    assert_eq!(plan.status, StatusCode::OK, "{}", plan.body);
    assert_eq!(plan.body["counts"], json!({"run": 1, "reuse": 0, "unknown": 0, "skip": 1}), "{}", plan.body);
    let hash = api.post("/api/v1/runs", &body).await;
    assert_eq!(hash.status, StatusCode::CREATED);
    let bad = json!({ "document": {"name": "x", "steps": {"a": {"skill": "nobody.has", "runtime": "inline"}}} });
    api.post("/api/v1/runs/plan", &bad).await.is_problem(422, "unknown_skill");
    assert_eq!(api.get("/api/v1/workflows").await.body["items"], json!([]));
}
