//! `dev`, `serve` and `token` as the real program: what is announced, answered, refused, and what a server leaves behind.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod artifacts;
mod auth;
mod blobs;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "only the database is needed here")]
mod common;
mod configured;
mod contents;
mod definitions;
mod dev;
mod edge;
mod ending;
#[path = "../../../store/tests/moto/mod.rs"]
mod moto;
mod neighbours;
mod postgres;
mod push;
mod receiver;
mod redis;
#[path = "../../../engine/tests/redis/server.rs"]
mod redis_server;
mod secrets;
#[path = "../common/server.rs"]
mod servers;
mod watched;
mod watching;

use serde_json::{Value, json};
use servers::{Place, Ran, Server, ended, eventually};

/// A document of one `shell` step.
fn shell(command: &str) -> Value {
    json!({"name": "shell.one", "steps": {"only": {"skill": "shell", "input": {"command": command}}}})
}

/// Appends a line to the file `began`, then waits until the file `go` is there: the test decides how long it takes.
fn slow(place: &Place) -> Value {
    let folder = place.path().display();
    shell(&format!("echo x >> {folder}/began; while [ ! -e {folder}/go ]; do sleep 0.02; done; echo '{{\"n\": 1}}'"))
}

/// How often the slow step has begun.
fn begun(place: &Place) -> usize {
    std::fs::read_to_string(place.path().join("began")).unwrap_or_default().lines().count()
}

fn has_begun(place: &Place, times: usize) {
    eventually(&format!("the step to begin for the {times}. time"), || (begun(place) == times).then_some(()));
}
