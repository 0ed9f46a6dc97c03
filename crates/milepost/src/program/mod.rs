//! Skills of a program in any language: processes that are given tasks as lines of JSON. docs/workers.md tells how they speak.
//!
//! **Invariant:** one process carries out one task at a time; there are no more processes than tasks at once.

mod message;
mod process;

use std::sync::Mutex;
use std::time::Duration;

use milepost_sdk::{Context, SkillError};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use process::{Done, Order, Output, Process, TERM_GRACE};

/// A program, and its processes that have nothing to do.
#[derive(Debug)]
pub(crate) struct Program {
    command: String,
    /// How long a process may take to stop when it is told to.
    grace: Duration,
    skills: Vec<String>,
    idle: Mutex<Vec<Hand>>,
}

/// A process, from outside.
#[derive(Debug)]
struct Hand {
    orders: UnboundedSender<Order>,
    life: JoinHandle<()>,
}

impl Program {
    /// Starts a first process, which says which skills there are.
    pub(crate) async fn start(command: &str, grace: Duration) -> anyhow::Result<Program> {
        let (hand, skills) = Hand::start(command, grace).await?;
        Ok(Program { command: command.to_owned(), grace, skills, idle: Mutex::new(vec![hand]) })
    }

    pub(crate) fn skills(&self) -> &[String] {
        &self.skills
    }

    /// The longest that a task may take to end after it was told to.
    pub(crate) fn patience(&self) -> Duration {
        self.grace + TERM_GRACE * 2
    }

    /// Carries a task out, in a process that is idle or in a new one.
    pub(crate) async fn carry_out(&self, context: Context) -> Output {
        loop {
            let hand = match self.take() {
                Some(hand) => hand,
                None => self.another().await?,
            };
            let (outcome, answer) = oneshot::channel();
            // A process that ended meanwhile drops the order, and with it the way back: then another one gets it.
            let _ = hand.orders.send(Order { context: context.clone(), outcome });
            if let Ok(Done { output, lives }) = answer.await {
                if lives {
                    self.idle().push(hand);
                }
                return output;
            }
        }
    }

    async fn another(&self) -> Result<Hand, SkillError> {
        let started = Hand::start(&self.command, self.grace).await;
        let (hand, _) = started.map_err(|error| {
            SkillError::new("worker_process_not_started", format!("the program does not work: {error:#}"))
        })?;
        Ok(hand)
    }

    /// A process that is idle and lives.
    fn take(&self) -> Option<Hand> {
        let mut idle = self.idle();
        while let Some(hand) = idle.pop() {
            if !hand.orders.is_closed() {
                return Some(hand);
            }
        }
        None
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Hand>> {
        self.idle.lock().expect("no holder of this lock panics")
    }

    /// Lets all processes end.
    pub(crate) async fn stop(&self) {
        let hands = std::mem::take(&mut *self.idle());
        let lives: Vec<JoinHandle<()>> = hands.into_iter().map(|hand| hand.life).collect();
        futures::future::join_all(lives).await;
    }
}

impl Hand {
    async fn start(command: &str, grace: Duration) -> anyhow::Result<(Hand, Vec<String>)> {
        let (process, skills) = Process::start(command, grace).await?;
        let (orders, receiver) = unbounded_channel();
        let life = tokio::spawn(process.serve(receiver));
        Ok((Hand { orders, life }, skills))
    }
}
