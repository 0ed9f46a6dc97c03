//! Large documents of a server of the real program: in a folder, and in a bucket, as long as something leads to them.

use std::process::Command;

use milepost_engine::{Clock as _, SystemClock};
use milepost_store::Store as _;
use milepost_store::sqlite::SqliteStore;
use serde_json::{Value, json};

use super::moto::{Moto, variables};
use super::{Place, Server, ended};

const DATABASE: &str = ".milepost/milepost.db";

/// Above the limit for what is in the database itself.
fn large(name: &str) -> Value {
    let text = name.repeat(300 * 1024 / name.len());
    json!({"name": name, "steps": {"say": {"skill": "noop", "input": {"text": text}}}})
}

/// What was done was done thirty days ago, and runs that ended are forgotten.
fn thirty_days_later(place: &Place) {
    let path = place.path().join(DATABASE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(&path).unwrap();
        let forgotten = store.forget_runs(SystemClock.now(), 100).await.unwrap();
        assert_eq!(forgotten.runs, 1);
    });
    let sql = rusqlite::Connection::open(&path).unwrap();
    // Rows that never change have to be let change first.
    sql.execute_batch("DROP TRIGGER cas_blobs_never_change; DROP TRIGGER revisions_never_change;").unwrap();
    for (table, column) in
        [("cas_blobs", "created_at"), ("revisions", "created_at"), ("plan_uses", "used_at"), ("cas_notes", "noted_at")]
    {
        sql.execute(&format!("UPDATE {table} SET {column} = {column} - 30 * 86400000000"), []).unwrap();
    }
}

/// A large document under a tag stays, one that only a run had goes with it. `keys` are those in the blob store.
fn kept_while_needed(place: &Place, command: impl Fn(&[&str]) -> Command, keys: impl Fn() -> Vec<String>) {
    let serve = || Server::start(command(&["serve", "--listen", "127.0.0.1:0"]));
    let (tagged, passing) = (large("tagged"), large("passing"));
    let server = serve();
    let deployed = server.post("/api/v1/workflows", &json!({ "document": tagged }));
    assert_eq!(deployed.status, 201, "{}", deployed.body);
    let hash = deployed.body["version_hash"].as_str().unwrap().strip_prefix("sha256:").unwrap().to_owned();
    let is_tagged = |key: &String| key.contains(&hash);
    assert!(keys().len() == 1 && keys().iter().all(is_tagged), "{:?}", keys());
    let again = server.post("/api/v1/workflows", &json!({ "document": tagged, "tag": "twice" }));
    assert_eq!((again.status, keys().len()), (200, 1), "the same content is kept once");
    let run = server.start_run(&passing);
    server.ended_run(&run);
    assert_eq!(keys().len(), 2, "{:?}", keys());
    server.stop();

    let server = serve();
    let read = server.get("/api/v1/workflows/tagged");
    assert!(read.status == 200 && read.body["document"]["steps"]["say"]["input"] == tagged["steps"]["say"]["input"]);
    let ran = server.get(&format!("/api/v1/runs/{run}"));
    assert_eq!((ran.status, &ran.body["status"]), (200, &json!("completed")));
    server.stop();

    let gc = |more: &[&str]| {
        let ran = ended(command(&[&["gc", "-o", "json", "--db", DATABASE], more].concat()));
        assert_eq!(ran.code, 0, "{}", ran.err);
        serde_json::from_str::<Value>(&ran.out).unwrap()
    };
    let none = gc(&[]);
    assert_eq!((&none["revisions"], keys().len()), (&json!(0), 2), "{none}");
    thirty_days_later(place);
    let counted = gc(&["--dry-run"]);
    assert_eq!((&counted["revisions"], keys().len()), (&json!(1), 2), "{counted}");
    let removed = gc(&[]);
    assert!(removed["blobs"] == 1 && removed["bytes"].as_u64() > Some(300_000), "{removed}");
    assert!(keys().len() == 1 && keys().iter().all(is_tagged), "{:?}", keys());
    let server = serve();
    assert_eq!(server.get("/api/v1/workflows/twice").body["document"]["name"], "tagged");
    server.stop();
}

#[test]
fn a_large_document_is_in_a_file_as_long_as_it_is_needed() {
    let place = Place::new();
    let folder = place.path().join(".milepost/blobs");
    let keys = || super::blobs::files(&folder).iter().map(|file| file.display().to_string()).collect();
    kept_while_needed(&place, |args| place.command(args), keys);
}

#[test]
fn a_large_document_is_in_a_bucket_as_long_as_it_is_needed() {
    let (place, moto) = (Place::new(), Moto::start());
    let command = |args: &[&str]| {
        let mut command = place.command(args);
        command.envs(variables(moto.port())).env("MILEPOST_BLOBS", "s3://bucket/milepost");
        command
    };
    let keys = || {
        let listed = moto.request("GET /bucket?list-type=2").unwrap();
        let keys = listed.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap_or_default().to_owned());
        keys.collect()
    };
    kept_while_needed(&place, command, keys);
}
