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

fn half() -> serde_json::Value {
    json!({
        "name": "half",
        "defaults": {"cache": {"enabled": true}},
        "steps": {
            "a": {"skill": "echo", "input": {"n": "${{ payload.a }}"}},
            "b": {"skill": "fail", "input": {"times": "${{ payload.times }}", "of": "${{ steps.a.output.n }}"}},
        },
        "changes": {"fix": {"replace": "/times"}, "set": {"merge": ""}, "full_rebuild": {"rebuild": "all"},
            "b.again": {"rebuild": ["b"]}, "art": {"merge": "/art"}, "art.swap": {"replace": "/art/cover"}},
    })
}

/// The steps of the run that a body starts: `a skipped, b completed`.
async fn steps_of(api: &Api, body: &serde_json::Value) -> (String, String) {
    let answer = api.post("/api/v1/runs", body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    let run = answer.body["run_id"].as_str().unwrap().to_owned();
    api.ended(&run).await;
    let shown = api.get(&format!("/api/v1/runs/{run}")).await.body;
    let step = |step: &serde_json::Value| format!("{} {}", step["step_id"], step["status"]).replace('"', "");
    (run, shown["steps"].as_array().unwrap().iter().map(step).collect::<Vec<_>>().join(", "))
}

#[tokio::test]
async fn changes_in_order_chains_and_rebuilds_run_what_they_touch() {
    let api = Api::new().await;
    let first = json!({ "document": half(), "payload": {"a": 1, "times": 9} });
    let (base, steps) = steps_of(&api, &first).await;
    assert_eq!(steps, "a completed, b failed");
    let changes = json!([{"type": "fix", "payload": 5}, {"type": "set", "payload": {"times": 0}}]);
    let (second, steps) = steps_of(&api, &json!({ "base_run_id": base, "changes": changes })).await;
    assert_eq!(steps, "a skipped, b completed");
    let (third, steps) = steps_of(&api, &json!({ "base_run_id": second })).await;
    assert_eq!(steps, "a skipped, b skipped");
    let of_third = |more: serde_json::Value| {
        let mut body = json!({ "base_run_id": third });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (more, expected) in [
        (json!({ "changes": [{"type": "b.again"}] }), "a skipped, b completed"),
        (json!({ "changes": [{"type": "full_rebuild"}] }), "a completed, b completed"),
        (json!({ "rebuild": ["a"] }), "a completed, b skipped"),
        (json!({ "rebuild": ["a"], "changes": [{"type": "b.again"}] }), "a completed, b completed"),
        (json!({ "rebuild": "all" }), "a completed, b completed"),
    ] {
        assert_eq!(steps_of(&api, &of_third(more.clone())).await.1, expected, "{more}");
    }
    let new = json!({ "document": half(), "payload": {"a": 1, "times": 0}, "rebuild": ["b"] });
    assert_eq!(steps_of(&api, &new).await.1, "a skipped, b completed");
    let mut newer = half();
    newer["steps"]["b"]["input"]["more"] = json!(1);
    assert_eq!(steps_of(&api, &of_third(json!({ "document": newer }))).await.1, "a skipped, b completed");
    api.post("/api/v1/workflows", &json!({ "document": newer })).await;
    assert_eq!(steps_of(&api, &of_third(json!({ "workflow": "half" }))).await.1, "a skipped, b skipped");
}

#[tokio::test]
async fn what_cannot_be_changed_or_rebuilt_is_named() {
    let api = Api::new().await;
    let base = steps_of(&api, &json!({ "document": half(), "payload": {"a": 1, "times": 0} })).await.0;
    for (more, code, said) in [
        (json!({ "changes": [{"type": "fixx"}] }), "unknown_change", "It declares art, art.swap, b.again, fix, "),
        (json!({ "changes": [{"type": "art"}] }), "change_failed", "nothing at `/art`"),
        (json!({ "changes": [{"type": "art.swap"}] }), "change_failed", "it has a, times"),
        (json!({ "rebuild": ["c"] }), "unknown_step", "no step `c`"),
        (json!({ "rebuild": "a" }), "bad_rebuild", "one step is a list of one"),
    ] {
        let mut body = json!({ "base_run_id": base });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        for path in ["/api/v1/runs", "/api/v1/runs/plan"] {
            let answer = api.post(path, &body).await;
            answer.is_problem(422, code);
            assert!(answer.body["detail"].as_str().unwrap().contains(said), "{}", answer.body);
        }
    }
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

#[tokio::test]
async fn a_plan_tells_what_is_reused_and_why_the_rest_runs() {
    let api = Api::new().await;
    let base = steps_of(&api, &json!({ "document": half(), "payload": {"a": 1, "times": 0} })).await.0;
    let same = api.post("/api/v1/runs/plan", &json!({ "base_run_id": base })).await.body;
    assert_eq!(same["counts"], json!({"run": 0, "reuse": 2, "unknown": 0, "skip": 0}), "{same}");
    assert_eq!((&same["predicted_ms"], &same["base_run_id"]), (&json!(0), &json!(base)));
    let step = &same["steps"][0];
    assert_eq!((&step["decision"], &step["reason"]), (&json!("reuse"), &json!("cached")));
    assert!(step["cache_key"].is_string() && step["input_hash"].is_string() && step["saved_ms"].is_u64(), "{step}");
    let changes = json!([{"type": "set", "payload": {"a": 2}}]);
    let changed = api.post("/api/v1/runs/plan", &json!({ "base_run_id": base, "changes": changes })).await.body;
    assert_eq!(changed["counts"], json!({"run": 1, "reuse": 0, "unknown": 1, "skip": 0}), "{changed}");
    let (a, b) = (&changed["steps"][0], &changed["steps"][1]);
    assert_eq!((&a["reason"], &a["message"]), (&json!("no_result"), &json!("`n` of its input changed")));
    assert_eq!((&b["reason"], &b["upstream"]), (&json!("upstream"), &json!(["a"])));
    let rebuilt = json!({ "document": half(), "payload": {"a": 1, "times": 0}, "rebuild": ["b"] });
    let rebuilt = api.post("/api/v1/runs/plan", &rebuilt).await.body;
    assert_eq!(rebuilt["steps"][1]["reason"], "rebuild", "{rebuilt}");
    assert_eq!(api.get("/api/v1/runs").await.body["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn an_explanation_names_what_changed_and_whose_result_it_is() {
    let api = Api::new().await;
    let base = steps_of(&api, &json!({ "document": half(), "payload": {"a": 1, "times": 0} })).await.0;
    let changes = json!([{"type": "fix", "payload": 0}, {"type": "set", "payload": {"a": 2}}]);
    let update = steps_of(&api, &json!({ "base_run_id": base, "changes": changes })).await.0;
    let why = async |run: &str, step: &str| api.get(&format!("/api/v1/runs/{run}/steps/{step}/explain")).await;
    let ran = why(&update, "a").await.body;
    assert_eq!((&ran["decision"], &ran["reason"]), (&json!("ran"), &json!("changed")), "{ran}");
    assert_eq!(ran["message"], "ran because `n` of its input changed");
    assert_eq!(ran["differences"], json!([{"part": "input", "path": "/n", "before": 1, "after": 2}]));
    assert_eq!((&ran["nearest"]["run_id"], &ran["nearest"]["of_base_run"]), (&json!(base), &json!(true)));
    assert_eq!(ran["preimage"]["input"], json!({"n": 2}));
    let again = steps_of(&api, &json!({ "base_run_id": update })).await.0;
    let reused = why(&again, "a").await.body;
    assert_eq!((&reused["decision"], &reused["result"]["run_id"]), (&json!("reused"), &json!(update)), "{reused}");
    why(&again, "c").await.is_problem(404, "unknown_step");
    why("01a1defb-20b0-76b2-bcac-6128b7360903", "a").await.is_problem(404, "unknown_run");
}
