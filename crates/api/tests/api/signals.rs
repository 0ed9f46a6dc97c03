//! Words to runs.

use axum::http::StatusCode;
use serde_json::json;

use super::{Api, failing, waiting};

#[tokio::test]
async fn a_signal_lets_a_waiting_step_go_on() {
    let api = Api::new().await;
    let run = api.start(&waiting()).await;
    let sent = api.post(&format!("/api/v1/runs/{run}/signals"), &json!({"type": "go", "payload": {"by": "Ada"}})).await;
    assert_eq!((sent.status, &sent.body["accepted"]), (StatusCode::ACCEPTED, &json!(true)));
    api.ended(&run).await;
    assert_eq!(api.get(&format!("/api/v1/runs/{run}")).await.body["output"], json!({"gate": {"by": "Ada"}}));
}

#[tokio::test]
async fn the_same_signal_twice_is_one() {
    let api = Api::new().await;
    let run = api.start(&waiting()).await;
    let path = format!("/api/v1/runs/{run}/signals");
    let body = json!({"type": "PAUSE", "signal_id": "01a1defb-20b0-76b2-bcac-6128b7360903"});
    let key = [("idempotency-key", "once")];
    for _ in 0..2 {
        assert_eq!(api.post(&path, &body).await.status, StatusCode::ACCEPTED);
        assert_eq!(api.post_with(&path, &key, &json!({"type": "note"})).await.status, StatusCode::ACCEPTED);
    }
    let events = api.get(&format!("/api/v1/runs/{run}/events")).await.body;
    let accepted = events["items"].as_array().unwrap().iter().filter(|event| event["event_type"] == "SignalAccepted");
    assert_eq!(accepted.count(), 2);
}

#[tokio::test]
async fn the_short_forms_need_no_body() {
    let api = Api::new().await;
    let run = api.start(&waiting()).await;
    for (verb, status) in [("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")] {
        let path = format!("/api/v1/runs/{run}/{verb}");
        let answer = api.send(super::request("POST", &path, &[], "")).await;
        assert_eq!((answer.status, &answer.body["status"]), (StatusCode::ACCEPTED, &json!(status)), "{}", answer.body);
    }
    api.post(&format!("/api/v1/runs/{run}/pause"), &json!({})).await.is_problem(409, "run_ended");
}

#[tokio::test]
async fn a_run_that_went_on_refuses_what_was_meant_for_before() {
    let api = Api::new().await;
    let run = api.start(&waiting()).await;
    let etag = api.get(&format!("/api/v1/runs/{run}")).await.headers["etag"].to_str().unwrap().to_owned();
    let (path, seen) = (format!("/api/v1/runs/{run}/pause"), [("if-match", etag.as_str())]);
    assert_eq!(api.post_with(&path, &seen, &json!({})).await.status, StatusCode::ACCEPTED);
    let cancel = api.post_with(&format!("/api/v1/runs/{run}/cancel"), &seen, &json!({})).await;
    cancel.is_problem(412, "precondition_failed");
    assert_eq!(api.get(&format!("/api/v1/runs/{run}")).await.body["status"], "paused");
}

#[tokio::test]
async fn failed_steps_are_tried_again() {
    let api = Api::new().await;
    let run = api.ended_run(&failing()).await;
    let path = format!("/api/v1/runs/{run}/retry");
    assert_eq!(api.post(&path, &json!({})).await.status, StatusCode::ACCEPTED);
    api.ended(&run).await;
    assert_eq!(api.get(&format!("/api/v1/runs/{run}")).await.body["status"], "completed");
    api.post(&path, &json!({})).await.is_problem(409, "nothing_failed");
}

/// Whatever the caller calls it by, each failed step has a signal of its own, and the same call again changes nothing.
#[tokio::test]
async fn a_retry_with_an_id_reaches_every_failed_step_once() {
    let bad = json!({"skill": "fail", "input": {"times": 1, "code": "broken", "retryable": false}});
    let document = json!({"name": "failing", "on_failure": "continue", "steps": {"a": bad, "b": bad, "c": bad}});
    let id = "01a1defb-2230-7772-a9d6-506d39a96b23";
    for (headers, body) in [(&[("idempotency-key", "k1")][..], json!({})), (&[], json!({"signal_id": id}))] {
        let api = Api::new().await;
        let run = api.ended_run(&document).await;
        let path = format!("/api/v1/runs/{run}/retry");
        let first = api.post_with(&path, headers, &body).await;
        assert_eq!(first.status, StatusCode::ACCEPTED, "{}", first.body);
        if let Some(id) = body.get("signal_id") {
            assert_eq!(&first.body["signal_id"], id);
        }
        api.ended(&run).await;
        let ended = api.get(&format!("/api/v1/runs/{run}")).await.body;
        assert_eq!(ended["status"], "completed", "{ended}");
        let again = api.post_with(&path, headers, &body).await;
        assert_eq!((again.status, &again.body["signal_id"]), (StatusCode::ACCEPTED, &first.body["signal_id"]));
        let after = api.get(&format!("/api/v1/runs/{run}")).await.body;
        assert_eq!(after["last_event_seq"], ended["last_event_seq"], "nothing was recorded");
        api.post(&path, &json!({})).await.is_problem(409, "nothing_failed");
    }
}

#[tokio::test]
async fn a_signal_that_does_not_fit_is_refused() {
    let api = Api::new().await;
    let run = api.start(&waiting()).await;
    let path = format!("/api/v1/runs/{run}/signals");
    api.post(&path, &json!({"type": "RETRY_STEP", "step_id": "gaet"})).await.is_problem(404, "unknown_step");
    api.post(&path, &json!({"typ": "go"})).await.is_problem(422, "bad_body");
    let nobody = "/api/v1/runs/01a1defb-20b0-76b2-bcac-6128b7360903/signals";
    api.post(nobody, &json!({"type": "go"})).await.is_problem(404, "unknown_run");
}
