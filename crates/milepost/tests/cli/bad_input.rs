//! What is wrong is refused at the door: its own message, exit status 2, and nothing stored.

use std::fmt::Write as _;

use super::Place;

/// A document with this problem is refused by `validate` and by `run`, and nothing is stored.
fn refused(document: &str, code: &str, says: &str) {
    let place = Place::new();
    let file = place.file("bad.yaml", document);
    let problems = place.run(&["validate", &file, "-o", "json"]);
    assert_eq!(problems.code, 2, "{}", problems.out);
    let list: serde_json::Value = serde_json::from_str(&problems.out).expect("a list as JSON");
    let codes: Vec<&str> =
        list.as_array().into_iter().flatten().filter_map(|problem| problem["code"].as_str()).collect();
    assert!(codes.contains(&code), "{codes:?}");
    let ran = place.run(&["run", &file]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains(says), "`{says}` is not in: {}", &ran.err[..ran.err.len().min(2000)]);
    assert!(ran.out.is_empty());
    assert_eq!(place.stored_runs(), 0);
}

/// The document is in order; what comes with it is not.
fn refused_with(document: &str, args: &[&str], code: &str, says: &str) {
    let place = Place::new();
    let file = place.file("good.yaml", document);
    let ran = place.run(&[&["run", &file, "-o", "json"], args].concat());
    assert_eq!(ran.code, 2, "{}{}", ran.out, ran.err);
    let error: serde_json::Value = serde_json::from_str(&ran.err).unwrap_or_else(|_| panic!("{}", ran.err));
    assert_eq!(error["code"], code, "{error}");
    assert!(error["message"].as_str().is_some_and(|message| message.contains(says)), "{error}");
    assert_eq!(place.stored_runs(), 0);
}

const GOOD: &str = "name: good\nsteps:\n  a: {skill: noop}\n";

#[test]
fn not_yaml() {
    refused("name: [unclosed\nsteps: {", "not_yaml", "bad.yaml:");
}

#[test]
fn an_unknown_key_with_what_was_meant() {
    refused("name: x\nsteps:\n  a: {skill: noop, inptu: {}}\n", "unknown_key", "did you mean `input`?");
}

#[test]
fn a_wrong_type() {
    refused("name: x\nsteps:\n  a: {skill: noop, timeout_ms: soon}\n", "wrong_type", "bad.yaml:3:");
}

#[test]
fn a_step_twice() {
    refused("name: x\nsteps:\n  a: {skill: noop}\n  a: {skill: noop}\n", "duplicate_step", "bad.yaml:4:");
    refused("name: x\nsteps:\n  - {id: a, skill: noop}\n  - {id: a, skill: noop}\n", "duplicate_step", "`a`");
}

#[test]
fn a_cycle_with_its_way() {
    let document = "name: x\nsteps:\n  a: {skill: noop, depends_on: [b]}\n  b: {skill: noop, depends_on: [a]}\n";
    refused(document, "cycle", "a");
}

#[test]
fn an_unknown_reference() {
    let document =
        "name: x\nsteps:\n  brief: {skill: noop}\n  b: {skill: echo, input: {v: \"${{ steps.breif.output }}\"}}\n";
    refused(document, "unknown_step", "did you mean `brief`?");
}

#[test]
fn a_bad_expression() {
    refused("name: x\nsteps:\n  a: {skill: echo, input: {v: \"${{ 1 + }}\"}}\n", "bad_expression", "/steps/a/input/v");
}

#[test]
fn an_expression_too_deep_or_too_long() {
    let deep = format!("{}1{}", "(".repeat(40), ")".repeat(40));
    let document = |expression: &str| {
        format!("name: x\nsteps:\n  a: {{skill: echo, input: {{v: \"${{{{ {expression} }}}}\"}}}}\n")
    };
    refused(&document(&deep), "expression_too_deep", "deep");
    let long = format!("1{}", " + 1".repeat(1100));
    refused(&document(&long), "expression_too_long", "4096");
}

#[test]
fn an_integer_that_would_be_rounded() {
    refused("name: x\nsteps:\n  a: {skill: echo, input: {n: 9007199254740993}}\n", "integer_too_large", "bad.yaml:3:");
    refused_with(GOOD, &["--payload", r#"{"n": 9007199254740993}"#], "bad_payload", "9007199254740991");
}

#[test]
fn a_document_above_four_mebibytes() {
    let document = format!("{GOOD}# {}\n", "x".repeat(4 * 1024 * 1024));
    refused(&document, "document_too_large", "4194304");
}

#[test]
fn more_than_a_hundred_thousand_steps() {
    let mut document = "name: x\nsteps:\n".to_owned();
    for n in 0..100_001 {
        let _ = writeln!(document, " s{n}: {{skill: noop}}");
    }
    refused(&document, "too_many_steps", "100000");
}

#[test]
fn a_payload_that_is_not_what_params_asks_for() {
    let document = "name: x\nparams: {type: object, required: [topic], properties: {n: {type: integer}}}\nsteps:\n  a: {skill: noop}\n";
    refused_with(document, &["--payload", r#"{"n": "many"}"#], "payload_invalid", "/n");
}

#[test]
fn a_payload_above_one_mebibyte() {
    let place = Place::new();
    let payload = place.file("payload.json", &format!("{{\"text\": \"{}\"}}", "x".repeat(1024 * 1024)));
    refused_with(GOOD, &["--payload", &format!("@{payload}")], "payload_too_large", "pass a reference");
}

#[test]
fn a_payload_that_is_not_json() {
    refused_with(GOOD, &["--payload", "{topic: tea}"], "bad_payload", "is not JSON");
}

#[test]
fn a_skill_that_nobody_has() {
    refused_with("name: x\nsteps:\n  a: {skill: video.render}\n", &[], "unknown_skill", "`video.render` (step `a`)");
}

#[test]
fn a_limit_that_does_not_exist() {
    refused_with(GOOD, &["--limit", "stepz=3"], "unknown_limit", "milepost limits");
}

#[test]
fn a_limit_is_set_and_holds() {
    let place = Place::new();
    let file = place.file("two.yaml", "name: x\nsteps:\n  a: {skill: noop}\n  b: {skill: noop}\n");
    assert_eq!(place.run(&["run", &file, "--limit", "steps=1"]).code, 2);
    assert_eq!(place.run(&["--limit", "steps=1", "run", &file]).code, 2);
    assert_eq!(place.run(&["run", &file, "--limit", "steps=2"]).code, 0);
}

#[test]
fn a_file_that_is_not_there() {
    let ran = Place::new().run(&["run", "missing.yaml"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.starts_with("error: missing.yaml cannot be read"), "{}", ran.err);
    assert!(ran.err.contains("\nhelp: "), "{}", ran.err);
}

#[test]
fn a_database_that_is_not_ours() {
    let place = Place::new();
    let file = place.file("good.yaml", GOOD);
    let text = place.file("notes.txt", &"not a database at all, only words. ".repeat(100));
    let ran = place.run(&["run", &file, "--db", &text]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("is not an SQLite database"), "{}", ran.err);
    let other = place.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let ran = place.run(&["run", &file, "--db", other.to_str().unwrap()]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("of another program"), "{}", ran.err);
}

#[test]
fn a_database_of_a_newer_version() {
    let place = Place::new();
    let file = place.file("good.yaml", GOOD);
    assert_eq!(place.run(&["migrate"]).code, 0);
    let database = rusqlite::Connection::open(place.path().join(".milepost/milepost.db")).unwrap();
    database.execute("INSERT INTO schema_migrations (version, name, applied_at) VALUES (999, 'later', 0)", []).unwrap();
    for args in [&["run", &file][..], &["runs", "list"], &["doctor"], &["recover"]] {
        let ran = place.run(args);
        assert_eq!(ran.code, 2, "{args:?}");
        assert!(ran.err.contains("newer milepost"), "{}", ran.err);
        assert!(ran.err.contains("help: upgrade milepost"), "{}", ran.err);
    }
}

#[test]
fn an_output_that_is_too_large_fails_its_step_and_says_what_to_do() {
    let place = Place::new();
    let command = r#"printf '{\"text\": \"'; head -c 300000 /dev/zero | tr '\\0' x; printf '\"}\\n'"#;
    let file = place
        .file("large.yaml", &format!("name: x\nsteps:\n  a: {{skill: shell, input: {{command: \"{command}\"}}}}\n"));
    let ran = place.run(&["run", &file, "--limit", "large_output_bytes=290000"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.out.contains("output_too_large"), "{}", ran.out);
    assert!(ran.out.contains("store it elsewhere and return a reference"), "{}", ran.out);
}
