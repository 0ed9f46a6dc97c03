//! Secrets in a database that the command opens itself.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::json;

use super::{Place, Ran, finish, step};

const FLOW: &str = r#"
name: flow
steps:
  a:
    skill: shell
    secrets: {API_KEY: "secret://audio/api-key"}
    input: {command: 'echo "the key is $API_KEY" >&2; echo "{\"n\": ${#API_KEY}, \"key\": \"$API_KEY\"}"'}
"#;

fn set(place: &Place, value: &str, args: &[&str]) -> Ran {
    let mut command = place.command(&[&["secrets", "set"], args].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(value.as_bytes()).unwrap();
    finish(child)
}

/// Whether any file in a folder has this text in it.
fn holds(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
        true => holds(&path, text),
        false => std::fs::read(&path).unwrap().windows(text.len()).any(|part| part == text.as_bytes()),
    })
}

#[test]
fn a_secret_is_given_to_the_step_and_kept_nowhere_else() {
    let place = Place::new();
    let db = ["--db", ".milepost/milepost.db"];
    place.run(&["migrate"]);
    let made = set(&place, "hunter2-hunter2\n", &["audio/api-key"]);
    assert_eq!((made.code, made.out.as_str()), (0, "audio/api-key has version 1\n"), "{}", made.err);
    let flow = place.file("flow.yaml", FLOW);
    let run = place.run_json(&flow, &db);
    let a = step(&run, "a");
    assert_eq!(a["output"], json!({"n": 15, "key": "[redacted: API_KEY]"}), "{run}");
    let id = run["run_id"].as_str().unwrap();
    let logs = place.run(&["runs", "logs", id, "--db", ".milepost/milepost.db"]);
    assert!(logs.out.contains("the key is [redacted: API_KEY]"), "{}", logs.out);
    assert!(!holds(place.path(), "hunter2"), "nothing on disk has it");
    let listed = place.json(&[&["secrets", "list"], &db[..]].concat());
    assert_eq!((&listed["items"][0]["name"], &listed["items"][0]["version"]), (&json!("audio/api-key"), &json!(1)));
    let removed = place.run(&[&["secrets", "remove", "audio/api-key"], &db[..]].concat());
    assert_eq!(removed.code, 0, "{}", removed.err);
    let run = place.run_json(&flow, &db);
    assert_eq!(step(&run, "a")["error"]["code"], "unknown_secret", "{run}");
}

#[test]
fn the_key_is_changed_in_three_steps() {
    let place = Place::new();
    let db = ["--db", "runs.db"];
    let refused = set(&place, "x", &["a", "--db", "runs.db"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("`milepost secrets keygen`"), "{}", refused.err);
    let made = place.run(&["secrets", "keygen", "--out", "secrets.key"]);
    assert_eq!(made.code, 0, "{}", made.err);
    assert_eq!(place.run(&["secrets", "keygen", "--out", "secrets.key"]).code, 2, "a key is never overwritten");
    for value in ["one", "two"] {
        assert_eq!(set(&place, value, &["audio/api-key", "--db", "runs.db"]).code, 0);
    }
    let new = place.run(&["secrets", "keygen"]).out;
    let rotate = |key: &str| {
        let mut command = place.command(&[&["secrets", "rotate", "-o", "json"], &db[..]].concat());
        Ran::from(command.env("MILEPOST_SECRETS_KEY", key.trim()).output().unwrap())
    };
    let rotated = rotate(&new);
    assert_eq!((rotated.code, rotated.out.as_str()), (0, "{\"resealed\":2,\"unreadable\":0}\n"), "{}", rotated.err);
    // Without the old one all is well; with another one nothing opens.
    std::fs::write(place.path().join("secrets.key"), &new).unwrap();
    let flow = place.file("flow.yaml", FLOW);
    assert_eq!(step(&place.run_json(&flow, &db), "a")["output"]["n"], 3);
    std::fs::remove_file(place.path().join("secrets.key")).unwrap();
    let other = place.run(&["secrets", "keygen"]).out;
    let rotated = rotate(&other);
    assert_eq!((rotated.code, rotated.out.as_str()), (1, "{\"resealed\":0,\"unreadable\":2}\n"), "{}", rotated.err);
}

#[test]
fn files_and_variables_hold_secrets_too() {
    let place = Place::new();
    let flow = place.file("flow.yaml", FLOW);
    let outcome = |variables: &[(&str, &str)]| {
        let mut command = place.command(&["run", &flow, "--db", "runs.db", "-o", "json"]);
        let ran = Ran::from(command.envs(variables.iter().copied()).output().unwrap());
        let run: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let a = step(&run, "a");
        if a["output"].is_null() { a["error"]["code"].clone() } else { a["output"]["n"].clone() }
    };
    assert_eq!(outcome(&[]), "unknown_secret");
    let variable = ("MILEPOST_SECRET_AUDIO_API_KEY", "12345");
    assert_eq!(outcome(&[variable]), 5);
    std::fs::create_dir_all(place.path().join("mounted/audio")).unwrap();
    std::fs::write(place.path().join("mounted/audio/api-key"), "1234567\n").unwrap();
    assert_eq!(outcome(&[variable, ("MILEPOST_SECRETS_FOLDER", "mounted")]), 7);
    assert_eq!(outcome(&[variable, ("MILEPOST_SECRETS_ENV_PREFIX", "OTHER_")]), "unknown_secret");
}

/// What a step has not declared does not reach it: neither the server's own settings nor anything else.
#[test]
fn only_declared_variables_reach_a_program() {
    let place = Place::new();
    let flow = place.file(
        "flow.yaml",
        "name: env\nsteps:\n  a: {skill: shell, env: [REGION, UNSET], input: {argv: [env], env: {OWN: mine}}}\n",
    );
    let mut command = place.command(&["run", &flow, "--db", "runs.db", "-o", "json"]);
    let told = [
        ("REGION", "eu"),
        ("OTHER", "hidden"),
        ("MILEPOST_SECRETS_KEY", &*"0a".repeat(32)),
        ("TZ", "UTC"),
        ("MILEPOST_ENV_ALLOWED", "UNSET"),
    ];
    let ours = [("MILEPOST_DB", "other.db"), ("MILEPOST_SECRET_AUDIO_API_KEY", "hidden"), ("MILEPOST_TOKEN", "hidden")];
    let ran = Ran::from(command.envs(told).envs(ours).output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let lines = place.run(&["runs", "logs", "last", "--db", "runs.db", "-o", "json"]).out;
    let mut names: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].as_str().unwrap().to_owned())
        .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
        .collect();
    names.sort();
    let known = ["HOME", "LANG", "LC_ALL", "PATH", "TERM", "TMPDIR", "USER"];
    names.retain(|name| !known.contains(&name.as_str()));
    let ours = ["MILEPOST_ARTIFACTS", "MILEPOST_ATTEMPT", "MILEPOST_RUN_ID", "MILEPOST_STEP_ID"];
    let expected = [&ours[..], &["OWN", "REGION", "TRACEPARENT", "TZ"]].concat();
    assert_eq!(names, expected, "{lines}");
}
