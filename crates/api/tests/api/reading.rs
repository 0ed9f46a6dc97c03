//! Runs, lists, logs.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{Api, echo, failing, request, waiting};

fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_run_has_an_etag_that_changes_with_its_log() {
    let api = Api::new().await;
    let run = api.start(&waiting()).await;
    let path = format!("/api/v1/runs/{run}");
    let shown = api.get(&path).await;
    let etag = shown.headers["etag"].to_str().unwrap().to_owned();
    assert_eq!(etag, format!("\"{}\"", shown.body["last_event_seq"]));
    let again = api.send(request("GET", &path, &[("if-none-match", &etag)], "")).await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);
    api.post(&format!("{path}/pause"), &json!({})).await;
    let changed = api.send(request("GET", &path, &[("if-none-match", &etag)], "")).await;
    assert_eq!((changed.status, &changed.body["status"]), (StatusCode::OK, &json!("paused")));
}

#[tokio::test]
async fn only_the_fields_that_are_wanted_are_sent() {
    let api = Api::new().await;
    let run = api.ended_run(&echo()).await;
    let shown = api.get(&format!("/api/v1/runs/{run}?fields=status,steps.step_id")).await;
    assert_eq!(shown.body, json!({"status": "completed", "steps": [{"step_id": "only"}]}));
    let summary = api.get(&format!("/api/v1/runs/{run}?fields=status,workflow")).await;
    assert_eq!(summary.body, json!({"status": "completed", "workflow": "echo"}));
    let listed = api.get("/api/v1/runs?fields=run_id").await;
    assert_eq!(listed.body["items"], json!([{ "run_id": run }]));
    api.get("/api/v1/runs?fields=run_di").await.is_problem(400, "unknown_field");
    let deep = format!("status{}", ".a".repeat(4_000));
    for path in ["/api/v1/runs".to_owned(), format!("/api/v1/runs/{run}")] {
        api.get(&format!("{path}?fields={deep}")).await.is_problem(400, "bad_fields");
    }
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let api = Api::new().await;
    let mut started = Vec::new();
    for _ in 0..5 {
        started.push(api.ended_run(&echo()).await);
    }
    started.reverse();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/api/v1/runs?limit=2{cursor}")).await.body;
        seen.extend(ids(&page).into_iter().map(ToOwned::to_owned));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, started);
}

#[tokio::test]
async fn a_list_is_filtered() {
    let api = Api::new().await;
    let done = api.ended_run(&echo()).await;
    let failed = api.ended_run(&failing()).await;
    let open = api.start(&waiting()).await;
    api.engine.flush_projections().await;
    let named = api.post("/api/v1/runs", &json!({ "document": echo(), "request_id": "named" })).await;
    let named = named.body["run_id"].as_str().unwrap().to_owned();
    api.ended(&named).await;
    let all = [&named, &open, &failed, &done];
    let created = api.get(&format!("/api/v1/runs/{open}")).await.body["created_at"].as_str().unwrap().to_owned();
    for (query, wanted) in [
        (String::new(), all.to_vec()),
        ("status=failed".to_owned(), vec![&failed]),
        ("status=failed,running".to_owned(), vec![&open, &failed]),
        ("workflow=echo".to_owned(), vec![&named, &done]),
        ("workflow=echo&status=failed".to_owned(), vec![]),
        ("request_id=named".to_owned(), vec![&named]),
        (format!("created_after={created}"), vec![&named, &open]),
        (format!("created_before={created}"), vec![&failed, &done]),
    ] {
        let page = api.get(&format!("/api/v1/runs?{query}")).await.body;
        assert_eq!(ids(&page), wanted, "{query}");
    }
}

#[tokio::test]
async fn a_query_that_does_not_fit_is_told() {
    let api = Api::new().await;
    api.get("/api/v1/runs?stauts=failed").await.is_problem(400, "bad_query");
    api.get("/api/v1/runs?status=done").await.is_problem(400, "unknown_status");
    api.get("/api/v1/runs?limit=0").await.is_problem(400, "bad_limit");
    api.get("/api/v1/runs?limit=x").await.is_problem(400, "bad_query");
    api.get("/api/v1/runs?cursor=x").await.is_problem(400, "bad_cursor");
    let run = api.ended_run(&echo()).await;
    api.get(&format!("/api/v1/runs/{run}/logs?cursor=x")).await.is_problem(400, "bad_cursor");
}

#[tokio::test]
async fn a_log_is_read_page_by_page() {
    let api = Api::new().await;
    let run = api.ended_run(&echo()).await;
    let first = api.get(&format!("/api/v1/runs/{run}/events?limit=2")).await.body;
    assert_eq!(first["items"][0]["event_type"], "RunQueued");
    assert_eq!(first["next_cursor"], "2");
    let rest = api.get(&format!("/api/v1/runs/{run}/events?after_seq=2")).await.body;
    assert_eq!(rest["items"][0]["run_seq"], 3);
    assert_eq!(rest["items"].as_array().unwrap().last().unwrap()["event_type"], "RunCompleted");
    assert_eq!(rest["next_cursor"], Value::Null);
}

#[tokio::test]
async fn the_changes_of_a_status_are_told() {
    let api = Api::new().await;
    let run = api.ended_run(&echo()).await;
    let changes = api.get(&format!("/api/v1/runs/{run}/transitions")).await.body;
    let to: Vec<&str> = changes["items"].as_array().unwrap().iter().map(|item| item["to"].as_str().unwrap()).collect();
    assert_eq!(to, ["queued", "running", "completed"]);
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let api = Api::new().await;
    let nobody = "01a1defb-20b0-76b2-bcac-6128b7360903";
    for path in ["", "/events", "/transitions"] {
        api.get(&format!("/api/v1/runs/{nobody}{path}")).await.is_problem(404, "unknown_run");
    }
    api.get("/api/v1/runs/seven").await.is_problem(404, "unknown_run");
    api.get("/api/v1/nothing").await.is_problem(404, "unknown_path");
    api.send(request("DELETE", "/api/v1/runs", &[], "")).await.is_problem(405, "wrong_method");
}

#[tokio::test]
async fn a_list_shows_what_was_just_done() {
    let api = Api::new().await;
    for _ in 0..20 {
        let run = api.start(&waiting()).await;
        assert_eq!(ids(&api.get("/api/v1/runs?limit=1").await.body), [run]);
    }
}

#[tokio::test]
async fn a_log_with_a_gap_makes_its_run_stale_and_nothing_fails() {
    let api = Api::new().await;
    let run = api.ended_run(&echo()).await;
    let path = format!("/api/v1/runs/{run}");
    let whole = api.get(&path).await;
    let sql = api.sql();
    sql.execute_batch(
        "DROP TRIGGER run_events_stay; CREATE TABLE kept AS SELECT * FROM run_events WHERE run_seq = 3;
         DELETE FROM run_events WHERE run_seq = 3;",
    )
    .unwrap();
    let stale = json!({"from_seq": 3});
    let shown = api.get(&path).await;
    assert_eq!((shown.status, &shown.body["stale"]), (StatusCode::OK, &stale), "{}", shown.body);
    assert_ne!(shown.headers["etag"], whole.headers["etag"]);
    let etag = shown.headers["etag"].to_str().unwrap();
    let again = api.send(request("GET", &path, &[("if-none-match", etag)], "")).await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);
    let fields = api.get(&format!("{path}?fields=status,stale")).await.body;
    assert_eq!(fields, json!({"status": "completed", "stale": stale}));
    assert_eq!(api.get("/api/v1/runs").await.body["items"][0]["stale"], stale);
    let last = whole.body["last_event_seq"].as_u64().unwrap();
    let then = api.get(&format!("{path}/at/{last}")).await;
    assert_eq!((then.status, &then.body["last_event_seq"], &then.body["stale"]), (StatusCode::OK, &json!(2), &stale));
    let page = api.get(&format!("{path}/events")).await.body;
    assert_eq!((page["items"].as_array().unwrap().len(), &page["stale"]), (2, &stale), "{page}");
    let behind = api.get(&format!("{path}/events?after_seq=3")).await.body;
    assert_eq!((&behind["items"][0]["run_seq"], &behind["stale"]), (&json!(4), &json!(null)));
    let short = api.get(&format!("{path}/events?limit=1")).await.body;
    assert_eq!((&short["next_cursor"], &short["stale"]), (&json!("1"), &json!(null)));
    for read in ["transitions", "logs", "artifacts", "steps/only", "steps/only/explain"] {
        let answer = api.get(&format!("{path}/{read}")).await;
        assert!(!answer.status.is_server_error(), "{read}: {}", answer.body);
    }
    let api = api.again().await;
    api.post(&format!("{path}/signals"), &json!({"type": "go"})).await.is_problem(409, "log_gap");
    sql.execute_batch("INSERT INTO run_events SELECT * FROM kept").unwrap();
    let fields = api.get(&format!("{path}?fields=status,stale")).await.body;
    assert_eq!(fields, json!({"status": "completed"}), "also who reads but a few fields notices that it has closed");
    assert_eq!(api.get(&path).await.body, whole.body);
    assert_eq!(api.get("/api/v1/runs").await.body["items"][0]["stale"], json!(null));
    assert_eq!(api.get(&format!("{path}/events")).await.body["stale"], json!(null));
}
