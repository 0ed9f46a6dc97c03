//! `shell`: a program of this machine. Its lines go to the step's log; a JSON last line is the output.

use std::collections::BTreeMap;
use std::process::Stdio;

use milepost_core::artifact::NewArtifact;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::{LogStream, SkillContext, SkillError, Skills};

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
    stdin: Option<Value>,
}

pub(super) fn register(skills: &mut Skills) {
    skills.add("shell", |context, input: Input| run(context, input));
}

async fn run(context: SkillContext, input: Input) -> Result<Value, SkillError> {
    let left = Left::new(&context)?;
    let mut child = command(&context, &input, &left)?
        .spawn()
        .map_err(|error| SkillError::fatal("shell_not_started", format!("the program cannot be started: {error}")))?;
    let _guard = ProcessGroup(child.id());
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let (Some(mut pipe), Some(value)) = (stdin, &input.stdin) {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            // A program that does not read its input is no error.
            let _ = pipe.write_all(text.as_bytes()).await;
        }
    };
    let ((), out, err) =
        tokio::join!(feed, follow(&context, LogStream::Stdout, stdout), follow(&context, LogStream::Stderr, stderr));
    let status =
        child.wait().await.map_err(|error| SkillError::new("shell_lost", format!("the program was lost: {error}")))?;
    if !status.success() {
        let said = err.last_lines.join("\n");
        let message = if said.is_empty() { status.to_string() } else { format!("{status}: {said}") };
        return Err(SkillError::new("shell_failed", message));
    }
    left.attach(&context).await?;
    let last = out.last_lines.last().map_or("", String::as_str);
    Ok(serde_json::from_str(last).unwrap_or_else(|_| json!({ "stdout": last })))
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

#[derive(Default)]
struct Said {
    last_lines: Vec<String>,
}

async fn follow(context: &SkillContext, stream: LogStream, pipe: Option<impl AsyncRead + Unpin>) -> Said {
    let mut said = Said::default();
    let Some(pipe) = pipe else { return said };
    let mut lines = BufReader::new(pipe).split(b'\n');
    while let Ok(Some(line)) = lines.next_segment().await {
        let line = String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned();
        context.log(stream, line.clone());
        if !line.trim().is_empty() {
            if said.last_lines.len() == QUOTED_LINES {
                said.last_lines.remove(0);
            }
            said.last_lines.push(line);
        }
    }
    said
}
