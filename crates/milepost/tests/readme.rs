//! The README's tour and what other pages show, run as it stands there: files, commands, and every line of output.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

#[test]
fn the_tour_of_the_readme_is_true() {
    let mut tour = Tour::new();
    assert!(tour.walk("README.md") >= 25, "the README has fewer commands than it had");
}

#[test]
fn the_page_about_the_api_is_true() {
    let mut tour = Tour::new();
    tour.serve();
    assert!(tour.walk("docs/api.md") >= 6, "the page has fewer commands than it had");
}

#[test]
fn the_page_about_workers_is_true() {
    let mut tour = Tour::new();
    tour.serve();
    assert!(tour.walk("docs/workers.md") >= 7, "the page has fewer commands than it had");
}

#[test]
fn the_page_about_artifacts_is_true() {
    let mut tour = Tour::new();
    tour.serve();
    assert!(tour.walk("docs/artifacts.md") >= 12, "the page has fewer commands than it had");
}

#[test]
fn the_page_about_definitions_is_true() {
    let mut tour = Tour::new();
    tour.serve();
    assert!(tour.walk("docs/definitions.md") >= 29, "the page has fewer commands than it had");
}

#[test]
fn the_page_about_results_is_true() {
    let mut tour = Tour::new();
    tour.serve();
    assert!(tour.walk("docs/cache.md") >= 11, "the page has fewer commands than it had");
}

#[test]
fn the_page_about_rebuilds_is_true() {
    let mut tour = Tour::new();
    tour.serve();
    assert!(tour.walk("docs/rebuilds.md") >= 9, "the page has fewer commands than it had");
}

/// A folder in which the commands of a page are typed, one after the other, with at most one server in the background.
struct Tour {
    root: PathBuf,
    folder: TempDir,
    server: Option<Child>,
    /// Where the server listens: 7400 may be taken.
    address: String,
}

impl Drop for Tour {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Tour {
    fn new() -> Tour {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(root.join("examples"), folder.path().join("examples")).unwrap();
        Tour { root, folder, server: None, address: "127.0.0.1:7400".to_owned() }
    }

    /// Does what a page says; answers how many commands there were.
    fn walk(&mut self, page: &str) -> usize {
        let page = std::fs::read_to_string(self.root.join(page)).unwrap();
        let mut commands = 0;
        for (language, block) in blocks(&page) {
            match language {
                "yaml" => write_file(self.folder.path(), &block),
                "console" => {
                    for (command, shown) in sessions(&block) {
                        self.step(&command, &shown);
                        commands += 1;
                    }
                }
                _ => {}
            }
        }
        commands
    }

    fn step(&mut self, command: &str, shown: &[String]) {
        match command {
            "milepost dev &" => self.serve(),
            "kill %1" | "kill -9 %1" => self.stop(),
            // Until the second step is under way, however slow this machine is today.
            "sleep 2" => self.until("milepost runs show last -o json | jq -r '.steps[1].status'", &["running"]),
            // What was just done is in the lists within a moment.
            command if only_reads(command) => self.until(command, shown),
            command => self.check(command, shown).unwrap(),
        }
    }

    /// Asks again until it is said.
    fn until(&self, command: &str, shown: &[impl AsRef<str>]) {
        let begun = Instant::now();
        while self.check(command, shown).is_err() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.check(command, shown).unwrap();
    }

    fn serve(&mut self) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_milepost"))
            .arg("dev")
            .current_dir(self.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.address = line.trim().strip_prefix("listening on http://").unwrap().to_owned();
        self.server = Some(child);
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.server.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn check(&self, command: &str, shown: &[impl AsRef<str>]) -> Result<(), String> {
        let program = Path::new(env!("CARGO_BIN_EXE_milepost")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let typed = command.replace("localhost:7400", &self.address);
        let mut shell = Command::new("sh");
        shell.args(["-c", &typed]).current_dir(self.folder.path()).env("PATH", path).env("MILEPOST_ACTOR", "ada");
        let output = shell.output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let lines: Vec<String> = said.lines().map(shape).collect();
        for line in shown.iter().map(AsRef::as_ref) {
            let wanted = shape(line);
            let found = match wanted.split_once('…') {
                Some((beginning, end)) => {
                    lines.iter().any(|line| line.starts_with(beginning.trim_end()) && line.ends_with(end.trim_start()))
                }
                None => lines.contains(&wanted),
            };
            if !found {
                return Err(format!("`{command}` does not say\n{line}\nbut\n{said}"));
            }
        }
        Ok(())
    }
}

fn only_reads(command: &str) -> bool {
    let reads = ["milepost runs list", "milepost runs show", "milepost runs events", "milepost doctor"];
    let sends = [" -d ", " -X ", "--data"];
    reads.iter().any(|begin| command.starts_with(begin))
        || command.starts_with("curl -s") && !sends.iter().any(|flag| command.contains(flag))
}

/// The fenced blocks of a page, with their languages.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, String)> = None;
    for line in page.lines() {
        open = match (open, line.strip_prefix("```")) {
            (None, Some(language)) => Some((language, String::new())),
            (Some(block), Some(_)) => {
                blocks.push(block);
                None
            }
            (Some((language, text)), None) => Some((language, text + line + "\n")),
            (None, None) => None,
        };
    }
    blocks
}

/// A block whose first line names a file is that file.
fn write_file(folder: &Path, block: &str) {
    let name = block.lines().next().and_then(|line| line.strip_prefix("# ")).filter(|name| name.ends_with(".yaml"));
    if let Some(name) = name {
        std::fs::write(folder.join(name), block).unwrap();
    }
}

/// Commands, each with the lines that are shown below it. A command goes on as long as a quote is open.
fn sessions(block: &str) -> Vec<(String, Vec<String>)> {
    let mut sessions: Vec<(String, Vec<String>)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), sessions.last_mut()) {
            (Some(command), _) => sessions.push((command.to_owned(), Vec::new())),
            (None, Some((command, _))) if command.matches('\'').count() % 2 == 1 => {
                command.push('\n');
                command.push_str(line);
            }
            (None, Some((_, shown))) if !line.trim().is_empty() && line != "…" => shown.push(line.to_owned()),
            _ => {}
        }
    }
    sessions
}

/// A line without what differs from run to run: ids, hashes, times, the width of columns.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let hex = rest.find(|c: char| !(c.is_ascii_hexdigit() || c == '-')).unwrap_or(rest.len());
        let number = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).unwrap_or(rest.len());
        let taken = if hex >= 16 { hex } else { number };
        if taken > 0 && first.is_ascii_hexdigit() {
            shape.push('#');
            rest = &rest[taken..];
        } else {
            shape.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    let shape = shape.split_whitespace().collect::<Vec<_>>().join(" ");
    ["# ms", "# min", "# s"].iter().fold(shape, |shape, unit| shape.replace(unit, "TIME"))
}
