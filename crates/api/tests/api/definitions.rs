//! Revisions, tags and their history.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{Answer, Api, echo, request};

const PATCHES: &str = "/api/v1/workflows/echo/patches";

impl Api {
    /// With a document under its own name.
    async fn deployed() -> Api {
        let api = Api::new().await;
        let answer = api.post("/api/v1/workflows", &json!({ "document": echo() })).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        api
    }

    async fn patch(&self, value: i64) -> Answer {
        self.post(PATCHES, &ops(value)).await
    }

    async fn put_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let headers = [&[("content-type", "application/json")], headers].concat();
        self.send(request("PUT", path, &headers, &body.to_string())).await
    }

    async fn undo(&self, headers: &[(&str, &str)]) -> Answer {
        self.send(request("POST", "/api/v1/tags/echo/undo", headers, "")).await
    }

    async fn redo(&self) -> Answer {
        self.send(request("POST", "/api/v1/tags/echo/redo", &[], "")).await
    }

    async fn moves(&self) -> usize {
        self.get("/api/v1/tags/echo/history").await.body["items"].as_array().unwrap().len()
    }

    /// All that is stored of definitions, in rows.
    fn rows(&self) -> Vec<i64> {
        let count = |table: &str| {
            let sql = format!("SELECT count(*) FROM {table}");
            self.sql().query_row(&sql, [], |row| row.get(0)).unwrap()
        };
        ["cas_blobs", "revisions", "patch_chain_members", "tags", "tag_moves"].into_iter().map(count).collect()
    }
}

fn ops(value: i64) -> Value {
    json!({"ops": [{"op": "replace", "path": "/steps/only/input/n", "value": value}]})
}

fn etag(answer: &Answer) -> &str {
    answer.headers["etag"].to_str().unwrap()
}

#[tokio::test]
async fn a_patch_makes_a_revision_on_top() {
    let api = Api::deployed().await;
    let patched = api.patch(1).await;
    assert_eq!((patched.status, &patched.body["tag_version"]), (StatusCode::CREATED, &json!(2)), "{}", patched.body);
    let nothing = api.patch(1).await;
    assert_eq!((nothing.status, &nothing.body), (StatusCode::OK, &patched.body), "a patch that changes nothing");
    let id = patched.body["revision_id"].as_str().unwrap();
    let revision = api.get(&format!("/api/v1/revisions/{id}")).await.body;
    assert_eq!((&revision["kind"], &revision["depth"]), (&json!("patch_set"), &json!(1)), "{revision}");
    assert_eq!(revision["version_hash"], patched.body["version_hash"]);
    assert_ne!(revision["cas_id"], revision["version_hash"]);
    let chain = api.get(&format!("/api/v1/revisions/{id}/chain")).await.body;
    assert_eq!((&chain["base"]["revision_id"], &chain["members"][0]), (&revision["base_version"], &revision));
    let document = api.get("/api/v1/workflows/echo?materialize=true").await.body;
    assert_eq!(document["document"]["steps"]["only"]["input"]["n"], 1, "{document}");
    for path in ["revisions/x", "revisions/0190a000-0000-7000-8000-000000000000/chain"] {
        api.get(&format!("/api/v1/{path}")).await.is_problem(404, "unknown_ref");
    }
}

#[tokio::test]
async fn a_tag_is_undone_and_redone_as_in_an_editor() {
    let api = Api::deployed().await;
    api.patch(1).await;
    api.patch(2).await;
    for (version, restores) in [(4, 2), (5, 1)] {
        let undone = api.undo(&[]).await;
        assert_eq!((undone.status, &undone.body["tag_version"]), (StatusCode::OK, &json!(version)), "{}", undone.body);
        assert_eq!(undone.body["move"]["restores_move_id"], restores);
        assert_eq!(etag(&undone), format!("\"{version}\""));
    }
    api.undo(&[]).await.is_problem(409, "nothing_to_undo");
    for restores in [2, 3] {
        let redone = api.redo().await;
        assert_eq!(
            (&redone.body["move"]["kind"], &redone.body["move"]["restores_move_id"]),
            (&json!("redo"), &json!(restores))
        );
    }
    api.redo().await.is_problem(409, "nothing_to_redo");
    api.undo(&[]).await;
    api.patch(3).await;
    api.redo().await.is_problem(409, "nothing_to_redo");
    assert_eq!(api.moves().await, 9);
    let page = api.get("/api/v1/tags/echo/history?limit=4").await.body;
    assert_eq!((&page["items"][0]["move_id"], &page["next_cursor"]), (&json!(9), &json!("6")));
    let rest = api.get("/api/v1/tags/echo/history?cursor=6").await.body;
    assert_eq!((&rest["items"][0]["move_id"], &rest["next_cursor"]), (&json!(5), &json!(null)));
    api.get("/api/v1/tags/echo/history?cursor=x").await.is_problem(400, "bad_cursor");
    for path in ["tags/none", "tags/none/history"] {
        api.get(&format!("/api/v1/{path}")).await.is_problem(404, "unknown_workflow");
    }
    api.post("/api/v1/tags/none/undo", &json!({})).await.is_problem(404, "unknown_workflow");
}

#[tokio::test]
async fn a_tag_is_brought_back_by_target_and_by_time() {
    let api = Api::deployed().await;
    let first = api.get("/api/v1/tags/echo").await;
    assert_eq!(etag(&first), "\"1\"");
    let then = first.body["moved_at"].as_str().unwrap();
    api.patch(1).await;
    api.patch(2).await;
    let restore = "/api/v1/tags/echo/restore";
    let back = api.post(restore, &json!({"target": "echo~1", "message": "better"})).await;
    assert_eq!((&back.body["move"]["restores_move_id"], &back.body["message"]), (&json!(2), &json!("better")));
    let back = api.post(restore, &json!({ "at": then })).await;
    assert_eq!((back.status, &back.body["version_hash"]), (StatusCode::OK, &first.body["version_hash"]));
    api.post(restore, &json!({})).await.is_problem(422, "bad_body");
    api.post(restore, &json!({"target": "echo", "at": then})).await.is_problem(422, "bad_body");
    api.post(restore, &json!({"at": "1999-01-01T00:00:00Z"})).await.is_problem(404, "unknown_ref");
    let undone = api.undo(&[]).await;
    assert_eq!(undone.body["move"]["restores_move_id"], 4, "a restore is a move that can be undone");
}

#[tokio::test]
async fn names_are_set_and_may_have_slashes() {
    let api = Api::deployed().await;
    let path = "/api/v1/tags/team%2Fone%20%C3%A9";
    let made = api.put(path, &json!({"target": "echo"})).await;
    assert_eq!((made.status, &made.body["tag"]), (StatusCode::CREATED, &json!("team/one é")), "{}", made.body);
    let again = api.put(path, &json!({"target": "echo"})).await;
    assert_eq!((again.status, &again.body["tag_version"]), (StatusCode::OK, &json!(1)));
    let patched = api.post("/api/v1/workflows/team%2Fone%20%C3%A9/patches", &ops(5)).await;
    assert_eq!(patched.status, StatusCode::CREATED, "{}", patched.body);
    let old = api.get("/api/v1/workflows/team%2Fone%20%C3%A9~1").await;
    assert_eq!(old.body["version_hash"], made.body["version_hash"], "{}", old.body);
    assert_eq!(api.get(&format!("{path}/history")).await.body["items"][0]["move_id"], 2);
    let tags = api.get("/api/v1/tags?limit=1").await.body;
    assert_eq!((&tags["items"][0]["tag"], &tags["next_cursor"]), (&json!("echo"), &json!("echo")));
    for bad in ["a~b", "a%40b", "sha256:00", "0190a000-0000-7000-8000-000000000000"] {
        api.put(&format!("/api/v1/tags/{bad}"), &json!({"target": "echo"})).await.is_problem(422, "bad_tag");
    }
    api.put("/api/v1/tags/a%0Ab", &json!({"target": "echo"})).await.is_problem(400, "bad_path");
    let bad = api.post("/api/v1/workflows", &json!({"document": echo(), "tag": "x@y"})).await;
    bad.is_problem(422, "bad_tag");
}

#[tokio::test]
async fn who_has_not_seen_a_move_does_not_go_over_it() {
    let api = Api::deployed().await;
    let before = api.rows();
    let stale = [("if-match", "\"7\"")];
    api.put_with("/api/v1/tags/echo", &stale, &json!({"target": "echo"})).await.is_problem(412, "tag_moved");
    api.post_with(PATCHES, &stale, &ops(1)).await.is_problem(412, "tag_moved");
    api.post_with("/api/v1/workflows", &stale, &json!({ "document": echo() })).await.is_problem(412, "tag_moved");
    for verb in ["undo", "redo"] {
        api.post_with(&format!("/api/v1/tags/echo/{verb}"), &stale, &json!({})).await.is_problem(412, "tag_moved");
    }
    let back = json!({"target": "echo"});
    api.post_with("/api/v1/tags/echo/restore", &stale, &back).await.is_problem(412, "tag_moved");
    api.post_with("/api/v1/tags/echo/merge", &stale, &json!({"from": "echo"})).await.is_problem(412, "tag_moved");
    api.post_with(PATCHES, &[("if-match", "soon")], &ops(1)).await.is_problem(400, "bad_if_match");
    assert_eq!(api.rows(), before);
    let seen = api.post_with(PATCHES, &[("if-match", "\"1\"")], &ops(1)).await;
    assert_eq!(seen.status, StatusCode::CREATED, "{}", seen.body);
    let any = api.post_with(PATCHES, &[("if-match", "*")], &ops(2)).await;
    assert_eq!(any.status, StatusCode::CREATED, "{}", any.body);
}

#[tokio::test]
async fn nobody_takes_back_what_somebody_else_did_unseen() {
    let api = Api::deployed().await;
    let patched = api.post_with(PATCHES, &[("milepost-actor", "Zoé")], &ops(1)).await;
    assert_eq!(patched.status, StatusCode::CREATED, "{}", patched.body);
    for other in [&[][..], &[("milepost-actor", "bob")]] {
        api.undo(other).await.is_problem(409, "moved_by_another");
    }
    let (bob, past) = ([("milepost-actor", "bob")], json!({"target": "echo~1"}));
    api.post_with("/api/v1/tags/echo/restore", &bob, &past).await.is_problem(409, "moved_by_another");
    let seen = api.undo(&[("milepost-actor", "bob"), ("if-match", "\"2\"")]).await;
    assert_eq!((seen.status, &seen.body["moved_by"]), (StatusCode::OK, &json!("bob")), "{}", seen.body);
    api.undo(&[("milepost-actor", "")]).await.is_problem(400, "bad_actor");
}

#[tokio::test]
async fn a_request_with_a_key_is_done_once() {
    let api = Api::deployed().await;
    let more = json!({"op": "add", "path": "/steps/more", "value": {"skill": "noop"}});
    for (n, (path, body, other)) in [
        ("workflows", json!({ "document": echo(), "tag": "copy" }), json!({ "document": echo(), "tag": "other" })),
        ("workflows/echo/patches", ops(1), ops(2)),
        ("workflows/copy/patches", json!({"ops": [more]}), ops(2)),
        ("tags/echo/merge", json!({"from": "copy"}), json!({"from": "echo"})),
        ("tags/echo/merge", json!({"from": "copy~0"}), json!({"from": "echo"})),
        ("tags/echo/restore", json!({"target": "echo~1"}), json!({"target": "echo"})),
        ("tags/echo/undo", json!({}), Value::Null),
        ("tags/echo/redo", json!({}), Value::Null),
    ]
    .into_iter()
    .enumerate()
    {
        let (path, key) = (format!("/api/v1/{path}"), format!("key-{n}"));
        let key = [("idempotency-key", key.as_str())];
        let first = api.post_with(&path, &key, &body).await;
        assert!(first.status.is_success(), "{path}: {}", first.body);
        let rows = api.rows();
        let again = api.post_with(&path, &key, &body).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{path}");
        assert_eq!(again.headers.get("etag"), first.headers.get("etag"), "{path}");
        if !other.is_null() {
            api.post_with(&path, &key, &other).await.is_problem(422, "idempotency_key_reused");
        }
        assert_eq!(api.rows(), rows, "{path}");
    }
    let (key, target) = ([("idempotency-key", "set")], json!({"target": "echo~1"}));
    let first = api.put_with("/api/v1/tags/fresh", &key, &target).await;
    let again = api.put_with("/api/v1/tags/fresh", &key, &target).await;
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    let other = api.put_with("/api/v1/tags/fresh", &key, &json!({"target": "copy"})).await;
    other.is_problem(422, "idempotency_key_reused");
    api.post_with(PATCHES, &[("idempotency-key", "")], &ops(9)).await.is_problem(400, "bad_idempotency_key");
}

#[tokio::test]
async fn two_documents_are_compared() {
    let api = Api::deployed().await;
    api.patch(1).await;
    let diff = api.get("/api/v1/diff?from=echo~1&to=echo").await;
    assert_eq!(diff.status, StatusCode::OK, "{}", diff.body);
    assert_eq!(diff.body["ops"], json!([{"op": "replace", "path": "/steps/only/input/n", "value": 1}]));
    assert_eq!((&diff.body["steps"][0]["step_id"], &diff.body["from"]["ref"]), (&json!("only"), &json!("echo~1")));
    api.get("/api/v1/diff?from=echo~9&to=echo").await.is_problem(404, "unknown_ref");
    api.get("/api/v1/diff?from=echo&to=none").await.is_problem(404, "unknown_workflow");
    api.get("/api/v1/diff?from=echo").await.is_problem(400, "bad_query");
}

#[tokio::test]
async fn merges_are_made_or_say_what_does_not_fit() {
    let api = Api::deployed().await;
    api.put("/api/v1/tags/next", &json!({"target": "echo"})).await;
    let merge = "/api/v1/tags/echo/merge";
    let from = json!({"from": "next"});
    assert_eq!(api.post(merge, &from).await.body["outcome"], "up_to_date");
    api.post("/api/v1/workflows/next/patches", &ops(1)).await;
    let rows = api.rows();
    let dry = api.post(merge, &json!({"from": "next", "dry_run": true})).await;
    assert_eq!((&dry.body["outcome"], etag(&dry)), (&json!("fast_forward"), "\"1\""), "{}", dry.body);
    assert_eq!(api.rows(), rows);
    let forward = api.post(merge, &from).await;
    assert_eq!((&forward.body["outcome"], etag(&forward)), (&json!("fast_forward"), "\"2\""), "{}", forward.body);
    let more = json!({"ops": [{"op": "add", "path": "/steps/more", "value": {"skill": "noop"}}]});
    api.post("/api/v1/workflows/next/patches", &more).await;
    api.patch(2).await;
    let merged = api.post(merge, &from).await;
    assert_eq!((&merged.body["outcome"], &merged.body["tag"]["tag_version"]), (&json!("merged"), &json!(4)));
    assert_eq!(merged.body["diff"]["steps"][0]["change"], "added", "{}", merged.body);
    api.patch(3).await;
    api.post("/api/v1/workflows/next/patches", &ops(4)).await;
    let rows = api.rows();
    for body in [from, json!({"from": "next", "dry_run": true})] {
        let clash = api.post(merge, &body).await;
        clash.is_problem(409, "merge_conflict");
        let conflict = &clash.body["conflicts"][0];
        assert_eq!(
            (&conflict["path"], &conflict["ours"], &conflict["theirs"]),
            (&json!("/steps/only/input/n"), &json!(3), &json!(4))
        );
    }
    assert_eq!(api.rows(), rows);
    api.post(merge, &json!({"from": "none"})).await.is_problem(404, "unknown_workflow");
}

#[tokio::test]
async fn a_patch_that_does_not_fit_leaves_nothing() {
    let api = Api::deployed().await;
    let rows = api.rows();
    let patch = async |ops: Value| api.post(PATCHES, &json!({ "ops": ops })).await;
    let ops = json!([
        {"op": "replace", "path": "/steps/only/input/n", "value": 1},
        {"op": "test", "path": "/steps/only/skill", "value": "noop"},
    ]);
    patch(ops).await.is_problem(422, "patch_failed");
    patch(json!([{"op": "remove", "path": "/steps/none"}])).await.is_problem(422, "patch_failed");
    patch(json!({"op": "remove"})).await.is_problem(422, "patch_failed");
    patch(json!([{"op": "burn", "path": ""}])).await.is_problem(422, "patch_failed");
    let ops = json!([
        {"op": "add", "path": "/steps/more", "value": {"skill": "noop", "depends_on": ["only"]}},
        {"op": "add", "path": "/steps/only/depends_on", "value": ["more"]},
    ]);
    let circle = patch(ops).await;
    circle.is_problem(422, "invalid_document");
    assert_eq!(circle.body["problems"][0]["code"], "cycle", "{}", circle.body);
    let dangling = patch(json!([{"op": "add", "path": "/steps/only/depends_on", "value": ["ghost"]}])).await;
    dangling.is_problem(422, "invalid_document");
    api.post("/api/v1/workflows/none/patches", &self::ops(1)).await.is_problem(404, "unknown_workflow");
    api.put("/api/v1/tags/new", &json!({"target": "echo~9"})).await.is_problem(404, "unknown_ref");
    assert_eq!(api.rows(), rows);
}

#[tokio::test]
async fn a_digest_may_be_written_short_if_it_is_the_only_one() {
    let api = Api::deployed().await;
    let hash = api.get("/api/v1/tags/echo").await.body["version_hash"].as_str().unwrap().to_owned();
    for digits in [&hash[..13], &hash] {
        let found = api.get(&format!("/api/v1/workflows/{digits}")).await;
        assert_eq!((found.status, &found.body["version_hash"]), (StatusCode::OK, &json!(hash)), "{}", found.body);
    }
    api.get("/api/v1/workflows/sha256:00").await.is_problem(404, "unknown_ref");
    // Two documents whose digests begin alike are hard to find; rows are easy to write.
    let twin = format!("{}{}", &hash[7..17], if &hash[17..18] == "0" { "1".repeat(54) } else { "0".repeat(54) });
    let sql = format!(
        "INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, depth, created_at) \
         SELECT org_id, randomblob(16), kind, cas_hash, x'{twin}', depth, created_at FROM revisions LIMIT 1"
    );
    api.sql().execute(&sql, []).unwrap();
    let both = api.get(&format!("/api/v1/workflows/{}", &hash[..17])).await;
    both.is_problem(422, "ambiguous_ref");
    assert!(both.body["detail"].as_str().unwrap().contains(&twin), "{}", both.body);
    api.get(&format!("/api/v1/diff?from=echo&to={}", &hash[..17])).await.is_problem(422, "ambiguous_ref");
}

#[tokio::test]
async fn only_those_named_move_a_protected_tag() {
    let api = Api::deployed().await;
    let (path, rules) = ("/api/v1/tags/echo/protection", json!({"movers": ["ci"]}));
    let protected = api.put(path, &rules).await;
    assert_eq!(protected.body["protected"], json!({"movers": ["ci"], "trust": "protected"}), "{}", protected.body);
    let rows = api.rows();
    api.patch(1).await.is_problem(403, "tag_protected");
    api.put(path, &json!({})).await.is_problem(403, "tag_protected");
    api.delete(path).await.is_problem(403, "tag_protected");
    let bob = [("milepost-actor", "bob")];
    api.post_with(PATCHES, &bob, &ops(1)).await.is_problem(403, "tag_protected");
    api.post_with("/api/v1/workflows", &bob, &json!({ "document": echo() })).await.is_problem(403, "tag_protected");
    assert_eq!(api.rows(), rows);
    let ci = [("milepost-actor", "ci")];
    assert_eq!(api.post_with(PATCHES, &ci, &ops(1)).await.status, StatusCode::CREATED);
    let open = api.send(request("DELETE", path, &ci, "")).await;
    assert_eq!((open.status, &open.body["protected"]), (StatusCode::OK, &Value::Null), "{}", open.body);
    assert_eq!(api.patch(2).await.status, StatusCode::CREATED);
    api.put("/api/v1/tags/none/protection", &rules).await.is_problem(404, "unknown_workflow");
    api.put(path, &json!({"trust": "blind"})).await.is_problem(422, "bad_body");
}

#[tokio::test]
async fn content_that_was_changed_behind_its_back_is_not_believed() {
    let api = Api::deployed().await;
    let sql = api.sql();
    let refused = sql.execute("UPDATE cas_blobs SET content = x'7b7d'", []);
    assert!(refused.is_err(), "content is never changed");
    sql.execute("DROP TRIGGER cas_blobs_never_change", []).unwrap();
    sql.execute("UPDATE cas_blobs SET content = x'7b7d'", []).unwrap();
    // Another server has nothing of it at hand.
    let other = api.again().await;
    for answer in [
        other.get("/api/v1/workflows/echo").await,
        other.get("/api/v1/diff?from=echo&to=echo").await,
        other.patch(1).await,
        other.post("/api/v1/runs", &json!({"workflow": "echo"})).await,
    ] {
        answer.is_problem(500, "corrupt");
    }
    assert_eq!(other.moves().await, 1);
}

#[tokio::test]
async fn what_nothing_leads_to_is_counted() {
    let api = Api::deployed().await;
    api.patch(1).await;
    api.undo(&[]).await;
    let found = api.post("/api/v1/gc", &json!({"dry_run": true})).await;
    let nothing = json!({"dry_run": true, "revisions": 0, "blobs": 0, "bytes": 0, "compacted": 0});
    assert_eq!((found.status, &found.body), (StatusCode::OK, &nothing), "a tag has been at all of it");
    let rows = api.rows();
    let removed = api.send(request("POST", "/api/v1/gc", &[], "")).await;
    assert_eq!((removed.status, &removed.body["dry_run"]), (StatusCode::OK, &json!(false)), "{}", removed.body);
    assert_eq!(api.rows(), rows);
}

#[tokio::test]
async fn a_workflow_named_like_a_route_is_read_and_patched() {
    let api = Api::new().await;
    for name in ["validate", "patches", "bulk", "plan", "diff", "merge", "undo", "stats"] {
        let mut document = echo();
        document["name"] = name.into();
        let deployed = api.post("/api/v1/workflows", &json!({ "document": document })).await;
        assert_eq!(deployed.status, StatusCode::CREATED, "{name}: {}", deployed.body);
        let read = api.get(&format!("/api/v1/workflows/{name}")).await;
        assert_eq!((read.status, &read.body["document"]["name"]), (StatusCode::OK, &json!(name)), "{}", read.body);
        let revision = api.get(&format!("/api/v1/workflows/{name}?materialize=false")).await.body;
        assert_eq!((&revision["ref"], &revision["kind"]), (&json!(name), &json!("dag_version")), "{revision}");
        let patched = api.post(&format!("/api/v1/workflows/{name}/patches"), &ops(1)).await;
        assert_eq!(patched.status, StatusCode::CREATED, "{name}: {}", patched.body);
        for path in ["", "/history"] {
            assert_eq!(api.get(&format!("/api/v1/tags/{name}{path}")).await.status, StatusCode::OK, "{name}{path}");
        }
        let undone = api.send(request("POST", &format!("/api/v1/tags/{name}/undo"), &[], "")).await;
        assert_eq!(undone.status, StatusCode::OK, "{name}: {}", undone.body);
    }
    let checked = api.post("/api/v1/workflows/validate", &json!({ "document": echo() })).await;
    assert_eq!((checked.status, &checked.body["valid"]), (StatusCode::OK, &json!(true)), "{}", checked.body);
}

#[tokio::test]
async fn a_revision_is_answered_as_it_is_stored() {
    let api = Api::deployed().await;
    let patched = api.patch(1).await.body;
    let id = patched["revision_id"].as_str().unwrap();
    let revision = api.get(&format!("/api/v1/revisions/{id}")).await.body;
    assert_eq!(revision["document"], json!(null));
    let stored = api.get("/api/v1/workflows/echo?materialize=false").await.body;
    assert_eq!((&stored["stored"], &stored["document"]), (&ops(1)["ops"], &json!(null)), "{stored}");
    for field in ["revision_id", "kind", "version_hash", "cas_id", "base_version", "parent_id", "depth"] {
        assert_eq!(stored[field], revision[field], "{field}");
    }
    let whole = api.get(&format!("/api/v1/revisions/{id}?materialize=true")).await.body;
    assert_eq!(whole["document"]["steps"]["only"]["input"]["n"], 1, "{whole}");
    let base = api.get("/api/v1/workflows/echo~1?materialize=false").await.body;
    assert_eq!(base["stored"], api.get("/api/v1/workflows/echo~1").await.body["document"]);
    // What it is made of is not needed for that.
    api.sql().execute("DELETE FROM patch_chain_members", []).unwrap();
    let api = api.again().await;
    assert_eq!(api.get("/api/v1/workflows/echo?materialize=false").await.body, stored);
    assert_eq!(api.get(&format!("/api/v1/revisions/{id}")).await.body, revision);
    api.get("/api/v1/workflows/none?materialize=false").await.is_problem(404, "unknown_workflow");
}

#[tokio::test]
async fn moves_and_revisions_show_what_was_known_of_them() {
    let api = Api::new().await;
    let body = json!({"document": echo(), "meta": {"ticket": 7}});
    let deployed = api.post("/api/v1/workflows", &body).await.body;
    let patched = api.post_with(PATCHES, &[("if-match", "\"1\"")], &ops(1)).await;
    assert_eq!(patched.status, StatusCode::CREATED, "{}", patched.body);
    let moves = api.get("/api/v1/tags/echo/history").await.body["items"].clone();
    assert_eq!((&moves[0]["from_kind"], &moves[0]["to_kind"]), (&json!("dag_version"), &json!("patch_set")));
    assert_eq!(moves[0]["expected_hash"], deployed["version_hash"]);
    assert_eq!((&moves[1]["from_kind"], &moves[1]["expected_hash"]), (&json!(null), &json!(null)));
    let first = api.get(&format!("/api/v1/revisions/{}", deployed["revision_id"].as_str().unwrap())).await.body;
    assert_eq!((&first["name"], &first["meta"]), (&json!("echo"), &json!({"ticket": 7})), "{first}");
    let second = api.get(&format!("/api/v1/revisions/{}", patched.body["revision_id"].as_str().unwrap())).await.body;
    assert_eq!((&second["name"], &second["meta"]), (&json!("echo"), &json!(null)), "{second}");
    let bad = json!({"document": echo(), "meta": [1]});
    api.post("/api/v1/workflows", &bad).await.is_problem(422, "bad_meta");
}
