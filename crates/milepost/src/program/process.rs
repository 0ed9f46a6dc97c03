//! One process of a program with skills: carries out one task after the other.
//!
//! ```text
//!   Hand ── orders ──► Process ──stdin───► program
//!        ◄─ outcomes ─         ◄─stdout── messages, and lines of the log
//!                              ◄─stderr── lines of the log
//! ```
//!
//! **Invariant:** whatever ends a process takes all that it started with it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use milepost_engine::lines::{Line, Lines};
use milepost_sdk::wire::Task;
use milepost_sdk::{Context, LogStream, SkillError};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::message::Message;

/// So long a program may take until it says which skills it has.
const HELLO: Duration = Duration::from_secs(30);
/// After SIGTERM, until SIGKILL.
pub(super) const TERM_GRACE: Duration = Duration::from_secs(5);
/// A program that says more without a line's end has lost its way.
const LONGEST_LINE: usize = 16 * 1024 * 1024;
/// An error quotes this many of the last lines that went to stderr.
const QUOTED_LINES: usize = 5;

pub(super) type Output = Result<Box<RawValue>, SkillError>;

/// A task to be carried out.
pub(super) struct Order {
    pub(super) context: Context,
    pub(super) outcome: oneshot::Sender<Done>,
}

/// What became of an order.
pub(super) struct Done {
    pub(super) output: Output,
    /// The process can take another one.
    pub(super) lives: bool,
}

#[derive(Serialize)]
struct Given<'a> {
    task: &'a Task,
}

/// A process that runs.
pub(super) struct Process {
    child: Child,
    group: Group,
    /// What is to be written to it; nothing more when this is dropped.
    feed: Option<UnboundedSender<String>>,
    out: Lines,
    err: Lines,
    /// The last lines that went to stderr.
    said: VecDeque<String>,
    /// How long it may take to stop when it is told to.
    grace: Duration,
}

impl Process {
    /// Starts the program and hears which skills it has.
    pub(super) async fn start(command: &str, grace: Duration) -> anyhow::Result<(Process, Vec<String>)> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()
            .context("the program cannot be started")?;
        let group = Group(child.id());
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(out), Some(err)) = pipes else { anyhow::bail!("the program has no pipes") };
        let (feed, lines) = unbounded_channel();
        tokio::spawn(write_lines(stdin, lines));
        let lines = |pipe: std::io::Result<OwnedFd>| Lines::new(pipe?, LONGEST_LINE);
        let (out, err) = (lines(out.into_owned_fd())?, lines(err.into_owned_fd())?);
        let mut process = Process { child, group, feed: Some(feed), out, err, said: VecDeque::new(), grace };
        let skills = tokio::time::timeout(HELLO, process.hello()).await;
        let skills = skills.with_context(|| format!("it has not said which skills it has within {HELLO:?}"))??;
        Ok((process, skills))
    }

    async fn hello(&mut self) -> anyhow::Result<Vec<String>> {
        loop {
            tokio::select! {
                biased;
                Some(line) = self.err.next() => self.note(line),
                line = Process::hear_next(&mut self.out) => match line.map(Message::read) {
                    Some(Message::Skills(skills)) => return Ok(skills),
                    Some(Message::Text(text)) => tracing::info!(target: "program", "{text}"),
                    Some(other) => anyhow::bail!("it began with {other:?} and not with its skills"),
                    None => anyhow::bail!("it ended before it said which skills it has, {}", self.last_words().await),
                },
            }
        }
    }

    /// Carries out orders until there are no more, or the process ends.
    pub(super) async fn serve(mut self, mut orders: UnboundedReceiver<Order>) {
        loop {
            tokio::select! {
                biased;
                Some(line) = self.err.next() => self.note(line),
                line = Process::hear_next(&mut self.out) => match line {
                    Some(line) => tracing::info!(target: "program", "{line}"),
                    None => break,
                },
                order = orders.recv() => match order {
                    Some(order) => {
                        if !self.carry_out(order).await {
                            return;
                        }
                    }
                    None => break,
                },
            }
        }
        // Whoever has an order for it is to find another one, and not to wait for its end.
        drop(orders);
        self.stop().await;
    }

    /// A line that belongs to no task.
    fn note(&mut self, line: Line) {
        tracing::info!(target: "program", "{}", line.text());
        self.remember(line);
    }

    /// A line of what it says to us; nothing more comes after one that is too long to be read.
    async fn hear_next(out: &mut Lines) -> Option<String> {
        match out.next().await? {
            Line::Whole(line) => Some(line),
            Line::Cut(_) => None,
        }
    }

    fn remember(&mut self, line: Line) {
        let line = line.text().to_owned();
        if line.trim().is_empty() {
            return;
        }
        if self.said.len() == QUOTED_LINES {
            self.said.pop_front();
        }
        self.said.push_back(line);
    }

    /// Answers whether the process can take another order.
    async fn carry_out(&mut self, order: Order) -> bool {
        let Order { context, mut outcome } = order;
        self.said.clear();
        let spoken = tokio::select! {
            biased;
            // Nobody waits for it any more.
            () = outcome.closed() => None,
            spoken = self.converse(&context) => Some(spoken),
        };
        let lives = spoken.as_ref().is_some_and(|done| done.lives);
        if !lives {
            self.kill().await;
        }
        if let Some(done) = spoken {
            // Whoever ordered it may have gone in this moment.
            let _ = outcome.send(done);
        }
        lives
    }

    /// Gives the program its task and hears what it says, until the outcome.
    async fn converse(&mut self, context: &Context) -> Done {
        self.tell(&Given { task: context.task() });
        // What is done next to one that is told to stop, and when.
        let mut patience: Option<(Instant, Signal)> = None;
        loop {
            tokio::select! {
                biased;
                Some(line) = self.err.next() => self.log_error(context, line),
                line = Process::hear_next(&mut self.out) => match line {
                    Some(line) => if let Some(output) = self.hear(context, line) {
                        return Done { output, lives: patience.is_none_or(|(_, next)| next == Signal::TERM) };
                    },
                    None => return Done { output: Err(self.died(context, patience.is_some()).await), lives: false },
                },
                () = context.cancelled(), if patience.is_none() => {
                    self.tell(&json!({ "cancel": true }));
                    patience = Some((Instant::now() + self.grace, Signal::TERM));
                }
                () = until(patience) => {
                    let Some((_, signal)) = patience else { continue };
                    self.signal(signal);
                    patience = Some((Instant::now() + TERM_GRACE, Signal::KILL));
                }
            }
        }
    }

    /// Takes in a line of stdout. Answers the outcome, when it is one.
    fn hear(&mut self, context: &Context, line: String) -> Option<Output> {
        match Message::read(line) {
            Message::Log(stream, text) => context.log(stream, text),
            Message::Text(text) => context.log(LogStream::Stdout, text),
            Message::Progress(progress) => context.progress(progress),
            Message::Skills(_) => {}
            Message::Completed(output) => return Some(Ok(self.with_last_words(context, output))),
            Message::Failed(error) => return Some(Err(self.with_last_words(context, error))),
        }
        None
    }

    /// What it said on stderr before it said how the task ended is part of the task.
    fn with_last_words<T>(&mut self, context: &Context, outcome: T) -> T {
        while let Some(line) = self.err.ready() {
            self.log_error(context, line);
        }
        outcome
    }

    fn log_error(&mut self, context: &Context, line: Line) {
        context.log(LogStream::Stderr, line.text());
        self.remember(line);
    }

    async fn died(&mut self, context: &Context, was_told: bool) -> SkillError {
        while let Some(line) = self.err.ready() {
            self.log_error(context, line);
        }
        let words = self.last_words().await;
        match was_told {
            true => SkillError::fatal("cancelled", format!("the program ended when it was told to stop, {words}")),
            false => {
                SkillError::new("worker_process_died", format!("the program ended in the middle of the task, {words}"))
            }
        }
    }

    /// How it ended, and what it said last. Nothing comes from it any more.
    async fn last_words(&mut self) -> String {
        while let Some(line) = self.err.ready() {
            self.remember(line);
        }
        self.feed = None;
        let status = match tokio::time::timeout(TERM_GRACE, self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            // It closed its output, and goes on.
            _ => "without an exit status".to_owned(),
        };
        let said: Vec<String> = self.said.drain(..).collect();
        if said.is_empty() { status } else { format!("{status}: {}", said.join("\n")) }
    }

    fn tell(&self, message: &impl Serialize) {
        let line = serde_json::to_string(message).expect("a message to a program is JSON");
        if let Some(feed) = &self.feed {
            // A process that does not read any more has ended, and that is seen elsewhere.
            let _ = feed.send(line + "\n");
        }
    }

    fn signal(&self, signal: Signal) {
        self.group.send(signal);
    }

    /// Nothing more is asked of it: it may end by itself, and is made to if it does not.
    async fn stop(mut self) {
        self.feed = None;
        for signal in [Signal::TERM, Signal::KILL] {
            if tokio::time::timeout(TERM_GRACE, self.child.wait()).await.is_ok() {
                return;
            }
            self.signal(signal);
        }
        let _ = self.child.wait().await;
    }

    async fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait().await;
    }
}

async fn until(patience: Option<(Instant, Signal)>) {
    match patience {
        Some((moment, _)) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Writes without holding up whoever reads: a program may say much before it reads on.
async fn write_lines(mut stdin: ChildStdin, mut lines: UnboundedReceiver<String>) {
    while let Some(line) = lines.recv().await {
        if stdin.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The process and all that it started.
struct Group(Option<u32>);

impl Group {
    fn send(&self, signal: Signal) {
        let leader = self.0.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(leader) = leader {
            // Mostly nothing is left of the group; then there is nothing to do.
            let _ = kill_process_group(leader, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.send(Signal::KILL);
    }
}
