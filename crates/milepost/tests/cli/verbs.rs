//! The verbs that work the same on a database and on a server, here on a database.

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};

use super::processes::{SLOW, has_happened, send};
use super::{Place, example, finish};

fn error(ran: &super::Ran) -> Value {
    serde_json::from_str(&ran.err).unwrap_or_else(|_| panic!("{}", ran.err))
}

#[test]
fn what_was_deployed_runs_by_its_name() {
    let place = Place::new();
    assert_eq!(place.run(&["migrate"]).code, 0);
    let deployed = place.run(&["deploy", &example("child.yaml"), "-o", "json"]);
    let tags: Vec<Value> = deployed.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!([&tags[0]["tag"], &tags[1]["tag"]], ["example.parent", "example.greeting"]);
    assert!(tags[0]["version_hash"].as_str().unwrap().starts_with("sha256:"), "{tags:?}");
    let run = place.run_json("example.parent", &[]);
    assert_eq!(run["status"], "completed", "{run}");
    let same = place.run_json(tags[0]["version_hash"].as_str().unwrap(), &[]);
    assert_eq!(same["workflow"], "example.parent");
    let unknown = place.run(&["run", "example.none", "-o", "json"]);
    assert_eq!((unknown.code, error(&unknown)["code"].as_str()), (2, Some("unknown_workflow")));
}

#[test]
fn a_document_is_deployed_under_another_name_and_listed() {
    let place = Place::new();
    assert_eq!(place.run(&["migrate"]).code, 0);
    assert_eq!(place.run(&["workflows"]).out, "no workflows\n");
    let deployed = place.json(&["deploy", &example("chain.yaml"), "--tag", "next"]);
    assert_eq!(deployed["tag"], "next");
    place.json(&["deploy", &example("chain.yaml")]);
    let list = place.json(&["workflows"]);
    let names: Vec<&str> = list["items"].as_array().unwrap().iter().map(|item| item["tag"].as_str().unwrap()).collect();
    assert_eq!(names, ["example.chain", "next"]);
    assert_eq!(list["items"][0]["version_hash"], list["items"][1]["version_hash"]);
    assert_eq!(place.json(&["workflows", "show", "next"])["document"]["name"], "example.chain");
    let several = place.run(&["deploy", &example("child.yaml"), "--tag", "x", "-o", "json"]);
    assert_eq!((several.code, error(&several)["code"].as_str()), (2, Some("several_documents")));
}

#[test]
fn a_detached_run_is_left_to_others() {
    let place = Place::new();
    let ran = place.run(&["run", &example("diamond.yaml"), "--detach"]);
    assert_eq!((ran.code, ran.out.trim().len()), (0, 36), "{}", ran.out);
    assert!(ran.err.contains("milepost recover"), "{}", ran.err);
    assert_eq!(place.json(&["recover"])["ended"][0]["run_id"], ran.out.trim());
}

#[test]
fn a_run_of_another_process_is_watched_to_its_end() {
    let place = Place::new();
    let file = place.file("slow.yaml", SLOW);
    let run = place.start(&["run", &file]);
    has_happened(&place, "StepStarted", "second");
    let (watch, events) =
        (place.start(&["runs", "watch"]), place.start(&["runs", "events", "last", "-f", "-o", "json"]));
    let json = place.start(&["runs", "watch", "last", "-o", "json"]);
    place.file("go", "");
    let (run, watched) = (finish(run), finish(watch));
    assert_eq!((run.code, watched.code), (0, 0), "{}", watched.err);
    assert_eq!(watched.out, run.out);
    // The lines are the same; only what the step itself says is heard by its own process alone.
    let lines = |text: &str| text.lines().filter(|line| !line.contains(" | ")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&watched.err), lines(&run.err));
    let seqs: Vec<u64> = finish(events)
        .out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["run_seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    let shown: Value = serde_json::from_str(&finish(json).out).unwrap();
    assert_eq!((&shown["status"], shown["last_event_seq"].as_u64()), (&json!("completed"), seqs.last().copied()));
}

#[test]
fn who_stops_watching_does_not_stop_the_run() {
    let place = Place::new();
    let file = place.file("slow.yaml", SLOW);
    let run = place.start(&["run", &file]);
    has_happened(&place, "StepStarted", "second");
    let mut watch = place.start(&["runs", "watch", "last", "--db", ".milepost/milepost.db"]);
    // Once it shows something it listens to Ctrl-C.
    let mut shown = BufReader::new(watch.stderr.take().expect("standard error"));
    shown.read_line(&mut String::new()).expect("a line of progress");
    send(&watch, rustix::process::Signal::INT);
    assert_ne!(finish(watch).code, 0);
    place.file("go", "");
    assert_eq!(finish(run).code, 0);
}

#[test]
fn a_watched_run_that_fails_gives_its_exit_status() {
    let place = Place::new();
    place.run(&["run", &example("continue.yaml")]);
    let watched = place.run(&["runs", "watch"]);
    assert_eq!(watched.code, 1);
    assert!(watched.out.contains("failed") && watched.err.contains("run failed: service_down"), "{}", watched.err);
}

#[test]
fn many_runs_are_told_at_once() {
    let place = Place::new();
    for _ in 0..3 {
        place.run(&["run", &example("wait.yaml"), "--detach"]);
    }
    place.run(&["run", &example("chain.yaml")]);
    let all = ["runs", "cancel", "--workflow", "example.wait"];
    let unsure = place.run(&[&all[..], &["-o", "json"]].concat());
    assert_eq!((unsure.code, error(&unsure)["code"].as_str()), (2, Some("needs_yes")));
    let counted = place.json(&[&all[..], &["--dry-run"]].concat());
    assert_eq!((&counted["matched"], &counted["accepted"], &counted["more"]), (&json!(3), &json!(0), &json!(false)));
    let some = place.json(&[&all[..], &["--limit", "2", "--yes"]].concat());
    assert_eq!((&some["accepted"], &some["more"]), (&json!(2), &json!(true)));
    let rest = place.run(&[&all[..], &["-y", "--payload", r#"{"reason": "enough"}"#]].concat());
    assert!(rest.out.starts_with("CANCEL is accepted by 1 of 1 runs"), "{}{}", rest.out, rest.err);
    let cancelled = place.json(&["runs", "list", "--status", "cancelled"]);
    assert_eq!(cancelled["items"].as_array().unwrap().len(), 3);
    assert_eq!(place.json(&[&all[..], &["--yes"]].concat())["matched"], 0);
    let both = place.run(&["runs", "cancel", "last", "--status", "running", "-o", "json"]);
    assert_eq!((both.code, error(&both)["code"].as_str()), (2, Some("run_and_filter")));
    let none = place.run(&["runs", "cancel", "-o", "json"]);
    assert_eq!((none.code, error(&none)["code"].as_str()), (2, Some("no_run")));
}

#[test]
fn retry_without_a_step_tries_all_that_failed() {
    let place = Place::new();
    let step = |name: &str| format!("  {name}: {{skill: shell, input: {{command: \"[ -e fixed ]\"}}}}\n");
    let file = place.file("two.yaml", &format!("name: x\non_failure: continue\nsteps:\n{}{}", step("a"), step("b")));
    assert_eq!(place.run(&["run", &file]).code, 1);
    place.file("fixed", "");
    let retried = place.json(&["runs", "retry", "last"]);
    assert_eq!((&retried["status"], &retried["steps"]), (&json!("running"), &json!(["a", "b"])));
    assert_eq!(place.json(&["recover"])["ended"][0]["status"], "completed");
    let nothing = place.run(&["runs", "retry", "last", "-o", "json"]);
    assert_eq!((nothing.code, error(&nothing)["code"].as_str()), (2, Some("nothing_failed")));
}

#[test]
fn runs_are_found_by_status_age_and_request() {
    let place = Place::new();
    place.run_json(&example("chain.yaml"), &["--request-id", "order-7"]);
    place.run_json(&example("continue.yaml"), &[]);
    let count =
        |args: &[&str]| place.json(&[&["runs", "list"], args].concat())["items"].as_array().expect("a list").len();
    assert_eq!(count(&["--status", "completed", "--status", "failed"]), 2);
    assert_eq!(count(&["--status", "completed,failed", "--since", "1h"]), 2);
    assert_eq!(count(&["--status", "failed"]), 1);
    assert_eq!((count(&["--until", "1h"]), count(&["--since", "2030-01-31T10:00:00Z"])), (0, 0));
    assert_eq!((count(&["--request-id", "order-7"]), count(&["--request-id", "order-8"])), (1, 0));
    assert_eq!((count(&["--base-run", "last"]), count(&["--all"])), (0, 2));
    assert_eq!(place.run(&["runs", "list", "--since", "soon"]).code, 2);
}

#[test]
fn one_step_is_shown_with_its_attempts_and_input() {
    let place = Place::new();
    place.run(&["run", &example("retries.yaml")]);
    let step = place.json(&["runs", "show", "last", "--step", "flaky"]);
    assert_eq!(step["attempts"].as_array().unwrap().len(), 3);
    let text = place.run(&["runs", "show", "last", "--step", "flaky"]).out;
    for part in ["step:       flaky", "attempts:", "upstream_busy", "input:"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert_eq!(place.run(&["runs", "show", "last", "--step", "none"]).code, 2);
}

#[test]
fn a_run_is_planned_and_nothing_is_stored() {
    let place = Place::new();
    let planned = place.json(&["plan", &example("campaign.yaml"), "--payload", r#"{"video": false}"#]);
    assert_eq!(planned["workflow"], "campaign.build");
    let cut = planned["steps"].as_array().unwrap().iter().find(|step| step["step_id"] == "cut").unwrap();
    assert_eq!((&cut["decision"], &cut["reason"]), (&json!("skip"), &json!("condition")), "{planned}");
    let text = place.run(&["plan", &example("campaign.yaml")]).out;
    assert!(text.starts_with("● ") && text.contains(" brief "), "{text}");
    assert!(!place.path().join(".milepost").exists());
    let bad = place.run(&["plan", &example("campaign.yaml"), "--payload", "[]", "-o", "json"]);
    assert_eq!(bad.code, 2, "{}", bad.out);
    for (args, code) in [(&["plan"][..], "nothing_to_plan"), (&["plan", "x", "--change", "y"], "no_base_run")] {
        let ran = place.run(&[args, &["-o", "json"]].concat());
        assert_eq!((ran.code, error(&ran)["code"].as_str()), (2, Some(code)));
    }
}

#[test]
fn an_earlier_run_is_run_again_with_a_change() {
    let place = Place::new();
    let base =
        place.run_json(&example("campaign.yaml"), &["--payload", r#"{"topic": "tea", "audio": {"prompt": "flute"}}"#]);
    let change = ["--change", r#"audio.update={"prompt": "harp"}"#];
    let planned = place.json(&[&["plan", "--base-run", "last"], &change[..]].concat());
    assert_eq!(planned["workflow"], "campaign.build");
    assert_eq!(place.stored_runs(), 1);
    let run = place.json(&[&["rebuild", "last"], &change[..]].concat());
    assert_eq!((&run["trigger_type"], &run["base_run_id"]), (&json!("update"), &base["run_id"]));
    assert_eq!(run["payload"]["audio"]["prompt"], "harp", "{run}");
    let unknown = place.run(&["rebuild", "last", "--change", "audio.updat={}", "-o", "json"]);
    assert_eq!(unknown.code, 2, "{}", unknown.out);
    assert!(unknown.err.contains("did you mean `audio.update`?"), "{}", unknown.err);
    assert_eq!(
        place.json(&["runs", "list", "--base-run", base["run_id"].as_str().unwrap()])["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn what_steps_said_is_printed() {
    let place = Place::new();
    let file = place.file("talk.yaml", TALK);
    place.run(&["run", &file]);
    let text = place.run(&["runs", "logs", "last"]).out;
    assert_eq!(without_times(&text), ["one | a", "one | b", "two | c"]);
    assert_eq!(without_times(&place.run(&["runs", "logs", "last", "--step", "one", "-f"]).out), ["a", "b"]);
    let json = place.run(&["runs", "logs", "last", "-o", "json"]).out;
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[1]["step_id"], &lines[1]["line"], &lines[1]["text"]), (&json!("one"), &json!(1), &json!("b")));
    for key in ["logical_attempt", "engine_attempt", "at", "stream"] {
        assert!(!lines[0][key].is_null(), "{key}");
    }
    assert_eq!(place.run(&["runs", "logs", "last", "--step", "three"]).code, 2);
}

/// Two steps that say something.
pub(super) const TALK: &str = "
name: talk
steps:
  one: {skill: shell, input: {command: \"echo a; echo b\"}}
  two: {skill: shell, depends_on: [one], input: {command: \"echo c\"}}
";

/// Lines without the moment at their beginning.
pub(super) fn without_times(text: &str) -> Vec<&str> {
    text.lines().map(|line| line.split_once(' ').expect("a moment and a line").1).collect()
}

#[test]
fn no_server_is_exit_status_three_and_says_how_to_start_one() {
    let place = Place::new();
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    let file = place.file("good.yaml", "name: good\nsteps:\n  a: {skill: noop}\n");
    for args in [&["runs", "list"][..], &["run", &file], &["run", "good"], &["deploy", &file], &["runs", "watch"]] {
        let ran = place.run(&[args, &["--server", &url]].concat());
        assert_eq!(ran.code, 3, "{args:?}: {}", ran.err);
        assert!(ran.err.contains("milepost dev"), "{}", ran.err);
    }
    let env = place.command(&["runs", "list", "-o", "json"]).env("MILEPOST_URL", &url).output().unwrap();
    assert_eq!(env.status.code(), Some(3));
    // A flag goes before the environment.
    let named = place.command(&["run", &file, "--db", "a.db"]).env("MILEPOST_URL", &url).output().unwrap();
    assert_eq!(named.status.code(), Some(0));
}

#[test]
fn two_places_at_once_are_refused() {
    let place = Place::new();
    let both = place.run(&["runs", "list", "--server", "http://127.0.0.1:1", "--db", "a.db", "-o", "json"]);
    assert_eq!((both.code, error(&both)["code"].as_str()), (2, Some("server_and_db")));
    for verb in ["doctor", "migrate", "recover"] {
        let ran = place.run(&[verb, "--server", "http://127.0.0.1:1", "-o", "json"]);
        assert_eq!((ran.code, error(&ran)["code"].as_str()), (2, Some("needs_database")));
    }
    let bad = place.run(&["runs", "list", "--server", "postgres://a/b", "-o", "json"]);
    assert_eq!((bad.code, error(&bad)["code"].as_str()), (2, Some("bad_server")));
}

#[test]
fn a_stale_note_of_a_server_is_passed_over() {
    let place = Place::new();
    place.run(&["run", &example("chain.yaml")]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    place.file(".milepost/server.json", &format!("{{\"url\": \"http://{free}\", \"pid\": 1}}"));
    assert_eq!(place.json(&["runs", "list"])["items"].as_array().unwrap().len(), 1);
}

#[test]
fn shells_get_a_script_that_knows_the_verbs() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completion", shell]);
        assert_eq!(script.code, 0);
        assert!(script.out.contains("terminate") && script.out.contains("deploy"), "{shell}");
    }
}
