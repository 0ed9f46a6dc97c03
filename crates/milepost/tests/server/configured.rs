//! Settings from the file, the environment and flags.

use serde_json::Value;

use super::{Place, Ran, ended};

fn print_config(place: &Place, variables: &[(&str, &str)], flags: &[&str]) -> Ran {
    let mut command = place.command(&[&["serve", "--print-config"], flags].concat());
    command.envs(variables.iter().copied());
    ended(command)
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() {
    let place = Place::new();
    place.file(
        "milepost.toml",
        "listen = '127.0.0.1:1'\ndrain_seconds = 1\nallow_shell = true\ninline_concurrency = 1\n",
    );
    let variables =
        [("MILEPOST_LISTEN", "127.0.0.1:2"), ("MILEPOST_DRAIN_SECONDS", "2"), ("MILEPOST_ALLOW_SHELL", "true")];
    let ran =
        print_config(&place, &variables, &["--listen", "127.0.0.1:3", "--allow-shell=false", "--limit", "steps=7"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for line in [
        "listen = \"127.0.0.1:3\"  # --listen",
        "drain_seconds = 2  # MILEPOST_DRAIN_SECONDS",
        "inline_concurrency = 1  # milepost.toml",
        "allow_shell = false  # --allow-shell",
        "completed_runs = \"90d\"  # default",
        "steps = 7  # --limit",
    ] {
        assert!(ran.out.lines().any(|shown| shown == line), "{line} is not in\n{}", ran.out);
    }
    assert!(!place.path().join(".milepost").exists());
}

#[test]
fn another_file_may_be_named() {
    let place = Place::new();
    place.file("milepost.toml", "listen = '127.0.0.1:1'\n");
    place.file("etc/other.toml", "listen = '127.0.0.1:2'\n");
    let named = [
        print_config(&place, &[], &["--config", "etc/other.toml"]),
        print_config(&place, &[("MILEPOST_CONFIG", "etc/other.toml")], &[]),
    ];
    for ran in named {
        assert!(ran.out.starts_with("listen = \"127.0.0.1:2\"  # etc/other.toml\n"), "{}", ran.out);
    }
    let missing = print_config(&place, &[], &["--config", "nowhere.toml"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("the configuration nowhere.toml cannot be read"), "{}", missing.err);
}

#[test]
fn the_database_is_the_one_that_is_named_last() {
    let place = Place::new();
    let shown = |variables: &[(&str, &str)], flags: &[&str]| {
        let ran = print_config(&place, variables, flags);
        ran.out.lines().find(|line| line.starts_with("db = ")).unwrap().to_owned()
    };
    assert_eq!(shown(&[], &[]), "db = \"./.milepost/milepost.db\"  # default");
    assert_eq!(shown(&[], &["--data", "kept"]), "db = \"kept/milepost.db\"  # --data");
    place.file("milepost.toml", "db = 'file.db'\n");
    assert_eq!(shown(&[], &["--data", "kept"]), "db = \"file.db\"  # milepost.toml");
    let variable = [("MILEPOST_DB", "postgres://ada:secret@db/m")];
    assert_eq!(shown(&variable, &[]), "db = \"postgres://ada:********@db/m\"  # MILEPOST_DB");
    assert_eq!(shown(&variable, &["--db", "flag.db"]), "db = \"flag.db\"  # --db");
}

#[test]
fn programs_get_the_settings_as_json() {
    let place = Place::new();
    let ran = print_config(&place, &[], &["-o", "json"]);
    let settings: Value = serde_json::from_str(&ran.out).unwrap();
    let first = &settings["items"][0];
    assert_eq!((first["key"].as_str(), first["from"].as_str()), (Some("listen"), Some("default")));
}

#[test]
fn a_bad_file_is_told_with_its_line_and_nothing_is_started() {
    let place = Place::new();
    for (text, said) in [
        ("\nlisen = 'x'\n", "error: milepost.toml:2:1: unknown key `lisen`\nhelp: known here: one of `listen`, `db`"),
        ("listen = 'x'\n", "error: milepost.toml:1:10: `x` is not an address with a port\nhelp: write it as in"),
        ("allow_shell = 1\n", "error: milepost.toml:1:15: invalid type: integer `1`, expected a boolean"),
        ("[retention]\ncompleted_runs = 90\n", "error: milepost.toml:2:18: "),
        (
            "[limits]\nstep = 1\n",
            "error: milepost.toml:2:1: unknown key `step`\nhelp: known here: one of `document_bytes`",
        ),
        ("listen = \n", "error: milepost.toml:1:10: "),
    ] {
        place.file("milepost.toml", text);
        let ran = place.run(&["serve"]);
        assert_eq!(ran.code, 2);
        assert!(ran.err.starts_with(said), "{}", ran.err);
    }
    assert!(!place.path().join(".milepost").exists());
}

#[test]
fn a_bad_variable_is_told_by_its_name() {
    let place = Place::new();
    let ran = print_config(&place, &[("MILEPOST_ALLOW_SHELL", "perhaps")], &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.starts_with("error: MILEPOST_ALLOW_SHELL: `perhaps` is neither true nor false\n"), "{}", ran.err);
}

#[test]
fn limits_of_the_file_hold() {
    let place = Place::new();
    place.file("milepost.toml", "[limits]\nsteps = 1\n");
    let server = place.serve(&[]);
    let document = serde_json::json!({"name": "two", "steps": {"a": {"skill": "noop"}, "b": {"skill": "noop"}}});
    let refused = server.post("/api/v1/runs", &serde_json::json!({ "document": document }));
    assert_eq!(refused.status, 422, "{}", refused.body);
}

#[test]
fn a_ready_server_logs_what_it_is() {
    let place = Place::new();
    let server = place.serve(&[]);
    server.says("ready");
    let said = server.said();
    let line = said.lines().find(|line| line.contains("ready")).unwrap();
    for part in [&*server.url, "./.milepost/milepost.db", "node", env!("CARGO_PKG_VERSION")] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
}

#[test]
fn logs_are_json_when_the_file_says_so_unless_a_flag_does_not() {
    let place = Place::new();
    place.file("milepost.toml", "[log]\nformat = 'json'\n");
    let server = place.serve(&[]);
    server.says("\"ready\"");
    let said = server.said();
    let line = said.lines().find(|line| line.contains("\"ready\"")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!((line["message"].as_str(), line["fields"]["address"].as_str()), (Some("ready"), Some(&*server.url)));
    assert!(said.lines().all(|line| line.starts_with('{')), "{said}");
    server.stop();
    let server = place.serve(&["--log-format", "text"]);
    server.says("ready");
    assert!(!server.said().starts_with('{'), "{}", server.said());
}

#[test]
fn a_server_is_measured() {
    let place = Place::new();
    let server = place.serve(&[]);
    let metrics = server.get("/metrics");
    assert_eq!(metrics.status, 200);
    assert!(metrics.body.as_str().unwrap().contains("milepost_"), "{}", metrics.body);
}
