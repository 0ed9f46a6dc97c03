//! A run that takes its process down is parked; whatever runs beside it goes on, and stays out of suspicion.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

#[path = "common/server.rs"]
#[expect(dead_code, reason = "not all that servers can do is needed here")]
mod servers;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use servers::{Place, Server, eventually};

/// A log of so many bytes is more than fits into the address space that a server is given here.
const LOG_BYTES: usize = 400 << 20;
const ROOM: u64 = 400 << 20;
const EVENT_BYTES: usize = 16 << 10;

fn database(place: &Place) -> rusqlite::Connection {
    rusqlite::Connection::open(place.path().join(".milepost/milepost.db")).unwrap()
}

fn blob(run: &str) -> Vec<u8> {
    run.parse::<milepost_core::id::RunId>().unwrap().0.as_bytes().to_vec()
}

/// Waits for a signal, then ends.
fn waits() -> Value {
    json!({"name": "waits", "steps": {
        "go": {"skill": "wait", "input": {"signal": "GO"}},
        "then": {"skill": "echo", "depends_on": ["go"], "input": {"n": 1}},
    }})
}

fn naps(ms: u64) -> Value {
    json!({"name": "naps", "steps": {
        "nap": {"skill": "sleep", "input": {"ms": ms}},
        "then": {"skill": "echo", "depends_on": ["nap"], "input": {"n": 1}},
    }})
}

/// Gives the run a log that no server with little memory can read, and an owner that is gone: the next server adopts it.
fn poison(place: &Place, run: &str) {
    let mut conn = database(place);
    let tx = conn.transaction().unwrap();
    let run = blob(run);
    let last: i64 = tx.query_row("SELECT last_seq FROM runs WHERE run_id = ?", [&run], |row| row.get(0)).unwrap();
    let data = json!({"type": "X", "reason": "x".repeat(EVENT_BYTES)}).to_string();
    let count = (LOG_BYTES / EVENT_BYTES) as i64;
    {
        let mut insert = tx
            .prepare(
                "INSERT INTO run_events (org_id, run_id, run_seq, format, event_type, idempotency_key, emitted_at,
                     persisted_at, data)
                 SELECT 1, ?1, ?2, format, 'SignalRejected', randomblob(32), emitted_at, persisted_at, ?3
                 FROM run_events WHERE run_id = ?1 AND run_seq = 1",
            )
            .unwrap();
        for seq in 1..=count {
            insert.execute(rusqlite::params![run, last + seq, data]).unwrap();
        }
    }
    tx.execute("UPDATE runs SET last_seq = ?2, owner = 7 WHERE run_id = ?1", rusqlite::params![run, last + count])
        .unwrap();
    tx.commit().unwrap();
}

/// `dev` with so much address space at most.
fn dev(place: &Place, bytes: Option<u64>) -> Command {
    let args = ["dev", "--listen", "127.0.0.1:0"];
    let Some(bytes) = bytes else { return place.command(&args) };
    let mut command = Command::new("prlimit");
    command.arg(format!("--as={bytes}")).arg(env!("CARGO_BIN_EXE_milepost")).args(args).current_dir(place.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Whether it ends by itself within a while; it must not end well.
fn dies(mut command: Command) -> bool {
    let mut child = command.spawn().unwrap();
    let mut err = child.stderr.take().unwrap();
    let said = std::thread::spawn(move || std::io::read_to_string(&mut err).unwrap());
    let begun = Instant::now();
    let died = loop {
        match child.try_wait().unwrap() {
            Some(status) => {
                assert!(!status.success());
                break true;
            }
            None if begun.elapsed() > Duration::from_secs(12) => break false,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if !died {
        // As a server ends that is well.
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
        child.wait().unwrap();
    }
    let said = said.join().unwrap();
    assert!(!died || said.contains("memory allocation"), "{said}");
    died
}

#[test]
fn a_run_that_takes_its_server_down_is_parked_and_all_others_go_on() {
    let place = Place::new();
    let server = place.dev(&[]);
    let run = server.start_run(&waits());
    let innocents: Vec<String> = (0..20).map(|_| server.start_run(&naps(2000))).collect();
    let waiting = server.start_run(&waits());
    server.stop();
    poison(&place, &run);

    let mut crashes = 0;
    while dies(dev(&place, Some(ROOM))) {
        crashes += 1;
        assert!(crashes <= 3, "it is adopted again and again");
    }
    assert!(crashes >= 2, "the log is read with {ROOM} bytes: this proves nothing");

    let server = Server::start(dev(&place, Some(ROOM)));
    for innocent in &innocents {
        assert_eq!(server.ended_run(innocent)["status"], "completed");
    }
    let shown = server.get(&format!("/api/v1/runs/{run}"));
    assert_eq!(
        (shown.status, &shown.body["status"], &shown.body["stuck"]["crashes"]),
        (200, &json!("running"), &json!(2))
    );
    let listed = server.get("/api/v1/runs?stuck=true");
    assert_eq!(listed.body["items"].as_array().unwrap().len(), 1, "{}", listed.body);
    let metrics = server.get("/metrics").body;
    assert!(metrics.as_str().unwrap().contains("milepost_runs_stuck 1"), "{metrics}");
    let go = json!({"type": "GO", "payload": {}});
    let refused = server.post(&format!("/api/v1/runs/{run}/signals"), &go);
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("run_stuck")), "{}", refused.body);
    let told = server.post(&format!("/api/v1/runs/{waiting}/signals"), &go);
    assert_eq!(told.status, 202, "{}", told.body);
    assert_eq!(server.ended_run(&waiting)["status"], "completed");
    server.stop();

    let doctor = place.run(&["doctor"]);
    assert!(
        doctor.code == 1 && doctor.out.contains("run_stuck") && doctor.out.contains("runs resume"),
        "{}",
        doctor.out
    );
    let listed = place.run(&["runs", "list", "--stuck"]);
    assert!(listed.out.contains(&run) && !listed.out.contains(&waiting), "{}", listed.out);

    // With the memory that it takes it goes on.
    let server = Server::start(dev(&place, None));
    let resumed = place.run(&["runs", "resume", &run, "--server", &server.url]);
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    eventually("the run to take its signal", || {
        (server.post(&format!("/api/v1/runs/{run}/signals"), &go).status == 202).then_some(())
    });
    let ended = server.ended_run(&run);
    assert_eq!((&ended["status"], &ended["stuck"]), (&json!("completed"), &Value::Null));
    server.stop();
}

#[test]
fn a_parked_run_can_be_ended_by_a_server_that_could_not_read_it() {
    let place = Place::new();
    let server = place.dev(&[]);
    let run = server.start_run(&waits());
    server.stop();
    poison(&place, &run);
    let mut crashes = 0;
    while dies(dev(&place, Some(ROOM))) {
        crashes += 1;
        assert!(crashes <= 3, "it is adopted again and again");
    }
    let server = Server::start(dev(&place, Some(ROOM)));
    let ended = place.run(&["runs", "terminate", &run, "--server", &server.url]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(server.get(&format!("/api/v1/runs/{run}")).body["status"], "terminated");
    server.stop();
}

/// Killed from outside, however often: that is no run's fault.
#[test]
fn no_innocent_is_parked_however_often_the_server_is_killed() {
    let place = Place::new();
    let mut runs: Vec<String> = Vec::new();
    for kill in 0..60_u64 {
        let mut server = place.dev(&[]);
        for n in 0..4 {
            runs.push(server.start_run(&naps(n * 40)));
        }
        std::thread::sleep(Duration::from_millis(kill * 7 % 180));
        server.send(Signal::KILL);
        server.child.wait().unwrap();
    }
    let stuck = || -> i64 {
        let sql = "SELECT count(*) FROM run_suspects WHERE state <> 'suspected'";
        database(&place).query_row(sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(stuck(), 0);
    let server = place.dev(&[]);
    for run in &runs {
        assert_eq!(server.ended_run(run)["status"], "completed");
    }
    server.stop();
    let suspects: i64 = database(&place).query_row("SELECT count(*) FROM run_suspects", [], |row| row.get(0)).unwrap();
    assert_eq!((stuck(), suspects), (0, 0), "they did no harm");
}
