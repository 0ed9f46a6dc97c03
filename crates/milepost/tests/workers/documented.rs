//! What the documentation shows works as it stands there.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{MILEPOST, Process, Server, repository};

/// Runs a document to its end on a server whose workers are there, and answers its output.
fn run(server: &Server, document: &str, folder: &Path) -> Value {
    let file = folder.join("document.yaml");
    std::fs::write(&file, document).unwrap();
    let mut command = Command::new(MILEPOST);
    command.args(["run", "-o", "json", "--watch", "--server", &server.url]).arg(&file);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let ended: Value =
        serde_json::from_str(last).unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(ended["status"], json!("completed"), "{ended:#}");
    ended["output"].clone()
}

#[test]
fn skills_in_bash_and_in_node_are_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &folder.path().join("runs.db").display().to_string(), "127.0.0.1:0");
    let start = |skills: String| {
        let mut command = Command::new(MILEPOST);
        Process::start(command.args(["worker", "--server", &server.url, "--skills-from", &skills]))
    };
    let examples = repository().join("examples/workers");
    let _bash = start(format!("bash {}", examples.join("words.sh").display()));
    let output =
        run(&server, "name: w\nsteps: {a: {skill: words.count, input: {text: one two three}}}\n", folder.path());
    assert_eq!(output, json!({"a": {"words": 3}}));
    let _node = start(format!("node {}", examples.join("shots.mjs").display()));
    let shots = std::fs::read_to_string(repository().join("crates/sdk/examples/shots.yaml")).unwrap();
    let output = run(&server, &shots, folder.path());
    assert_eq!(output["sheet"]["files"].as_array().unwrap().len(), 2, "{output}");
}

#[test]
fn the_quick_start_in_rust_is_the_example_and_works() {
    let docs = std::fs::read_to_string(repository().join("docs/workers.md")).unwrap();
    let example = std::fs::read_to_string(repository().join("crates/sdk/examples/worker.rs")).unwrap();
    let code = example.split_once("\n\n").unwrap().1;
    assert!(docs.contains(code.trim_end()), "docs/workers.md shows crates/sdk/examples/worker.rs as it is");
    assert!(code.lines().count() < 30, "a quick start is short");
    let built = Path::new(MILEPOST).parent().unwrap().join("examples/worker");
    assert!(
        built.exists(),
        "the example is built with the tests of the workspace: cargo build -p milepost-sdk --examples"
    );
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &folder.path().join("runs.db").display().to_string(), "127.0.0.1:0");
    let _worker = Process::start(Command::new(built).env("MILEPOST_URL", &server.url));
    let shots = std::fs::read_to_string(repository().join("crates/sdk/examples/shots.yaml")).unwrap();
    assert_eq!(run(&server, &shots, folder.path()), json!({"sheet": {"files": ["wide.png", "close.png"]}}));
}
