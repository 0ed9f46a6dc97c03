//! One word to many runs.

use axum::http::StatusCode;
use serde_json::json;

use super::{Api, echo, failing, waiting};

#[tokio::test]
async fn a_dry_run_only_counts() {
    let api = Api::new().await;
    for _ in 0..3 {
        api.start(&waiting()).await;
    }
    api.ended_run(&echo()).await;
    api.engine.flush_projections().await;
    let body = json!({"action": "cancel", "filter": {}, "dry_run": true});
    let answer = api.post("/api/v1/runs/bulk", &body).await;
    assert_eq!((answer.status, &answer.body["matched"]), (StatusCode::OK, &json!(3)), "{}", answer.body);
    let limited = json!({"action": "cancel", "filter": {"workflow": "waiting"}, "dry_run": true, "limit": 2});
    let answer = api.post("/api/v1/runs/bulk", &limited).await.body;
    assert_eq!((&answer["matched"], &answer["more"]), (&json!(2), &json!(true)));
    assert_eq!(api.get("/api/v1/runs?status=cancelled").await.body["items"], json!([]));
}

#[tokio::test]
async fn all_that_fit_are_told() {
    let api = Api::new().await;
    let mut waiting_runs = Vec::new();
    for _ in 0..5 {
        waiting_runs.push(api.start(&waiting()).await);
    }
    let other =
        api.start(&json!({"name": "other", "steps": {"gate": {"skill": "wait", "input": {"signal": "go"}}}})).await;
    api.engine.flush_projections().await;
    let body = json!({"action": "cancel", "filter": {"workflow": "waiting"}, "limit": 3, "reason": "maintenance"});
    let first = api.post("/api/v1/runs/bulk", &body).await.body;
    assert_eq!((&first["accepted"], &first["more"]), (&json!(3), &json!(true)), "{first}");
    api.engine.flush_projections().await;
    let second = api.post("/api/v1/runs/bulk", &body).await.body;
    assert_eq!((&second["accepted"], &second["more"]), (&json!(2), &json!(false)), "{second}");
    for run in &waiting_runs {
        assert_eq!(api.get(&format!("/api/v1/runs/{run}")).await.body["status"], "cancelled");
    }
    assert_eq!(api.get(&format!("/api/v1/runs/{other}")).await.body["status"], "running");
}

#[tokio::test]
async fn failed_runs_are_tried_again_together() {
    let api = Api::new().await;
    let runs = [api.ended_run(&failing()).await, api.ended_run(&failing()).await];
    let answer = api.post("/api/v1/runs/bulk", &json!({"action": "retry", "filter": {}})).await.body;
    assert_eq!(answer["accepted"], 2, "{answer}");
    for run in &runs {
        api.ended(run).await;
        assert_eq!(api.get(&format!("/api/v1/runs/{run}")).await.body["status"], "completed");
    }
}

#[tokio::test]
async fn an_action_that_fits_no_status_means_no_run() {
    let api = Api::new().await;
    api.start(&waiting()).await;
    api.engine.flush_projections().await;
    let body = json!({"action": "retry", "filter": {"status": "running"}});
    assert_eq!(api.post("/api/v1/runs/bulk", &body).await.body["matched"], 0);
    api.post("/api/v1/runs/bulk", &json!({"action": "explode", "filter": {}})).await.is_problem(422, "bad_body");
}
