//! `shell`: a program of this machine. Its lines go to the step's log; a JSON last line is the output.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use milepost_core::artifact::NewArtifact;
use milepost_core::json::Json;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStderr, ChildStdout, Command};

use super::{LogStream, SkillContext, SkillError, Skills};
use crate::lines::{Line, Lines};

/// Variables that every program gets. All others must be declared by the step.
const PASSED_ON: &[&str] = &["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "TERM"];
/// An error quotes this many of the last lines that went to stderr.
const QUOTED_LINES: usize = 5;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    command: Option<String>,
    argv: Option<Vec<String>>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    cwd: Option<String>,
    stdin: Option<Json>,
}

/// The last line that a program wrote: JSON, or a text.
#[derive(Serialize)]
#[serde(untagged)]
enum Output {
    Json(Json),
    Text { stdout: String },
}

pub(super) fn register(skills: &mut Skills) {
    skills.add("shell", |context, input: Input| run(context, input));
}

async fn run(context: SkillContext, input: Input) -> Result<Output, SkillError> {
    let left = Left::new(&context)?;
    let mut child = command(&context, &input, &left)?
        .spawn()
        .map_err(|error| SkillError::fatal("shell_not_started", format!("the program cannot be started: {error}")))?;
    let _guard = ProcessGroup(child.id());
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let (Some(mut pipe), Some(json)) = (stdin, &input.stdin) {
            let text = serde_json::from_str(json.as_str()).unwrap_or_else(|_| json.as_str().to_owned());
            // A program that does not read its input is no error.
            let _ = pipe.write_all(text.as_bytes()).await;
        }
    };
    // Lines of which the log can keep all, and on stdout those that can be an output.
    let (of_log, of_output) = (context.log.longest_line(), context.files.most_output());
    let out = Said::new(stdout.map(ChildStdout::into_owned_fd), LogStream::Stdout, of_log.max(of_output), 1)?;
    let err = Said::new(stderr.map(ChildStderr::into_owned_fd), LogStream::Stderr, of_log, QUOTED_LINES)?;
    let ((), out, err) = tokio::join!(feed, out.follow(&context), err.follow(&context));
    let status =
        child.wait().await.map_err(|error| SkillError::new("shell_lost", format!("the program was lost: {error}")))?;
    if !status.success() {
        let said: Vec<&str> = err.iter().map(Line::text).collect();
        let said = said.join("\n");
        let message = if said.is_empty() { status.to_string() } else { format!("{status}: {said}") };
        return Err(SkillError::new("shell_failed", message));
    }
    left.attach(&context).await?;
    match out.back() {
        None => Ok(Output::Text { stdout: String::new() }),
        Some(Line::Whole(last)) => {
            Ok(Json::readable(last).map_or_else(|| Output::Text { stdout: last.to_owned() }, Output::Json))
        }
        Some(Line::Cut(_)) => Err(SkillError::fatal(
            "output_too_large",
            format!(
                "the last line, which is the output, has more than {} bytes; store it elsewhere and return a reference to it",
                of_log.max(of_output)
            ),
        )),
    }
}

fn command(context: &SkillContext, input: &Input, left: &Left) -> Result<Command, SkillError> {
    let mut command = match (&input.command, &input.argv) {
        (Some(line), None) => {
            let mut command = Command::new("/bin/sh");
            command.arg("-c").arg(line);
            command
        }
        (None, Some(argv)) if !argv.is_empty() => {
            let mut command = Command::new(&argv[0]);
            command.args(&argv[1..]);
            command
        }
        _ => return Err(SkillError::fatal("bad_input", "`shell` needs either `command` or `argv`")),
    };
    command.env_clear();
    command.envs(PASSED_ON.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?))));
    command.env("TRACEPARENT", context.traceparent());
    command.envs(context.env.iter().map(|(name, value)| (name, value)));
    command.envs(&input.env);
    command.envs(context.secrets.iter().map(|secret| (&*secret.name, secret.value.expose())));
    command.env("MILEPOST_RUN_ID", context.run.to_string()).env("MILEPOST_STEP_ID", &*context.step_id);
    command.env("MILEPOST_ATTEMPT", context.logical_attempt.to_string());
    if let Left(Some(folder)) = left {
        command.env("MILEPOST_ARTIFACTS", folder.path());
    }
    if let Some(cwd) = &input.cwd {
        command.current_dir(cwd);
    }
    command.stdin(if input.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).process_group(0);
    Ok(command)
}

/// A folder for files: what the program puts there is attached if it succeeds. Goes with the attempt.
struct Left(Option<tempfile::TempDir>);

impl Left {
    /// None where there is no place for files.
    fn new(context: &SkillContext) -> Result<Left, SkillError> {
        if !context.takes_files() {
            return Ok(Left(None));
        }
        let made = tempfile::Builder::new().prefix("milepost-artifacts-").tempdir();
        made.map(|folder| Left(Some(folder)))
            .map_err(|error| SkillError::new("no_folder", format!("there is no folder for files: {error}")))
    }

    /// In the order of their names; those in folders are called by their path.
    async fn attach(&self, context: &SkillContext) -> Result<(), SkillError> {
        let Left(Some(root)) = self else { return Ok(()) };
        let unreadable =
            |error: std::io::Error| SkillError::fatal("file_unreadable", format!("a file cannot be read: {error}"));
        let (mut files, mut folders) = (Vec::new(), vec![root.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?;
                let kind = entry.file_type().map_err(unreadable)?;
                if kind.is_dir() {
                    folders.push(entry.path())
                } else if kind.is_file() {
                    files.push(entry.path())
                }
            }
        }
        files.sort_unstable();
        for path in files {
            let name = path.strip_prefix(root.path()).unwrap_or(&path).to_string_lossy().into_owned();
            context.attach_file(&path, NewArtifact { filename: Some(name), ..NewArtifact::default() }).await?;
        }
        Ok(())
    }
}

/// A step that ended, was cancelled or ran out of time takes all that its program started with it.
struct ProcessGroup(Option<u32>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let leader = self.0.and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(leader) = leader {
            // Mostly nothing is left of the group; then there is nothing to do.
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

/// What a program says on one of its pipes.
struct Said {
    lines: Option<Lines>,
    stream: LogStream,
    /// So many of the last lines that are not empty are remembered.
    remembered: usize,
}

impl Said {
    fn new(
        pipe: Option<io::Result<OwnedFd>>,
        stream: LogStream,
        longest: usize,
        remembered: usize,
    ) -> Result<Said, SkillError> {
        let lines = pipe.map(|pipe| Lines::new(pipe?, longest)).transpose();
        let lines =
            lines.map_err(|error| SkillError::new("shell_lost", format!("the program cannot be followed: {error}")))?;
        Ok(Said { lines, stream, remembered })
    }

    /// Puts all of it into the step's log. Answers the last lines.
    async fn follow(self, context: &SkillContext) -> VecDeque<Line> {
        let mut last = VecDeque::new();
        let Some(mut lines) = self.lines else { return last };
        while let Some(line) = lines.next().await {
            match &line {
                Line::Whole(text) => context.log(self.stream, text.as_str()),
                Line::Cut(beginning) => context.log.say_cut(self.stream, beginning.clone()),
            }
            if !line.text().trim().is_empty() {
                if last.len() == self.remembered {
                    last.pop_front();
                }
                last.push_back(line);
            }
        }
        last
    }
}
