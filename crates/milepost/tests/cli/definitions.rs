//! What is different between documents.

use serde_json::json;

use super::Place;

const OLD: &str = "name: camp\nsteps:\n  brief: {skill: echo, input: {topic: tea, n: 1}}\n  old: {skill: noop}\n";
const NEW: &str = "name: camp\non_failure: continue\nsteps:\n  brief: {skill: echo, input: {topic: rum, n: 1}}\n  cut: {skill: noop, depends_on: [brief]}\n";

#[test]
fn files_are_compared_step_by_step() {
    let place = Place::new();
    place.file("old.yaml", OLD);
    place.file("new.yaml", NEW);
    let ran = place.run(&["diff", "old.yaml", "new.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let (title, rest) = ran.out.split_once('\n').unwrap();
    assert!(title.starts_with("old.yaml (sha256:") && title.contains(" → new.yaml (sha256:"), "{title}");
    assert_eq!(
        rest,
        "~ settings\n  + on_failure: \"continue\"\n\n~ step brief\n  - input.topic: \"tea\"\n  + input.topic: \"rum\"\n\n\
         + step cut\n  + depends_on: [\"brief\"]\n  + skill: \"noop\"\n\n- step old\n  - skill: \"noop\"\n\n\
         1 step added, 1 removed, 1 changed; 1 setting changed\n"
    );
    let coloured = place.command(&["diff", "old.yaml", "new.yaml"]).env("CLICOLOR_FORCE", "1").output().unwrap();
    assert!(String::from_utf8(coloured.stdout).unwrap().contains("\u{1b}[32m+ input.topic: \"rum\""));
}

#[test]
fn a_file_is_compared_with_what_is_deployed() {
    let place = Place::new();
    let (old, new) = (place.file("old.yaml", OLD), place.file("new.yaml", NEW));
    assert_eq!(place.run(&["deploy", &old, "--db", "runs.db"]).code, 0);
    let same = place.run(&["diff", "camp", &old, "--exit-code", "--db", "runs.db"]);
    assert_eq!((same.code, same.out.lines().last()), (0, Some("no differences")), "{}", same.err);
    let other = place.run(&["diff", "camp", &new, "--exit-code", "--db", "runs.db", "-o", "json"]);
    assert_eq!(other.code, 1, "{}", other.err);
    let found: serde_json::Value = serde_json::from_str(&other.out).unwrap();
    assert_eq!(found["ops"][1], json!({"op": "replace", "path": "/steps/brief/input/topic", "value": "rum"}));
    assert_eq!(place.run(&["diff", &new, "nothing", "--db", "runs.db"]).code, 2);
}

#[test]
fn a_run_of_a_file_moves_no_tag() {
    let place = Place::new();
    let (old, new) = (place.file("old.yaml", OLD), place.file("new.yaml", NEW));
    assert_eq!(place.run(&["run", &old, "--db", "runs.db"]).code, 0);
    assert_eq!(place.run(&["tags", "--db", "runs.db"]).out, "no tags\n");
    assert_eq!(place.run(&["deploy", &old, "--db", "runs.db"]).code, 0);
    let before = place.json(&["tags", "show", "camp", "--db", "runs.db"]);
    assert_eq!(place.run(&["run", &new, "--db", "runs.db"]).code, 0);
    assert_eq!(place.json(&["tags", "show", "camp", "--db", "runs.db"]), before);
}

#[test]
fn a_merge_that_does_not_fit_is_told_with_both_sides() {
    let place = Place::new();
    let old = place.file("old.yaml", OLD);
    let tell = |args: &[&str]| place.run(&[args, &["--db", "runs.db", "--as", "ada"]].concat());
    let topic = |tag: &str, topic: &str| {
        let ops = json!([{"op": "replace", "path": "/steps/brief/input/topic", "value": topic}]).to_string();
        tell(&["workflows", "patch", tag, "--ops", &ops])
    };
    assert_eq!(tell(&["deploy", &old]).code, 0);
    assert_eq!(tell(&["tags", "set", "camp.next", "camp"]).code, 0);
    assert_eq!((topic("camp", "gin").code, topic("camp.next", "rum").code), (0, 0));
    let ran = tell(&["tags", "merge", "camp", "camp.next"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    let said = "both changed /steps/brief/input/topic\n  both sides changed it, and not to the same\n    \
                base    \"tea\"\n    ours    \"gin\"\n    theirs  \"rum\"\n";
    assert!(ran.err.contains(said) && ran.err.contains("error: camp.next was not merged into camp\n"), "{}", ran.err);
    let log = place.run(&["tags", "log", "camp", "--db", "runs.db"]).out;
    assert!(log.starts_with("@ 2  move  sha256:") && log.contains("← camp\n● 1  move"), "{log}");
}
