//! Runs whose definition changes while they run: by hand, and by a worker that goes on planning as it works.

use serde_json::{Value, json};

use super::processes::{SLOW, eventually, has_happened};
use super::server::Server;
use super::{Place, finish, step};

/// Each thought plans the next act and the next thought, until there is nothing left to think about.
const AGENT: &str = r#"#!/usr/bin/env bash
echo '{"skills": ["think", "act"]}'
while read -r line; do
    [[ $line == '{"task":'* ]] || continue
    if [[ $line =~ \"left\":([0-9]+) ]] && ((BASH_REMATCH[1] > 0)); then
        n=${BASH_REMATCH[1]} next=$((BASH_REMATCH[1] - 1))
        ops="{\"op\":\"add\",\"path\":\"/steps/act_$n\",\"value\":{\"skill\":\"act\",\"depends_on\":[\"think_$n\"]}}"
        ops="$ops,{\"op\":\"add\",\"path\":\"/steps/think_$next\",\"value\":{\"skill\":\"think\",\"input\":{\"left\":$next},\"depends_on\":[\"act_$n\"]}}"
        echo "{\"completed\":{\"thought\":$n,\"patch\":[$ops]}}"
    else
        echo '{"completed":{"done":true}}'
    fi
done
"#;

const PLAN: &str = "
name: agent
self_patch: {max_patches: 3, max_steps: 10}
steps:
  think_3: {skill: think, input: {left: 3}}
";

fn ids(run: &Value) -> Vec<&str> {
    run["steps"].as_array().unwrap().iter().map(|step| step["step_id"].as_str().unwrap()).collect()
}

#[test]
fn a_worker_grows_the_plan_of_its_run_three_times() {
    let server = Server::start();
    let (agent, file) = (server.place.file("agent.sh", AGENT), server.place.file("agent.yaml", PLAN));
    let mut worker = server.start_command(&["worker", "--skills-from", &format!("bash {agent}")]);
    let ran = server.run(&["run", &file]);
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("run patched: +act_3 +think_2"), "{}", ran.err);
    let run = server.json(&["runs", "show", "last"]);
    assert_eq!(ids(&run), ["think_3", "act_3", "think_2", "act_2", "think_1", "act_1", "think_0"]);
    assert_eq!((&run["steps_total"], &run["steps_done"], &run["status"]), (&json!(7), &json!(7), &json!("completed")));
    let events = server.json(&["runs", "events", "last"]);
    let patches = events["items"].as_array().unwrap().iter().filter(|event| event["event_type"] == "RunPatched");
    let by: Vec<&str> = patches.map(|event| event["data"]["by_step"].as_str().unwrap()).collect();
    assert_eq!(by, ["think_3", "think_2", "think_1"]);
}

const OPS: &str =
    r#"[{"op": "add", "path": "/steps/fourth", "value": {"skill": "echo", "input": "${{ steps.third.output }}"}}]"#;

#[test]
fn a_run_is_previewed_patched_and_unpatched_through_a_server() {
    let server = Server::start();
    let file = server.place.file("slow.yaml", SLOW);
    let run = server.json(&["run", &file, "--detach"])["run_id"].as_str().unwrap().to_owned();
    eventually("the second step begins", || {
        let view = server.json(&["runs", "show", &run]);
        (step(&view, "second")["status"] == "running").then_some(())
    });
    let preview = server.run(&["runs", "patch", &run, "--ops", OPS, "--preview"]);
    assert_eq!(preview.code, 0, "{}", preview.err);
    assert!(preview.out.contains("would be taken") && preview.out.contains("new        fourth"), "{}", preview.out);
    let begun = r#"[{"op": "replace", "path": "/steps/second/input", "value": {"command": "true"}}]"#;
    let preview = server.run(&["runs", "patch", &run, "--ops", begun, "--preview"]);
    assert!(preview.code != 0 && preview.out.contains("would be refused"), "{}", preview.out);
    let refused = server.run(&["runs", "patch", &run, "--ops", begun]);
    assert!(refused.code != 0 && refused.err.contains("`second`"), "{}", refused.err);
    let patched = server.json(&["runs", "patch", &run, "--ops", OPS, "-m", "one more"]);
    assert_eq!((&patched["new"], &patched["existing"]), (&json!(["fourth"]), &json!(false)));
    let undone = server.run(&["runs", "patch", &run, "--undo"]);
    assert!(undone.code == 0 && undone.out.contains("is undone") && undone.out.contains("fourth"), "{}", undone.err);
    let file = server.place.file("ops.json", OPS);
    assert_eq!(server.run(&["runs", "patch", &run, "--ops", &format!("@{file}")]).code, 0);
    server.place.file("go", "");
    let watched = server.run(&["runs", "watch", &run]);
    assert_eq!(watched.code, 0, "{}", watched.err);
    let view = server.json(&["runs", "show", &run]);
    assert_eq!(step(&view, "fourth")["output"], json!({"n": 3}));
}

#[test]
fn a_run_of_another_process_is_patched_on_its_database() {
    let place = Place::new();
    let file = place.file("slow.yaml", SLOW);
    let running = place.start(&["run", &file]);
    has_happened(&place, "StepStarted", "second");
    let db = ["--db", ".milepost/milepost.db"];
    let patched = place.json(&[&["runs", "patch", "last", "--ops", OPS][..], &db].concat());
    assert_eq!(patched["new"], json!(["fourth"]));
    place.file("go", "");
    let ran = finish(running);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let run = place.json(&[&["runs", "show", "last"][..], &db].concat());
    assert_eq!((ids(&run), &run["steps_done"]), (vec!["first", "second", "third", "fourth"], &json!(4)));
    let nothing = place.run(&[&["runs", "patch", "last"][..], &db].concat());
    assert_eq!(nothing.code, 2, "{}", nothing.err);
}
