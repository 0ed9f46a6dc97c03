//! Results that are kept, for their keepers.

use axum::http::StatusCode;
use milepost_core::hash::Digest;
use serde_json::{Value, json};

use super::Api;

fn document(name: &str, n: u32) -> Value {
    json!({"name": name, "defaults": {"cache": {"enabled": true}}, "steps": {
        "a": {"skill": "echo", "input": {"n": n}},
        "b": {"skill": "echo", "input": {"of": "${{ steps.a.output }}"}, "cache": {"scope": "run_only"}},
        "c": {"skill": "echo", "input": {"n": 1}},
    }})
}

/// Three runs of one workflow, one of another.
async fn filled() -> Api {
    let api = Api::new().await;
    for (name, n) in [("w", 1), ("w", 1), ("w", 2), ("x", 1)] {
        api.ended_run(&document(name, n)).await;
    }
    api
}

async fn ok(api: &Api, path: &str) -> Value {
    let answer = api.get(path).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    answer.body
}

async fn steps(api: &Api, query: &str) -> Vec<(String, u64, u64, u64)> {
    let stats = ok(api, &format!("/api/v1/cache/stats{query}")).await;
    let steps = stats["steps"].as_array().unwrap().iter();
    let of = |step: &Value, field: &str| step[field].as_u64().unwrap();
    steps
        .map(|step| {
            let name = format!("{}/{}", step["workflow"].as_str().unwrap(), step["step_id"].as_str().unwrap());
            (name, of(step, "results"), of(step, "hits"), of(step, "misses"))
        })
        .collect()
}

fn row(name: &str, results: u64, hits: u64, misses: u64) -> (String, u64, u64, u64) {
    (name.to_owned(), results, hits, misses)
}

#[tokio::test]
async fn hits_and_misses_are_counted_step_by_step() {
    let api = filled().await;
    let of_w = [row("w/a", 2, 1, 2), row("w/b", 0, 0, 3), row("w/c", 1, 2, 1)];
    assert_eq!(steps(&api, "?workflow=w").await, of_w);
    assert_eq!(steps(&api, "?workflow=w&step=c").await, of_w[2..]);
    assert_eq!(steps(&api, "").await.len(), 6);
    let total = ok(&api, "/api/v1/cache/stats?workflow=w").await;
    assert_eq!((&total["results"], &total["hits"], &total["misses"]), (&json!(3), &json!(3), &json!(6)));
    assert_eq!((&total["hit_ratio"], total["bytes"].as_u64()), (&json!(0.3333), Some(21)));
    let nothing = ok(&api, "/api/v1/cache/stats?workflow=nobody").await;
    assert_eq!((&nothing["hit_ratio"], &nothing["steps"]), (&Value::Null, &json!([])));
    api.get("/api/v1/cache/stats?step=a").await.is_problem(400, "bad_query");
    api.get("/api/v1/cache/stats?workflow=").await.is_problem(400, "bad_query");
}

#[tokio::test]
async fn results_are_listed_in_pages_and_shown_with_what_they_are_made_of() {
    let api = filled().await;
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = ok(&api, &format!("/api/v1/cache?limit=2{cursor}")).await;
        seen.extend(page["items"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let names: Vec<_> = seen.iter().map(|item| (item["workflow"].clone(), item["step_id"].clone())).collect();
    let named = |workflow: &str, step: &str| (json!(workflow), json!(step));
    assert_eq!(names, [named("w", "a"), named("w", "a"), named("w", "c"), named("x", "a"), named("x", "c")]);
    let (key, item) = (seen[2]["key"].as_str().unwrap(), &seen[2]);
    assert_eq!((&item["scope"], &item["trust"], &item["hits"]), (&json!("global"), &json!("open"), &json!(2)));
    assert!(item["last_hit_at"].is_string() && item.get("run_id").is_none(), "{item}");
    let by_key = ok(&api, &format!("/api/v1/cache?key={}", &key[..8])).await;
    assert_eq!(by_key["items"][0]["key"], key);

    let shown = ok(&api, &format!("/api/v1/cache/{key}")).await;
    assert_eq!(Digest::of(shown["made_of"].to_string().as_bytes()).to_string(), key, "the key is its hash");
    assert_eq!((&shown["made_of"]["step"], &shown["made_of"]["input"]), (&json!("c"), &json!({"n": 1})));
    let result = &shown["items"][0];
    assert_eq!((&result["output_preview"], &result["output_is_cut"]), (&json!(r#"{"n":1}"#), &json!(false)));
    assert_eq!(result["hits"], 2);

    api.get("/api/v1/cache?cursor=x").await.is_problem(400, "bad_cursor");
    api.get("/api/v1/cache?limit=0").await.is_problem(400, "bad_limit");
    api.get("/api/v1/cache?key=abc").await.is_problem(400, "bad_key");
    api.get("/api/v1/cache?key=abcdef&workflow=w").await.is_problem(400, "bad_query");
    api.get("/api/v1/cache/abc").await.is_problem(404, "unknown_key");
    api.get(&format!("/api/v1/cache/{}", "0".repeat(64))).await.is_problem(404, "unknown_key");
}

#[tokio::test]
async fn a_large_output_is_shown_by_its_beginning() {
    let api = Api::new().await;
    let text = "é".repeat(2000);
    let large = json!({"name": "l", "steps": {"s": {"skill": "echo", "input": text, "cache": {"enabled": true}}}});
    api.ended_run(&large).await;
    let key = ok(&api, "/api/v1/cache").await["items"][0]["key"].as_str().unwrap().to_owned();
    let result = ok(&api, &format!("/api/v1/cache/{key}")).await["items"][0].clone();
    assert_eq!((result["bytes"].as_u64(), &result["output_is_cut"]), (Some(4002), &json!(true)));
    assert_eq!(result["output_preview"].as_str().unwrap().chars().count(), 1000);
}

#[tokio::test]
async fn what_is_evicted_is_made_again_and_counted_on() {
    let api = filled().await;
    api.delete("/api/v1/cache").await.is_problem(400, "needs_filter");
    api.delete("/api/v1/cache?all=true&workflow=w").await.is_problem(400, "bad_query");
    api.delete("/api/v1/cache?step=a").await.is_problem(400, "bad_query");
    assert_eq!(api.delete("/api/v1/cache?workflow=w&step=c").await.body, json!({"evicted": 1}));
    assert_eq!(api.delete("/api/v1/cache?workflow=w&step=c").await.body, json!({"evicted": 0}));
    api.ended_run(&document("w", 1)).await;
    assert_eq!(steps(&api, "?workflow=w&step=c").await, [row("w/c", 1, 2, 2)]);
    let key = ok(&api, "/api/v1/cache?workflow=w&step=c").await["items"][0]["key"].as_str().unwrap().to_owned();
    assert_eq!(api.delete(&format!("/api/v1/cache/{key}")).await.body, json!({"evicted": 1}));
    api.delete(&format!("/api/v1/cache/{key}")).await.is_problem(404, "unknown_key");
    let still_known = ok(&api, &format!("/api/v1/cache/{key}")).await;
    assert_eq!((&still_known["items"], &still_known["made_of"]["step"]), (&json!([]), &json!("c")));
    assert_eq!(api.delete("/api/v1/cache?all=true").await.body, json!({"evicted": 4}));
    assert_eq!(ok(&api, "/api/v1/cache").await["items"], json!([]));
    assert_eq!(steps(&api, "?workflow=w&step=a").await, [row("w/a", 0, 2, 2)], "what was counted stays");
}

#[tokio::test]
async fn what_is_disowned_is_made_again() {
    let api = filled().await;
    let disown = async |body: Value| api.post("/api/v1/cache/disown", &body).await;
    let answer = disown(json!({"workflow": "w", "step": "c"})).await;
    assert_eq!(answer.body, json!({"workflow": "w", "step_id": "c", "epoch": 1, "results": 1}));
    assert_eq!(disown(json!({"workflow": "w"})).await.body["epoch"], 1);
    assert_eq!(disown(json!({"workflow": "w"})).await.body["epoch"], 2);
    api.ended_run(&document("w", 1)).await;
    api.ended_run(&document("x", 1)).await;
    assert_eq!(steps(&api, "?workflow=w&step=a").await, [row("w/a", 3, 1, 3)]);
    assert_eq!(steps(&api, "?workflow=x&step=a").await, [row("x/a", 1, 1, 1)], "the other one is as it was");
    disown(json!({"workflow": ""})).await.is_problem(422, "bad_name");
    disown(json!({"workflow": "w", "step": ""})).await.is_problem(422, "bad_name");
    disown(json!({})).await.is_problem(422, "bad_body");
}
