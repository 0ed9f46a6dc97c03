//! Runs that are patched while they run.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Api;

/// Waits, then goes on with two more.
fn three() -> Value {
    json!({"name": "three", "steps": {
        "gate": {"skill": "wait", "input": {"signal": "go"}},
        "then": {"skill": "echo", "depends_on": ["gate"]},
        "last": {"skill": "echo", "depends_on": ["then"]},
    }})
}

fn more() -> Value {
    json!([{"op": "add", "path": "/steps/also", "value": {"skill": "echo", "input": {"n": 1}, "depends_on": ["gate"]}},
           {"op": "remove", "path": "/steps/last"}])
}

async fn go(api: &Api, run: &str) {
    api.post(&format!("/api/v1/runs/{run}/signals"), &json!({"type": "go"})).await;
    api.ended(run).await;
}

#[tokio::test]
async fn a_run_is_previewed_patched_and_ends_with_the_new_steps() {
    let api = Api::new().await;
    let run = api.start(&three()).await;
    let path = format!("/api/v1/runs/{run}/patch");
    let preview = api.post(&format!("{path}/preview"), &json!({"ops": more()})).await;
    assert_eq!((preview.status, &preview.body["fits"]), (StatusCode::OK, &json!(true)), "{}", preview.body);
    let body = json!({"ops": more(), "message": "one more"});
    let patched = api.post_with(&path, &[("milepost-actor", "ada")], &body).await;
    assert_eq!(patched.status, StatusCode::ACCEPTED, "{}", patched.body);
    for list in ["kept", "new", "changed", "removed", "orphaned", "rerun"] {
        assert_eq!(preview.body[list], patched.body[list], "{list}");
    }
    assert_eq!((&patched.body["new"], &patched.body["removed"]), (&json!(["also"]), &json!(["last"])));
    let events = api.get(&format!("/api/v1/runs/{run}/events")).await.body;
    let event = events["items"].as_array().unwrap().iter().find(|event| event["event_type"] == "RunPatched").unwrap();
    assert_eq!((&event["data"]["message"], &event["data"]["actor"]), (&json!("one more"), &json!("ada")));
    assert_eq!((&event["data"]["ops"], &event["caused_by_signal_id"]), (&more(), &patched.body["patch_id"]));
    go(&api, &run).await;
    let view = api.get(&format!("/api/v1/runs/{run}")).await.body;
    assert_eq!((&view["status"], &view["steps_total"]), (&json!("completed"), &json!(3)));
    assert_eq!(view["output"], json!({"also": {"n": 1}, "then": {}}));
    let before = api.get(&format!("/api/v1/runs/{run}/at/2")).await.body;
    let ids: Vec<&str> =
        before["steps"].as_array().unwrap().iter().map(|step| step["step_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["gate", "then", "last"]);
    let gone = api.get(&format!("/api/v1/runs/{run}/steps/last")).await.body;
    assert_eq!((&gone["status"], &gone["skip_reason"]), (&json!("skipped"), &json!("removed")));
    api.post(&path, &json!({"ops": more()})).await.is_problem(409, "run_ended");
}

#[tokio::test]
async fn what_has_begun_keeps_a_patch_away() {
    let api = Api::new().await;
    let run = api.start(&three()).await;
    let path = format!("/api/v1/runs/{run}/patch");
    let ops = json!([{"op": "replace", "path": "/steps/gate/input", "value": {"signal": "stop"}}]);
    let refused = api.post(&path, &json!({"ops": ops})).await;
    refused.is_problem(409, "step_started");
    assert!(refused.body["detail"].as_str().unwrap().contains("`gate`"));
    let preview = api.post(&format!("{path}/preview"), &json!({"ops": ops})).await.body;
    assert_eq!((&preview["fits"], &preview["refusal"]["code"]), (&json!(false), &json!("step_started")));
}

#[tokio::test]
async fn a_patch_that_does_not_fit_is_refused() {
    let api = Api::new().await;
    let run = api.start(&three()).await;
    let path = format!("/api/v1/runs/{run}/patch");
    for end in ["", "/preview"] {
        let post = async |ops: Value| api.post(&format!("{path}{end}"), &json!({ "ops": ops })).await;
        post(json!([{"op": "test", "path": "/steps/then/skill", "value": "x"}])).await.is_problem(422, "patch_failed");
        post(json!([])).await.is_problem(422, "patch_failed");
        post(json!([{"op": "remove", "path": "/steps/then"}])).await.is_problem(422, "invalid_document");
        api.post(&format!("{path}{end}"), &json!({"patch": []})).await.is_problem(422, "bad_body");
        let nobody = format!("/api/v1/runs/01a1defb-20b0-76b2-bcac-6128b7360903/patch{end}");
        api.post(&nobody, &json!({"ops": more()})).await.is_problem(404, "unknown_run");
    }
    assert_eq!(api.get(&format!("/api/v1/runs/{run}")).await.body["last_event_seq"], 3);
}

#[tokio::test]
async fn the_same_patch_twice_is_one_and_what_was_meant_for_before_is_refused() {
    let api = Api::new().await;
    let run = api.start(&three()).await;
    let path = format!("/api/v1/runs/{run}/patch");
    let etag = api.get(&format!("/api/v1/runs/{run}")).await.headers["etag"].to_str().unwrap().to_owned();
    let headers = [("idempotency-key", "once"), ("if-match", etag.as_str())];
    let first = api.post_with(&path, &headers, &json!({"ops": more()})).await;
    let again = api.post_with(&path, &headers, &json!({"ops": more()})).await;
    assert_eq!((first.status, again.status), (StatusCode::ACCEPTED, StatusCode::OK), "{}", again.body);
    assert_eq!((&first.body["patch_id"], &first.body["new"]), (&again.body["patch_id"], &again.body["new"]));
    let late = api.post_with(&path, &[("if-match", &etag)], &json!({"ops": more()})).await;
    late.is_problem(412, "precondition_failed");
}

#[tokio::test]
async fn a_patch_is_undone() {
    let api = Api::new().await;
    let run = api.start(&three()).await;
    let path = format!("/api/v1/runs/{run}/patch");
    let undo = format!("{path}/undo");
    api.send(super::request("POST", &undo, &[], "")).await.is_problem(404, "unknown_patch");
    let patched = api.post(&path, &json!({"ops": more()})).await.body;
    let undone = api.post(&undo, &json!({"undoes": patched["patch_id"], "message": "no"})).await;
    assert_eq!((undone.status, &undone.body["removed"]), (StatusCode::ACCEPTED, &json!(["also"])), "{}", undone.body);
    assert_eq!(undone.body["new"], json!(["last"]));
    api.post(&path, &json!({"ops": [{"op": "add", "path": "/steps/now", "value": {"skill": "noop"}}]})).await;
    // It may begin at any moment; once it has ended, it has begun.
    while api.get(&format!("/api/v1/runs/{run}")).await.body["steps_done"] != 1 {
        tokio::task::yield_now().await;
    }
    api.post(&undo, &json!({})).await.is_problem(409, "patch_touched");
}
