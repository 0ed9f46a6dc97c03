//! Several servers on one Postgres, with no further setting.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde_json::json;

use super::common::postgres_schema;
use super::{Place, Server, eventually, has_begun, slow};

#[test]
fn what_a_server_leaves_goes_on_in_another() {
    let place = Place::new();
    let database = postgres_schema("serve");
    let start = |data: &str| place.serve(&["--allow-shell", "--db", &database, "--data", data]);
    let first = start("one");
    let run = first.start_run(&slow(&place));
    has_begun(&place, 1);
    let second = start("two");
    assert_eq!(second.get(&format!("/api/v1/runs/{run}")).body["status"], "running");
    let said = first.stop();
    assert!(!said.contains("WARN"), "{said}");
    has_begun(&place, 2);
    place.file("go", "");
    let ended = second.ended_run(&run);
    assert_eq!((&ended["status"], &ended["output"]), (&json!("completed"), &json!({"only": {"n": 1}})));
    assert!(!place.path().join("one/milepost.db").exists());
    second.stop();
}

/// Holds a lock in `psql` until it is dropped.
struct Lock(std::process::Child);

impl Lock {
    /// Whoever writes to this table waits; who reads it does not.
    fn on(database: &str, table: &str) -> Lock {
        let sql = format!("BEGIN; LOCK TABLE {table} IN SHARE MODE; SELECT 'locked';\n");
        let mut psql =
            Command::new("psql").args([database, "-qAt"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        psql.stdin.as_mut().unwrap().write_all(sql.as_bytes()).unwrap();
        let mut said = String::new();
        BufReader::new(psql.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said.trim(), "locked");
        Lock(psql)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A database that neither answers nor fails is what a committer that hangs looks like from outside.
#[test]
fn a_server_that_hangs_is_not_ready_then_ends_and_the_next_one_goes_on() {
    let place = Place::new();
    let database = postgres_schema("hang");
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0", "--allow-shell", "--db", &database]);
    command.env("MILEPOST_UNREADY_AFTER", "1s").env("MILEPOST_END_AFTER", "4s");
    let mut server = Server::start(command);
    let run = server.start_run(&slow(&place));
    has_begun(&place, 1);
    assert_eq!(server.get("/readyz").status, 200);

    let lock = Lock::on(&database, "runs");
    place.file("go", "");
    let unready = eventually("the server to be not ready", || {
        let ready = server.get("/readyz");
        // Others that write, such as the projector, may be found silent a moment earlier.
        (ready.status == 503 && ready.body["detail"].to_string().contains("committer")).then_some(ready.body)
    });
    assert_eq!(unready["code"], "engine_silent");
    assert_eq!(server.get("/healthz").status, 200, "it may yet come back");
    assert_eq!(server.ends_within(20).code(), Some(70), "{}", server.said());
    let said = server.said();
    assert!(said.contains("milepost ends: the committer has not answered for"), "{said}");
    assert!(said.contains("the next start goes on from there"), "{said}");

    drop(lock);
    let next = place.serve(&["--allow-shell", "--db", &database]);
    assert_eq!(next.ended_run(&run)["output"], json!({"only": {"n": 1}}));
    next.stop();
}

/// Neither triggers nor foreign keys count in such a session.
fn damage(database: &str, sql: &str) {
    let sql = format!("SET session_replication_role = replica; {sql}");
    let done = Command::new("psql").args([database, "-v", "ON_ERROR_STOP=1", "-qc", &sql]).status().unwrap();
    assert!(done.success(), "{sql}");
}

/// A server runs on the database the whole time.
#[test]
fn a_damaged_database_is_shown_as_it_was_and_put_right() {
    let place = Place::new();
    let database = postgres_schema("damaged");
    let server = place.serve(&["--db", &database, "--data", "one"]);
    let document = json!({"name": "camp", "steps": {"a": {"skill": "echo", "input": {"n": 0}}}});
    assert_eq!(server.post("/api/v1/workflows", &json!({ "document": document })).status, 201);
    for n in 1..=2 {
        let ops = json!({"ops": [{"op": "replace", "path": "/steps/a/input/n", "value": n}]});
        assert_eq!(server.post("/api/v1/workflows/camp/patches", &ops).status, 201);
    }
    let run = server.start_run(&document);
    let whole = server.ended_run(&run);
    // A chain, then the revision that the tag points at.
    let doctor = |more: &[&str]| place.run(&[&["doctor", "--db", &database, "--as", "ada"], more].concat());
    assert_eq!(doctor(&[]).code, 0, "{}", doctor(&[]).out);
    damage(&database, "DELETE FROM patch_chain_members");
    let found = doctor(&[]);
    assert!(found.code == 1 && found.out.contains("broken_chain: "), "{}{}", found.out, found.err);
    assert_eq!(doctor(&["--repair"]).code, 0);
    damage(&database, "DELETE FROM revisions WHERE revision_id = (SELECT target_id FROM tags)");
    assert!(doctor(&[]).out.contains("orphaned_tag: tag `camp` points at revision "));
    let mended = doctor(&["--repair"]);
    assert!(mended.code == 0 && mended.out.contains("repaired: tag `camp` was moved back"), "{}", mended.out);
    let read = server.get("/api/v1/workflows/camp").body;
    assert_eq!(read["document"]["steps"]["a"]["input"]["n"], 1, "{read}");
    let moves = server.get("/api/v1/tags/camp/history").body;
    assert_eq!((&moves["items"][0]["kind"], &moves["items"][0]["moved_by"]), (&json!("restore"), &json!("ada")));
    // An event is lost, and comes back.
    let event = "FROM run_events WHERE run_seq = 3";
    damage(&database, &format!("CREATE TABLE kept AS SELECT * {event}; DELETE {event}"));
    let shown = server.get(&format!("/api/v1/runs/{run}"));
    assert_eq!((shown.status, &shown.body["stale"]), (200, &json!({"from_seq": 3})));
    assert_eq!(server.get("/api/v1/runs").body["items"][0]["stale"], json!({"from_seq": 3}));
    damage(&database, "INSERT INTO run_events SELECT * FROM kept");
    assert_eq!(server.get(&format!("/api/v1/runs/{run}")).body, whole);
    server.stop();
}
