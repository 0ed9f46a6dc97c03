//! The real program, run in folders of its own: what it prints and how it exits.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod artifacts;
mod bad_input;
mod cache;
mod definitions;
mod examples;
mod looking;
mod patches;
mod processes;
mod queues;
mod secrets;
mod server;
mod updates;
mod verbs;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A folder with a database of its own.
struct Place {
    folder: TempDir,
}

/// What a command did.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Place {
    fn new() -> Place {
        Place { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_milepost"));
        command.args(args).current_dir(self.path()).stdin(Stdio::null());
        for name in ["MILEPOST_DB", "MILEPOST_URL", "MILEPOST_TOKEN", "RUST_LOG", "CLICOLOR_FORCE"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().expect("the program starts"))
    }

    /// Starts it and does not wait.
    fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path.to_str().expect("a path in UTF-8").to_owned()
    }

    /// Runs a document and answers the run as JSON.
    fn run_json(&self, file: &str, more: &[&str]) -> Value {
        let ran = self.run(&[&["run", file, "-o", "json"], more].concat());
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err))
    }

    fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["-o", "json"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}", ran.out))
    }

    fn stored_runs(&self) -> usize {
        // Named, so that a server that may run on this machine is not asked where there is no database.
        self.json(&["runs", "list", "--db", ".milepost/milepost.db"])["items"].as_array().expect("a list").len()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Waits for a program that was started, but not for ever.
fn finish(mut child: Child) -> Ran {
    let begun = Instant::now();
    while child.try_wait().expect("the program can be looked at").is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().expect("the program can be ended");
            let ran = Ran::from(child.wait_with_output().expect("what the program said"));
            panic!("the program did not end within 60 s: {}{}", ran.out, ran.err);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ran::from(child.wait_with_output().expect("what the program said"))
}

fn example(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "examples", name].iter().collect();
    path.to_str().expect("a path in UTF-8").to_owned()
}

fn step<'v>(run: &'v Value, id: &str) -> &'v Value {
    let steps = run["steps"].as_array().expect("a list of steps");
    steps.iter().find(|step| step["step_id"] == id).unwrap_or_else(|| panic!("no step {id}"))
}

/// All files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| if path.is_dir() { files_below(&path) } else { vec![path] };
    std::fs::read_dir(folder).unwrap().flat_map(|entry| below(entry.unwrap().path())).collect()
}
