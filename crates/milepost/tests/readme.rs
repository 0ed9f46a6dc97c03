//! The README's tour, run as it stands there: its files, its commands, and every line of output that it shows.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

use std::path::Path;
use std::process::Command;

#[test]
fn the_tour_of_the_readme_is_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(root.join("examples"), folder.path().join("examples")).unwrap();
    let mut commands = 0;
    for (language, block) in blocks(&readme) {
        match language {
            "yaml" => write_file(folder.path(), &block),
            "console" => {
                for (command, shown) in sessions(&block) {
                    check(folder.path(), &command, &shown);
                    commands += 1;
                }
            }
            _ => {}
        }
    }
    assert!(commands >= 10, "only {commands} commands were found");
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

/// Commands, each with the lines that are shown below it.
fn sessions(block: &str) -> Vec<(String, Vec<String>)> {
    let mut sessions: Vec<(String, Vec<String>)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), sessions.last_mut()) {
            (Some(command), _) => sessions.push((command.to_owned(), Vec::new())),
            (None, Some((_, shown))) if !line.trim().is_empty() && line != "…" => shown.push(line.to_owned()),
            _ => {}
        }
    }
    sessions
}

fn check(folder: &Path, command: &str, shown: &[String]) {
    let program = Path::new(env!("CARGO_BIN_EXE_milepost")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh").args(["-c", command]).current_dir(folder).env("PATH", path).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<String> = said.lines().map(shape).collect();
    for line in shown {
        let wanted = shape(line);
        let found = match wanted.strip_suffix('…') {
            Some(beginning) => lines.iter().any(|line| line.starts_with(beginning.trim_end())),
            None => lines.contains(&wanted),
        };
        assert!(found, "`{command}` does not say\n{line}\nbut\n{said}");
    }
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
