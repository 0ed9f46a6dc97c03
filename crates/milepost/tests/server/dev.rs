//! `milepost dev`: one command and nothing else.

use serde_json::{Value, json};

use super::{Place, shell};

#[test]
fn it_says_where_it_is_and_what_to_try() {
    let place = Place::new();
    let server = place.dev(&[]);
    assert_eq!(server.ready, format!("listening on {}", server.url));
    server.says("Try this in another terminal:");
    let said = server.said();
    for text in [format!("{}/api/v1", server.url), format!("{}/docs", server.url), ".milepost/milepost.db".to_owned()] {
        assert!(said.contains(&text), "{said}");
    }
    assert!(place.path().join(".milepost/milepost.db").exists());
    for path in ["/healthz", "/readyz", "/docs", "/"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let said = server.stop();
    assert!(said.contains("stopping: ") && said.trim_end().ends_with("stopped"), "{said}");
}

#[test]
fn what_it_says_to_try_works_as_it_stands() {
    let place = Place::new();
    let server = place.dev(&[]);
    server.says("}}}}}'\n");
    let said = server.said();
    let command = said.lines().find(|line| line.trim_start().starts_with("curl ")).unwrap();
    let output = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
    let started: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = server.ended_run(started["run_id"].as_str().unwrap());
    assert_eq!(run["status"], "completed", "{run}");
    assert_eq!(run["output"], json!({"greet": {"stdout": "hello"}}));
}

#[test]
fn programs_read_one_line_when_it_is_ready() {
    let place = Place::new();
    let server = place.dev(&["-o", "json", "--data", "kept"]);
    let ready: Value = serde_json::from_str(&server.ready).unwrap();
    assert_eq!(ready["url"], server.url);
    assert_eq!(ready["data"], "kept");
    assert_eq!(ready["pid"], server.child.id());
    assert_eq!(ready["node"].as_str().unwrap().len(), 16);
    let file: Value = serde_json::from_slice(&std::fs::read(place.path().join("kept/server.json")).unwrap()).unwrap();
    assert_eq!(file, json!({"url": server.url, "pid": server.child.id()}));
    assert_eq!(server.get("/healthz").body["status"], "ok");
    server.stop();
    assert!(!place.path().join("kept/server.json").exists());
}

#[test]
fn a_document_with_a_shell_step_runs() {
    let place = Place::new();
    let server = place.dev(&[]);
    let run = server.start_run(&shell("echo '{\"n\": 42}'"));
    let run = server.ended_run(&run);
    assert_eq!((&run["status"], &run["output"]), (&json!("completed"), &json!({"only": {"n": 42}})));
}

#[test]
fn a_taken_port_is_passed_over() {
    let place = Place::new();
    let first = place.dev(&[]);
    let taken = format!("127.0.0.1:{}", first.port());
    let second = place.start(&["dev", "--listen", &taken, "--data", "second"]);
    assert!(second.port() > first.port(), "{}", second.url);
    second.says(&format!("port {} is taken", first.port()));
    assert_eq!(second.get("/readyz").status, 200);
}

#[test]
fn the_file_of_a_later_server_is_left_alone() {
    let place = Place::new();
    let (first, second) = (place.dev(&[]), place.dev(&[]));
    first.stop();
    let file: Value =
        serde_json::from_slice(&std::fs::read(place.path().join(".milepost/server.json")).unwrap()).unwrap();
    assert_eq!(file["url"], second.url);
}

#[test]
fn it_is_for_this_machine_alone() {
    let place = Place::new();
    let ran = place.run(&["dev", "--listen", "0.0.0.0:0"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("use `milepost serve`"), "{}", ran.err);
    assert!(!place.path().join(".milepost").exists());
}

#[test]
fn pages_of_other_sites_are_kept_out() {
    let place = Place::new();
    let server = place.dev(&[]);
    let rebound = server.request("GET", "/api/v1/runs").header("host", "evil.example:7400").send();
    assert_eq!((rebound.status, &rebound.body["code"]), (403, &json!("foreign_host")));
    let foreign = server.request("GET", "/api/v1/runs").header("origin", "http://evil.example").send();
    assert_eq!((foreign.status, &foreign.body["code"]), (403, &json!("foreign_origin")));
    assert_eq!(server.request("GET", "/api/v1/runs").header("origin", &server.url).send().status, 200);
}

#[test]
fn variables_for_other_commands_are_told() {
    let place = Place::new();
    let mut command = place.command(&["dev", "--listen", "127.0.0.1:0"]);
    command.env("MILEPOST_DB", "elsewhere.db");
    let server = super::Server::start(command);
    server.says("MILEPOST_DB is set");
    assert!(place.path().join(".milepost/milepost.db").exists());
}

#[test]
fn commands_in_the_same_folder_find_it() {
    let place = Place::new();
    let server = place.dev(&[]);
    let run = server.start_run(&shell("echo '{\"n\": 1}'"));
    server.ended_run(&run);
    // Lists may be a moment behind the log.
    super::eventually("the run in the list", || {
        let listed = place.run(&["runs", "list", "-o", "json"]);
        assert_eq!(listed.code, 0, "{}", listed.err);
        let listed: Value = serde_json::from_str(&listed.out).unwrap();
        (listed["items"][0]["run_id"] == run.as_str()).then_some(())
    });
    place.file("hello.yaml", "name: hello\nsteps: {one: {skill: shell, input: {command: \"echo $PPID\"}}}\n");
    let ran = place.run(&["run", "hello.yaml", "-o", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(ran["output"]["one"], server.child.id(), "the server has run it");
}
