//! Files that runs leave, and their content.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use milepost_api::Settings;
use milepost_core::hash::Digest;
use milepost_engine::Config;
use milepost_store::blobs::Blobs;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Answer, Api, request};

const HELLO: &str = "hello world";

async fn api() -> (Api, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Some(Blobs::in_folder(folder.path()));
    (Api::open(Settings::default(), Config { blobs, ..Config::default() }).await, folder)
}

fn path_of(content: &str) -> String {
    format!("/api/v1/blobs/sha256:{}", Digest::of(content.as_bytes()))
}

impl Api {
    async fn upload(&self, content: &str) -> Answer {
        self.send(request("PUT", &path_of(content), &[], content)).await
    }

    async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(request("GET", path, headers, "")).await
    }
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn content_is_stored_by_its_hash_and_had_in_parts() {
    let (api, _folder) = api().await;
    let (path, hash) = (path_of(HELLO), Digest::of(HELLO.as_bytes()).to_string());
    api.get(&path).await.is_problem(404, "unknown_blob");
    assert_eq!(api.send(request("HEAD", &path, &[], "")).await.status, StatusCode::NOT_FOUND);
    let stored = api.upload(HELLO).await;
    let expected = json!({"sha256": hash, "size_bytes": 11, "uri": format!("milepost://blobs/sha256/{hash}")});
    assert_eq!((stored.status, &stored.body), (StatusCode::CREATED, &expected));
    assert_eq!(api.upload(HELLO).await.status, StatusCode::OK);
    let posted = api.send(request("POST", "/api/v1/blobs", &[("content-type", "text/plain")], HELLO)).await;
    assert_eq!((posted.status, posted.body), (StatusCode::OK, expected));
    let head = api.send(request("HEAD", &path, &[], "")).await;
    assert_eq!((head.status, header(&head, "content-length"), &head.body), (StatusCode::OK, "11", &json!("")));
    let whole = api.get_with(&path, &[("accept-encoding", "gzip")]).await;
    assert_eq!((whole.status, &whole.body, header(&whole, "content-length")), (StatusCode::OK, &json!(HELLO), "11"));
    assert_eq!(header(&whole, "etag"), format!("\"sha256:{hash}\""));
    assert_eq!((header(&whole, "accept-ranges"), header(&whole, "content-encoding")), ("bytes", ""));
    assert_eq!(header(&whole, "content-type"), "application/octet-stream");
    assert!(header(&whole, "content-security-policy").starts_with("sandbox"), "nobody's page runs here");
    for (range, text, told) in [
        ("bytes=0-4", "hello", "bytes 0-4/11"),
        ("bytes=6-", "world", "bytes 6-10/11"),
        ("bytes=-2", "ld", "bytes 9-10/11"),
    ] {
        let part = api.get_with(&path, &[("range", range)]).await;
        assert_eq!((part.status, &part.body), (StatusCode::PARTIAL_CONTENT, &json!(text)), "{range}");
        assert_eq!((header(&part, "content-range"), header(&part, "content-length")), (told, &*text.len().to_string()));
    }
    let beyond = api.get_with(&path, &[("range", "bytes=11-")]).await;
    beyond.is_problem(416, "bad_range");
    assert_eq!(header(&beyond, "content-range"), "bytes */11");
    let tag = format!("\"sha256:{hash}\"");
    assert_eq!(api.get_with(&path, &[("if-none-match", &tag)]).await.status, StatusCode::NOT_MODIFIED);
    let other = api.get_with(&path, &[("range", "bytes=0-4"), ("if-range", "\"other\"")]).await;
    assert_eq!((other.status, other.body), (StatusCode::OK, json!(HELLO)), "a range of something else is no use");
    let empty = api.upload("").await;
    assert_eq!((empty.status, &empty.body["size_bytes"]), (StatusCode::CREATED, &json!(0)));
    assert_eq!(api.get(&path_of("")).await.status, StatusCode::OK);
}

#[tokio::test]
async fn what_lies_breaks_off_or_is_too_large_is_refused_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config { blobs: Some(Blobs::in_folder(folder.path())), ..Config::default() };
    config.limits.artifact_bytes = 100;
    let api = Api::open(Settings::default(), config).await;
    api.send(request("PUT", &path_of(HELLO), &[], "something else")).await.is_problem(422, "hash_mismatch");
    api.get(&path_of(HELLO)).await.is_problem(404, "unknown_blob");
    let long = "x".repeat(101);
    api.upload(&long).await.is_problem(413, "blob_too_large");
    let pieces = futures::stream::iter((0..30).map(|_| Ok::<_, std::io::Error>("0123456789")));
    let unmeasured = Request::builder().method("POST").uri("/api/v1/blobs").header("host", "localhost");
    api.send(unmeasured.body(Body::from_stream(pieces)).unwrap()).await.is_problem(413, "blob_too_large");
    let broken = futures::stream::iter([Ok("01234"), Err(std::io::Error::other("the line is dead"))]);
    let request_of = Request::builder().method("POST").uri("/api/v1/blobs").header("host", "localhost");
    api.send(request_of.body(Body::from_stream(broken)).unwrap()).await.is_problem(400, "upload_broken");
    api.send(request("PUT", "/api/v1/blobs/sha256:abc", &[], "x")).await.is_problem(404, "unknown_blob");
    assert_eq!(
        std::fs::read_dir(folder.path()).map_or(0, |entries| entries.flatten().filter(|e| e.path().is_file()).count()),
        0
    );
    let nowhere = Api::new().await;
    nowhere.upload(HELLO).await.is_problem(409, "no_blob_store");
}

#[tokio::test]
async fn a_folder_has_no_addresses_of_its_own() {
    let (api, _folder) = api().await;
    api.upload(HELLO).await;
    let path = format!("{}/presign", path_of(HELLO));
    let refused = api.post(&path, &json!({"method": "GET", "expires_in_s": 60})).await;
    refused.is_problem(409, "not_presignable");
    assert!(refused.body["detail"].as_str().unwrap().contains("download with GET"));
    api.post(&path, &json!({"method": "PUT"})).await.is_problem(422, "bad_body");
    api.post(&format!("{}/presign", path_of("nothing")), &json!({})).await.is_problem(404, "unknown_blob");
}

fn waiting() -> Value {
    json!({"name": "w", "steps": {"w": {"skill": "wait", "input": {"signal": "go"}}}})
}

#[tokio::test]
async fn artifacts_are_recorded_listed_and_downloaded() {
    let (api, _folder) = api().await;
    let run = api.start(&waiting()).await;
    let path = format!("/api/v1/runs/{run}/artifacts");
    let hash = Digest::of(HELLO.as_bytes()).to_string();
    let body = json!({"kind": "checkpoint", "sha256": hash, "filename": "Grüße.txt", "media_type": "text/html",
        "training_step": 7, "metadata": {"loss": 0.5}, "step_id": "w"});
    api.post(&path, &body).await.is_problem(409, "artifact_missing");
    api.upload(HELLO).await;
    let recorded = api.post(&path, &body).await;
    assert_eq!(recorded.status, StatusCode::CREATED, "{}", recorded.body);
    let id = recorded.body["artifact_id"].as_str().unwrap().to_owned();
    assert_eq!((&recorded.body["size_bytes"], &recorded.body["metadata"]), (&json!(11), &json!({"loss": 0.5})));
    assert_eq!((&recorded.body["step_id"], &recorded.body["skill"]), (&json!("w"), &json!("wait")));
    let again = api.post(&path, &body).await;
    assert_eq!((again.status, &again.body), (StatusCode::OK, &recorded.body));
    let mut other = body.clone();
    other["sha256"] = json!(null);
    other["uri"] = json!("s3://bucket/x");
    api.post(&path, &other).await.is_problem(409, "artifact_exists");
    let reference = api.post_with(&path, &[("idempotency-key", "k")], &json!({"uri": "https://example.org/x"})).await;
    assert_eq!((reference.status, &reference.body["kind"]), (StatusCode::CREATED, &json!("custom")));
    let same = api.post_with(&path, &[("idempotency-key", "k")], &json!({"uri": "https://example.org/x"})).await;
    assert_eq!((same.status, &same.body), (StatusCode::OK, &reference.body));
    let changed = api.post_with(&path, &[("idempotency-key", "k")], &json!({"uri": "https://example.org/y"})).await;
    changed.is_problem(422, "idempotency_key_reused");

    let listed = api.get(&format!("{path}?limit=1")).await.body;
    assert_eq!((&listed["items"], listed["next_cursor"].is_string()), (&json!([recorded.body]), true));
    let rest = api.get(&format!("{path}?cursor={}", listed["next_cursor"].as_str().unwrap())).await.body;
    assert_eq!((&rest["items"], &rest["next_cursor"]), (&json!([reference.body]), &Value::Null));
    assert_eq!(api.get(&format!("{path}?step=w&kind=checkpoint")).await.body["items"].as_array().unwrap().len(), 1);
    assert_eq!(api.get(&format!("{path}?kind=policy")).await.body["items"], json!([]));
    api.get(&format!("{path}?cursor=x")).await.is_problem(400, "bad_cursor");
    api.get(&format!("{path}?step=x")).await.is_problem(404, "unknown_step");
    let run_view = api.get(&format!("/api/v1/runs/{run}")).await.body;
    assert_eq!(
        (&run_view["artifacts"], &run_view["steps"][0]["artifacts"]),
        (&json!([reference.body]), &json!([recorded.body]))
    );
    let step = api.get(&format!("/api/v1/runs/{run}/steps/w")).await.body;
    assert_eq!(step["artifacts"], json!([recorded.body]));

    assert_eq!(api.get(&format!("{path}/{id}")).await.body, recorded.body);
    let content = api.get_with(&format!("{path}/{id}/content"), &[("range", "bytes=6-")]).await;
    assert_eq!((content.status, content.body.clone()), (StatusCode::PARTIAL_CONTENT, json!("world")));
    assert_eq!(header(&content, "content-type"), "text/html");
    assert_eq!(
        header(&content, "content-disposition"),
        "attachment; filename=\"Gr__e.txt\"; filename*=UTF-8''Gr%C3%BC%C3%9Fe.txt"
    );
    assert_eq!(header(&api.get(&path_of(HELLO)).await, "content-type"), "text/html", "some artifact says so");
    api.get(&format!("{path}/{id}/content?presign=true")).await.is_problem(409, "not_presignable");
    let elsewhere = reference.body["artifact_id"].as_str().unwrap();
    api.get(&format!("{path}/{elsewhere}/content")).await.is_problem(409, "content_elsewhere");
    api.get(&format!("{path}/{run}")).await.is_problem(404, "unknown_artifact");
    api.get(&format!("{path}/x")).await.is_problem(404, "unknown_artifact");
    api.get("/api/v1/runs/01a1defb-20b0-76b2-bcac-6128b7360903/artifacts").await.is_problem(404, "unknown_run");
    for bad in [json!({}), json!({"sha256": "abc"}), json!({"uri": "x"}), json!({"uri": "s3://b", "kind": ""})] {
        api.post(&path, &bad).await.is_problem(422, "bad_artifact");
    }
    api.post(&path, &json!({"uri": "s3://b", "expires_at": "soon"})).await.is_problem(422, "bad_time");
}

#[tokio::test]
async fn a_task_is_completed_with_its_files() {
    let (api, _folder) = api().await;
    let run = api.start(&json!({"name": "x", "steps": {"a": {"skill": "x"}, "b": {"skill": "x"}}})).await;
    let claim = json!({"worker_id": "w", "wait_ms": 10_000});
    let task = api.post("/api/v1/tasks/claim", &claim).await.body;
    let path = format!("/api/v1/tasks/{}/complete", task["task_id"].as_str().unwrap());
    let files = json!([{"kind": "policy", "sha256": Digest::of(HELLO.as_bytes()).to_string()}]);
    let body = json!({"lease_token": task["lease_token"], "output": 1, "artifacts": files});
    api.post(&path, &body).await.is_problem(409, "artifact_missing");
    api.upload(HELLO).await;
    for _ in 0..2 {
        assert_eq!(api.post(&path, &body).await.body, json!({"accepted": true}));
    }
    let task = api.post("/api/v1/tasks/claim", &claim).await.body;
    let result = |artifacts: Value| {
        json!({"worker_id": "w", "results": [{"task_id": task["task_id"], "lease_token": task["lease_token"],
            "outcome": "completed", "artifacts": artifacts}]})
    };
    let bad = api.post("/api/v1/worker/exchange", &result(json!([{"sha": 1}]))).await;
    assert_eq!((bad.status, &bad.body["rejected"][0]["code"]), (StatusCode::OK, &json!("bad_artifact")));
    let good = api.post("/api/v1/worker/exchange", &result(json!([{"uri": "s3://b/x"}]))).await;
    assert_eq!(good.body["rejected"], json!([]));
    api.ended(&run).await;
    let listed = api.get(&format!("/api/v1/runs/{run}/artifacts")).await.body;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn an_artifact_that_is_recorded_again_is_answered_as_the_first_time_when_its_row_is_gone() {
    let (api, _folder) = api().await;
    let run = api.ended_run(&json!({"name": "w", "steps": {"w": {"skill": "noop"}}})).await;
    let path = format!("/api/v1/runs/{run}/artifacts");
    let file = json!({"uri": "https://example.org/x", "step_id": "w", "kind": "report"});
    let first = api.post_with(&path, &[("idempotency-key", "k")], &file).await;
    assert_eq!(first.status, StatusCode::CREATED);
    let same = async |api: &Api, when: &str| {
        let again = api.post_with(&path, &[("idempotency-key", "k")], &file).await;
        assert_eq!((again.status, &again.body), (StatusCode::OK, &first.body), "{when}");
        for (field, value) in
            [("uri", json!("https://example.org/y")), ("kind", json!("other")), ("step_id", Value::Null)]
        {
            let mut other = file.clone();
            other[field] = value;
            if field == "step_id" {
                other.as_object_mut().unwrap().remove("step_id");
            }
            let other = api.post_with(&path, &[("idempotency-key", "k")], &other).await;
            other.is_problem(422, "idempotency_key_reused");
        }
    };
    same(&api, "while it is there").await;
    let gone = |api: &Api| api.sql().execute("DELETE FROM artifacts", []).unwrap();
    assert_eq!(gone(&api), 1);
    same(&api, "when it has expired").await;
    for n in 0..1001 {
        let other = json!({"uri": format!("https://example.org/{n}")});
        let key = n.to_string();
        assert_eq!(api.post_with(&path, &[("idempotency-key", &key)], &other).await.status, StatusCode::CREATED);
    }
    same(&api, "when the run has forgotten its id").await;
    assert_eq!(gone(&api), 1001);
    let api = api.again().await;
    same(&api, "after a restart").await;
}
