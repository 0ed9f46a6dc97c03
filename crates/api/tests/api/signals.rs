//! Words to runs.

use axum::http::StatusCode;
use milepost_engine::{Config, Engine};
use serde_json::json;

use super::{Api, failing, one_persons, waiting};

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

/// So many more that a run no longer remembers the ids of those before.
async fn flood(api: &Api, run: &str) {
    let run = milepost_core::id::RunId(run.parse().unwrap());
    let send = |_| {
        let engine = api.engine.clone();
        tokio::spawn(async move { engine.signal(run, Engine::new_signal("note")).await.unwrap() })
    };
    for task in (0..1001).map(send).collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_signal_that_is_sent_again_is_answered_as_the_first_time_however_long_ago_that_was() {
    let mut config = Config::default();
    (config.limits.signals_per_minute, config.limits.buffered_signals) = (100_000, 100_000);
    let api = Api::open(one_persons(), config).await;
    let run = api.start(&waiting()).await;
    let path = format!("/api/v1/runs/{run}/signals");
    let (taken, refused) = ("01a1defb-20b0-76b2-bcac-6128b7360903", "01a1defb-20b0-76b2-bcac-6128b7360904");
    let note = json!({"type": "note", "signal_id": taken, "payload": {"n": 1, "m": [2]}});
    let resume = json!({"type": "RESUME", "signal_id": refused});
    let first = api.post(&path, &note).await;
    let no = api.post(&path, &resume).await;
    assert_eq!((first.status, &first.body["status"]), (StatusCode::ACCEPTED, &json!("running")));
    no.is_problem(409, "signal_rejected");
    let same = async |api: &Api, when: &str| {
        // The same, written in another way.
        let again = json!({"type": "note", "signal_id": taken, "payload": {"m": [2], "n": 1}});
        let again = api.post(&path, &again).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{when}");
        let again = api.post(&path, &resume).await;
        assert_eq!((again.status, &again.body["detail"]), (no.status, &no.body["detail"]), "{when}");
        for other in [
            json!({"type": "note", "signal_id": taken}),
            json!({"type": "other", "signal_id": taken, "payload": {"n": 1, "m": [2]}}),
            json!({"type": "note", "signal_id": taken, "step_id": "gate", "payload": {"n": 1, "m": [2]}}),
            json!({"type": "RESUME", "signal_id": refused, "payload": {"n": 1}}),
            json!({"type": "PAUSE", "signal_id": refused}),
        ] {
            api.post(&path, &other).await.is_problem(422, "signal_id_reused");
        }
    };
    same(&api, "at once").await;
    flood(&api, &run).await;
    let ended = api.get(&format!("/api/v1/runs/{run}")).await.body["last_event_seq"].clone();
    same(&api, "after a thousand others").await;
    assert_eq!(api.get(&format!("/api/v1/runs/{run}")).await.body["last_event_seq"], ended, "nothing is recorded");
    assert_eq!(api.post(&path, &json!({"type": "go"})).await.status, StatusCode::ACCEPTED, "what is new is taken");
    api.ended(&run).await;
    same(&api, "after the end").await;
    let api = api.again().await;
    same(&api, "after a restart").await;
    // What was refused without a trace is refused again.
    let late = json!({"type": "note", "signal_id": "01a1defb-20b0-76b2-bcac-6128b7360905"});
    api.post(&path, &late).await.is_problem(409, "run_ended");
    api.post(&path, &late).await.is_problem(409, "run_ended");
}

#[tokio::test]
async fn an_id_of_a_signal_is_found_in_the_log_of_a_run_that_was_patched() {
    let api = Api::new().await;
    let run = api.start(&waiting()).await;
    let path = format!("/api/v1/runs/{run}/signals");
    let pause = json!({"type": "PAUSE", "signal_id": "01a1defb-20b0-76b2-bcac-6128b7360903"});
    let first = api.post(&path, &pause).await;
    let ops = json!({"ops": [{"op": "add", "path": "/steps/more", "value": {"skill": "noop"}}]});
    assert!(api.post(&format!("/api/v1/runs/{run}/patch"), &ops).await.status.is_success());
    assert_eq!(api.post(&path, &json!({"type": "RESUME"})).await.status, StatusCode::ACCEPTED);
    let again = api.post(&path, &pause).await;
    assert_eq!((again.status, &again.body, &again.body["status"]), (first.status, &first.body, &json!("paused")));
    let other = json!({"type": "CANCEL", "signal_id": "01a1defb-20b0-76b2-bcac-6128b7360903"});
    api.post(&path, &other).await.is_problem(422, "signal_id_reused");
}
