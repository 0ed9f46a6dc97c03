//! What `runs`, `doctor`, `limits`, `validate` and the progress of `run` print.

use serde_json::{Value, json};

use super::{Place, example};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn runs_are_listed_newest_first_in_pages() {
    let place = Place::new();
    let ids: Vec<Value> = (0..3).map(|_| place.run_json(&example("diamond.yaml"), &[])["run_id"].clone()).collect();
    let page = place.json(&["runs", "list", "--limit", "2"]);
    assert_eq!(keys(&page), ["items", "next_cursor"]);
    assert_eq!([&page["items"][0]["run_id"], &page["items"][1]["run_id"]], [&ids[2], &ids[1]]);
    assert_eq!(page["next_cursor"], ids[1]);
    let rest = place.json(&["runs", "list", "--limit", "2", "--cursor", page["next_cursor"].as_str().unwrap()]);
    assert_eq!(rest["items"][0]["run_id"], ids[0]);
    assert_eq!(rest["next_cursor"], Value::Null);
    assert_eq!(place.json(&["runs", "list", "--status", "failed"])["items"], json!([]));
    assert_eq!(place.json(&["runs", "list", "--workflow", "example.diamond"])["items"].as_array().unwrap().len(), 3);
    let table = place.run(&["runs", "list"]).out;
    assert!(table.starts_with("RUN"), "{table}");
    assert!(table.contains("example.diamond") && table.contains("4/4") && table.contains("CREATED"), "{table}");
}

#[test]
fn a_run_is_found_by_id_by_its_beginning_and_as_the_last() {
    let place = Place::new();
    let run = place.run_json(&example("chain.yaml"), &[]);
    let id = run["run_id"].as_str().unwrap();
    for wanted in [id, &id[..9], &id.replace('-', "")[..20], "last"] {
        assert_eq!(place.json(&["runs", "show", wanted])["run_id"], run["run_id"], "{wanted}");
    }
    let unknown = place.run(&["runs", "show", "ffff"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.starts_with("error: there is no run ffff\nhelp: "), "{}", unknown.err);
    place.run_json(&example("chain.yaml"), &[]);
    let several = place.run(&["runs", "show", &id[..1]]);
    assert!(several.err.contains("several runs begin with"), "{}", several.err);
}

#[test]
fn a_run_is_shown_as_json_as_it_was_printed_when_it_ended() {
    let place = Place::new();
    let run = place.run_json(&example("continue.yaml"), &[]);
    assert_eq!(place.json(&["runs", "show", "last"]), run);
    for key in [
        "run_id",
        "workflow",
        "workflow_version",
        "status",
        "trigger_type",
        "priority",
        "payload",
        "error",
        "last_event_seq",
        "created_at",
        "started_at",
        "completed_at",
        "steps",
    ] {
        assert!(keys(&run).contains(&key), "{key}");
    }
    let step = &run["steps"][0];
    for key in [
        "step_id",
        "skill",
        "status",
        "logical_attempt",
        "engine_attempt",
        "cache_hit",
        "input_hash",
        "output",
        "artifacts",
        "started_at",
        "ended_at",
        "duration_ms",
    ] {
        assert!(keys(step).contains(&key), "{key}");
    }
}

#[test]
fn a_run_is_shown_to_people_with_attempts_errors_and_transitions() {
    let place = Place::new();
    place.run(&["run", &example("retries.yaml")]);
    place.run(&["run", &example("continue.yaml")]);
    let text = place.run(&["runs", "show", "last"]).out;
    for part in ["status:     failed", "service_down", "upstream_failed", "queued → running", "running → failed"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn events_are_a_gapless_log_in_pages() {
    let place = Place::new();
    place.run_json(&example("diamond.yaml"), &[]);
    let all = place.json(&["runs", "events", "last"]);
    let seqs: Vec<u64> =
        all["items"].as_array().unwrap().iter().map(|event| event["run_seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert_eq!(all["items"][0]["event_type"], "RunQueued");
    for key in ["event_id", "run_id", "run_seq", "event_type", "data", "idempotency_key", "emitted_at", "persisted_at"]
    {
        assert!(keys(&all["items"][0]).contains(&key), "{key}");
    }
    let page = place.json(&["runs", "events", "last", "--after", "2", "--limit", "3"]);
    assert_eq!(page["items"].as_array().unwrap().len(), 3);
    assert_eq!(page["next_cursor"], "5");
    assert!(place.run(&["runs", "events", "last"]).out.contains("StepCompleted"));
}

#[test]
fn progress_is_plain_lines_where_there_is_no_terminal() {
    let place = Place::new();
    let ran = place.run(&["run", &example("campaign.yaml")]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("brief | writing a brief about coffee\n"), "{}", ran.err);
    let line = ran.err.lines().find(|line| line.contains("step brief completed")).expect("a line for the step");
    assert_eq!(line.as_bytes()[2], b':', "{line}");
    assert!(line.ends_with(" ms"), "{line}");
    assert!(ran.out.starts_with("run "), "{}", ran.out);
    assert!(ran.out.contains("\"title\": \"All about coffee\""), "{}", ran.out);
}

#[test]
fn with_json_there_is_one_object_and_nothing_else() {
    let place = Place::new();
    let ran = place.run(&["run", &example("campaign.yaml"), "-o", "json"]);
    assert_eq!((ran.out.lines().count(), ran.err.as_str()), (1, ""));
    let watched = place.run(&["run", &example("chain.yaml"), "-o", "json", "--watch"]);
    assert_eq!(watched.out.lines().count(), 1);
    assert!(watched.err.contains("step s10 completed"), "{}", watched.err);
}

#[test]
fn a_document_from_standard_input_runs() {
    use std::io::Write as _;
    let place = Place::new();
    let mut child = place
        .command(&["run", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(br#"{"name": "x", "steps": {"a": {"skill": "echo", "input": {"n": 1}}}}"#)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"n\": 1"));
}

#[test]
fn the_same_request_gives_the_same_run() {
    let place = Place::new();
    let first = place.run_json(&example("chain.yaml"), &["--request-id", "order-7", "--priority", "-3"]);
    let again = place.run_json(&example("chain.yaml"), &["--request-id", "order-7", "--priority", "-3"]);
    assert_eq!(first["run_id"], again["run_id"]);
    assert_eq!(again["priority"], -3);
    assert_eq!(place.stored_runs(), 1);
}

#[test]
fn validate_tells_all_problems_at_once() {
    let place = Place::new();
    let file = place.file("bad.yaml", "name: x\nsteps:\n  a: {skil: noop}\n  b: {skill: noop, depends_on: [c]}\n");
    let ran = place.run(&["validate", &file]);
    assert_eq!(ran.code, 2);
    assert!(ran.out.contains("bad.yaml:3:") && ran.out.contains("bad.yaml:4:"), "{}", ran.out);
    let list: Value = serde_json::from_str(&place.run(&["validate", &file, "-o", "json"]).out).unwrap();
    let problem = &list.as_array().unwrap()[0];
    assert_eq!(keys(problem), ["code", "column", "line", "message", "path", "suggestion"]);
    let good = place.run(&["validate", &example("child.yaml")]);
    assert!(good.out.contains("example.parent 1.0.0 is in order, 3 steps"), "{}", good.out);
    assert_eq!(place.json(&["validate", &example("child.yaml")]), json!([]));
}

#[test]
fn doctor_finds_nothing_wrong_with_what_run_leaves() {
    let place = Place::new();
    place.run(&["run", &example("child.yaml")]);
    place.run(&["run", &example("continue.yaml")]);
    let diagnosis = place.json(&["doctor"]);
    assert_eq!(diagnosis, json!({"runs": 5, "open_runs": 0, "findings": []}));
    assert_eq!(place.run(&["doctor"]).out, "5 runs, 0 open; nothing is wrong\n");
}

#[test]
fn doctor_finds_a_damaged_log() {
    let place = Place::new();
    place.run(&["run", &example("chain.yaml")]);
    let database = rusqlite::Connection::open(place.path().join(".milepost/milepost.db")).unwrap();
    database.execute("DROP TRIGGER run_events_stay", []).unwrap();
    assert_eq!(database.execute("DELETE FROM run_events WHERE run_seq = 5", []).unwrap(), 1);
    let ran = place.run(&["doctor", "-o", "json"]);
    assert_eq!(ran.code, 1);
    let diagnosis: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(diagnosis["findings"][0]["code"], "log_gap");
}

#[test]
fn limits_are_listed_with_their_defaults() {
    let place = Place::new();
    let limits = place.json(&["limits", "--limit", "steps=7"]);
    let steps = limits["items"].as_array().unwrap().iter().find(|limit| limit["name"] == "steps").unwrap();
    assert_eq!((&steps["value"], &steps["default"]), (&json!(7), &json!(100_000)));
    assert!(place.run(&["limits"]).out.contains("payload_bytes"));
}

#[test]
fn every_verb_explains_itself_with_examples() {
    let place = Place::new();
    let verbs = [
        "run",
        "recover",
        "validate",
        "deploy",
        "workflows",
        "plan",
        "rebuild",
        "runs",
        "migrate",
        "doctor",
        "limits",
        "bench",
        "completion",
    ];
    let more = [
        "list",
        "show",
        "watch",
        "events",
        "logs",
        "signal",
        "pause",
        "resume",
        "cancel",
        "terminate",
        "approve",
        "reject",
        "retry",
        "skip",
    ];
    let all = verbs.iter().map(|verb| vec![*verb]).chain(more.iter().map(|verb| vec!["runs", *verb]));
    for verb in all {
        let ran = place.run(&[&verb[..], &["--help"]].concat());
        assert_eq!(ran.code, 0);
        let examples = ran.out.split("Examples:\n").nth(1).unwrap_or_default();
        assert!(examples.lines().count() >= 2, "{verb:?}: {}", ran.out);
    }
}

#[test]
fn what_others_wrote_does_not_reach_the_terminal_as_orders() {
    let place = Place::new();
    // A title, a colour, a C1 control, and the direction of writing.
    let orders = r"\033]0;pwned\007 \033[31mred\033[0m \302\2332J \342\200\256back";
    let file = place.file(
        "hostile.yaml",
        &format!(
            "name: hostile\non_failure: continue\nsteps:\n  says: {{skill: shell, input: {{command: \"printf '{0}'\"}}}}\n  \
             fails: {{skill: shell, input: {{command: \"printf '{0}' >&2; false\"}}}}\n",
            orders.replace('\\', "\\\\")
        ),
    );
    let payload = json!({ "p": "\u{1b}[2J\u{9b}2J\u{202e}" }).to_string();
    let obeyed = |text: &str| text.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']);
    let run = place.run(&["run", &file, "--payload", &payload]);
    assert_eq!(run.code, 1, "{}", run.err);
    assert!(run.err.contains("pwned") && run.err.contains("back"), "it is shown: {}", run.err);
    assert!(!obeyed(&run.out) && !obeyed(&run.err), "{}{}", run.out, run.err);
    let verbs: [&[&str]; 5] = [
        &["runs", "logs", "last"],
        &["runs", "show", "last"],
        &["runs", "show", "last", "--step", "fails"],
        &["runs", "events", "last"],
        &["runs", "list"],
    ];
    for verb in verbs {
        for format in ["text", "json"] {
            let ran = place.run(&[verb, &["-o", format]].concat());
            assert_eq!(ran.code, 0, "{}", ran.err);
            assert!(!ran.out.is_empty() && !obeyed(&ran.out) && !obeyed(&ran.err), "{verb:?} {}", ran.out);
        }
        let coloured = place.command(verb).env("CLICOLOR_FORCE", "1").output().unwrap();
        let out = String::from_utf8_lossy(&coloured.stdout).replace("\u{1b}[", "");
        assert!(!obeyed(&out), "{verb:?} {out}");
    }
    let logs = place.run(&["runs", "logs", "last", "-o", "json"]).out;
    let line: Value = serde_json::from_str(logs.lines().find(|line| line.contains("says")).unwrap()).unwrap();
    assert!(line["text"].as_str().unwrap().ends_with("\u{202e}back"), "programs get it as it was kept: {line}");
    assert_eq!(place.json(&["runs", "show", "last"])["payload"].to_string(), payload);
}

#[test]
fn doctor_warns_of_files_that_everybody_can_read() {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    place.run_json(&example("chain.yaml"), &[]);
    assert_eq!(place.json(&["doctor"])["warnings"], Value::Null);
    let database = place.path().join(".milepost/milepost.db");
    std::fs::set_permissions(&database, Permissions::from_mode(0o644)).unwrap();
    assert_eq!(place.json(&["doctor"])["warnings"], Value::Null, "its folder is closed");
    for (path, mode) in [(place.path(), 0o755), (&place.path().join(".milepost"), 0o755)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let warnings = place.json(&["doctor"])["warnings"].clone();
    assert_eq!(warnings[0]["code"], "open_to_all", "{warnings}");
    let message = warnings[0]["message"].as_str().unwrap();
    assert!(message.ends_with("; chmod o-rwx .milepost/milepost.db"), "{message}");
    // Whoever opens it to write closes it.
    place.run_json(&example("chain.yaml"), &[]);
    assert_eq!(place.json(&["doctor"])["warnings"], Value::Null);
}

#[test]
fn a_run_whose_log_has_a_gap_is_shown_as_it_was_before() {
    let place = Place::new();
    let file = place.file("n.yaml", "name: n\nsteps:\n  a: {skill: noop}\n");
    let run = place.run_json(&file, &["--db", "runs.db"])["run_id"].as_str().unwrap().to_owned();
    let database = rusqlite::Connection::open(place.path().join("runs.db")).unwrap();
    let taken = "DROP TRIGGER run_events_stay; CREATE TABLE kept AS SELECT * FROM run_events WHERE run_seq = 3;
        DELETE FROM run_events WHERE run_seq = 3; DELETE FROM run_snapshots; DELETE FROM run_steps;";
    database.execute_batch(taken).unwrap();
    let shown = place.run(&["runs", "show", &run, "--db", "runs.db"]);
    assert!(shown.code == 0 && shown.out.contains("its log lacks event 3"), "{}{}", shown.out, shown.err);
    let json = place.json(&["runs", "show", &run, "--db", "runs.db"]);
    assert_eq!((&json["last_event_seq"], &json["stale"]["from_seq"]), (&2.into(), &3.into()));
    let doctor = place.run(&["doctor", "--db", "runs.db"]);
    assert!(doctor.code == 1 && doctor.out.contains("log_gap"), "{}", doctor.out);
    let following = place.start(&["runs", "events", &run, "--follow", "--db", "runs.db"]);
    std::thread::sleep(std::time::Duration::from_secs(2));
    database.execute_batch("INSERT INTO run_events SELECT * FROM kept").unwrap();
    let followed = super::finish(following);
    assert_eq!(followed.code, 0, "{}", followed.err);
    assert!(followed.err.contains("the log lacks event 3"), "{}", followed.err);
    assert!(followed.out.contains("RunCompleted"), "{}", followed.out);
}

#[test]
fn runs_say_who_started_them() {
    let place = Place::new();
    let by = |name: &str, args: &[&str]| {
        let mut command = place.command(args);
        command.env("MILEPOST_ACTOR", name);
        super::Ran::from(command.output().unwrap())
    };
    let document = example("chain.yaml");
    for name in ["ada", "bob"] {
        assert_eq!(by(name, &["run", &document]).code, 0);
    }
    let found = place.json(&["runs", "list", "--submitted-by", "ada"]);
    let found: Vec<&Value> = found["items"].as_array().unwrap().iter().map(|run| &run["submitted_by"]).collect();
    assert_eq!(found, ["ada"]);
    let shown = place.run(&["runs", "show", "last"]).out;
    assert!(shown.contains("started by") && shown.contains("bob"), "{shown}");
    let run = place.json(&["runs", "show", "last"]);
    assert!(run["total_duration_ms"].is_u64() && run["updated_at"] == run["completed_at"], "{run}");
    assert!(run["engine_run_ref"]["node"].is_string(), "{run}");
    let held = place.file("held.yaml", "name: held\napproval: true\nsteps: {a: {skill: noop}}\n");
    let running = place.start(&["run", &held]);
    super::processes::eventually("the run is there", || {
        (place.json(&["runs", "list"])["items"][0]["workflow"] == "held").then_some(())
    });
    assert_eq!(by("cyd", &["runs", "approve", "last"]).code, 0);
    assert_eq!(super::finish(running).code, 0);
    let events = place.json(&["runs", "events", "last"]);
    let approved = events["items"].as_array().unwrap().iter().find(|event| event["event_type"] == "RunApproved");
    assert_eq!(approved.unwrap()["data"]["actor"], "cyd");
    let shown = place.run(&["runs", "show", "last"]).out;
    assert!(shown.contains("pending → approved  by cyd"), "{shown}");
}
