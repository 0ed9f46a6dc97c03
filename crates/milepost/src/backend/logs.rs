//! What a run's steps say, while somebody follows the run.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use milepost_engine::skills;
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver};

use crate::wire::LogLine;

/// So many lines at a time are asked for.
pub(crate) const PAGE: u32 = 1000;

/// A line of a step.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) step_id: String,
    pub(crate) text: String,
}

/// Where lines come from.
#[derive(Debug)]
pub(crate) enum Logs {
    /// Nobody says anything here.
    Nowhere,
    /// The engine in this process, as they are said.
    Engine(UnboundedReceiver<skills::LogLine>),
    /// A server that is asked now and then: whenever it is poked, and a last time when it is let go.
    Server { lines: Receiver<Line>, poke: Option<Sender<()>> },
}

impl Logs {
    /// Lines of a server, which `fill` asks for each time it is told to.
    pub(crate) fn asked<F, R>(fill: F) -> Logs
    where
        F: FnOnce(Receiver<()>, Sender<Line>) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        let (poke, pokes) = mpsc::channel(1);
        let (sender, lines) = mpsc::channel(64);
        tokio::spawn(fill(pokes, sender));
        Logs::Server { lines, poke: Some(poke) }
    }

    /// Never comes back where there is nothing any more. May be dropped and called again.
    pub(crate) async fn next(&mut self) -> Line {
        let line = match self {
            Logs::Nowhere => None,
            Logs::Engine(lines) => lines.recv().await.map(Line::from),
            Logs::Server { lines, .. } => lines.recv().await,
        };
        match line {
            Some(line) => line,
            None => std::future::pending().await,
        }
    }

    /// There may be something new.
    pub(crate) fn poke(&self) {
        if let Logs::Server { poke: Some(poke), .. } = self {
            // A poke that waits is as good as two.
            let _ = poke.try_send(());
        }
    }

    /// All that was said and not given yet. The run has ended.
    pub(crate) async fn rest(&mut self) -> Vec<Line> {
        let mut rest = Vec::new();
        match self {
            Logs::Nowhere => {}
            Logs::Engine(lines) => rest.extend(std::iter::from_fn(|| lines.try_recv().ok()).map(Line::from)),
            Logs::Server { lines, poke } => {
                *poke = None;
                while let Some(line) = lines.recv().await {
                    rest.push(line);
                }
            }
        }
        rest
    }
}

impl From<skills::LogLine> for Line {
    fn from(line: skills::LogLine) -> Line {
        Line { step_id: line.step_id.to_string(), text: line.text }
    }
}

/// How far the log of each attempt was read. A run's log is in the order of its steps: new lines come anywhere in it.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// By attempt: the number of the next line.
    next: HashMap<(String, u32, u32), u64>,
}

impl Heard {
    /// Whether this line was not heard before. Lines of one attempt come in order.
    pub(crate) fn is_new(&mut self, line: &LogLine) -> bool {
        let attempt = (line.step_id.clone(), line.logical_attempt, line.engine_attempt);
        let next = self.next.entry(attempt).or_default();
        let is_new = line.line >= *next;
        if is_new {
            *next = line.line + 1;
        }
        is_new
    }
}

/// Reads a log again and again, each time from its beginning. The longer that takes the more seldom it is done.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    not_before: Option<Instant>,
}

impl Pace {
    /// Of all time, reading takes no more than one part of so many.
    const SHARE: u32 = 10;

    pub(crate) fn is_due(&self) -> bool {
        self.not_before.is_none_or(|moment| Instant::now() >= moment)
    }

    pub(crate) fn took(&mut self, time: Duration) {
        self.not_before = Some(Instant::now() + time * Self::SHARE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: &str, logical_attempt: u32, line: u64) -> LogLine {
        let (step_id, text) = (step.to_owned(), String::new());
        LogLine { step_id, logical_attempt, engine_attempt: 1, line, at: None, text }
    }

    #[test]
    fn each_line_is_heard_once_wherever_it_comes() {
        let mut heard = Heard::default();
        let mut read = |lines: &[LogLine]| lines.iter().filter(|line| heard.is_new(line)).count();
        assert_eq!(read(&[line("a", 1, 0), line("a", 1, 1), line("c", 1, 0)]), 3);
        assert_eq!(read(&[line("a", 1, 0), line("a", 1, 1), line("a", 1, 2), line("b", 1, 0), line("c", 1, 0)]), 2);
        assert_eq!(read(&[line("a", 1, 2), line("a", 2, 0), line("b", 1, 0)]), 1);
    }

    #[test]
    fn a_long_log_is_read_seldom() {
        let mut pace = Pace::default();
        assert!(pace.is_due());
        pace.took(Duration::from_secs(60));
        assert!(!pace.is_due());
        pace.took(Duration::ZERO);
        assert!(pace.is_due());
    }
}
