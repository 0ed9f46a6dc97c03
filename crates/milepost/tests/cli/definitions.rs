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

/// Runs SQL on the file as somebody would who owns it, past what protects it.
fn damage(place: &Place, sql: &str) {
    let database = rusqlite::Connection::open(place.path().join("runs.db")).unwrap();
    let unprotected = "PRAGMA foreign_keys = OFF; DROP TRIGGER IF EXISTS revisions_stay;";
    database.execute_batch(&format!("{unprotected} {sql}")).unwrap();
}

#[test]
fn a_damaged_database_is_looked_at_and_put_right() {
    let place = Place::new();
    let old = place.file("old.yaml", OLD);
    let tell = |args: &[&str]| place.run(&[args, &["--db", "runs.db", "--as", "ada"]].concat());
    let look = |args: &[&str]| place.run(&[args, &["--db", "runs.db"]].concat());
    assert_eq!(tell(&["deploy", &old]).code, 0);
    for topic in ["gin", "rum"] {
        let ops = json!([{"op": "replace", "path": "/steps/brief/input/topic", "value": topic}]).to_string();
        assert_eq!(tell(&["workflows", "patch", "camp", "--ops", &ops]).code, 0);
    }
    let whole = place.json(&["workflows", "show", "camp", "--db", "runs.db"]);
    assert_eq!(look(&["doctor"]).code, 0);
    damage(&place, "DELETE FROM patch_chain_members WHERE seq = 1");
    let found = look(&["doctor"]);
    assert!(found.code == 1 && found.out.contains("broken_chain: ") && found.out.contains("--repair"), "{}", found.out);
    let again = look(&["doctor"]);
    assert_eq!((again.code, &again.out), (1, &found.out), "looking changes nothing");
    let mended = tell(&["doctor", "--repair"]);
    assert_eq!(mended.code, 0, "{}{}", mended.out, mended.err);
    assert_eq!(mended.out.matches("repaired: the chain of revision ").count(), 2, "{}", mended.out);
    assert_eq!(place.json(&["workflows", "show", "camp", "--db", "runs.db"]), whole);
    damage(&place, "DELETE FROM revisions WHERE revision_id = (SELECT target_id FROM tags)");
    assert!(look(&["doctor"]).out.contains("orphaned_tag: tag `camp` points at revision "));
    let mended = tell(&["doctor", "--repair", "-o", "json"]);
    let said: serde_json::Value = serde_json::from_str(&mended.out).unwrap();
    let words = said["repaired"][0].as_str().unwrap();
    assert!(words.contains("where its move 2 had left it (move 4)"), "{words}");
    let shown = place.json(&["tags", "show", "camp", "--db", "runs.db"]);
    assert_eq!((&shown["tag_version"], &shown["moved_by"]), (&json!(4), &json!("ada")));
    let document = place.json(&["workflows", "show", "camp", "--db", "runs.db"]);
    assert_eq!(document["document"]["steps"]["brief"]["input"]["topic"], "gin");
}
