//! What a run's steps say, while somebody follows the run.

use milepost_engine::skills::LogLine;
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver};

use crate::wire::Page;

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
    Engine(UnboundedReceiver<LogLine>),
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

impl From<LogLine> for Line {
    fn from(line: LogLine) -> Line {
        Line { step_id: line.step_id.to_string(), text: line.text }
    }
}

/// How far a log that grows at its end was read: the page that has its end, and how many lines of it are known.
#[derive(Debug, Default)]
pub(crate) struct Place {
    cursor: Option<String>,
    known: usize,
}

impl Place {
    pub(crate) const PAGE: u32 = 1000;

    pub(crate) fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// Takes the page at the cursor. Answers what is new in it, and whether another one follows.
    pub(crate) fn advance<T>(&mut self, page: Page<T>) -> (Vec<T>, bool) {
        let total = page.items.len();
        let new = page.items.into_iter().skip(self.known).collect();
        let more = page.next_cursor.is_some();
        self.known = if more { 0 } else { total };
        if more {
            self.cursor = page.next_cursor;
        }
        (new, more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_grows_gives_each_line_once() {
        let page =
            |items: &[u32], next: Option<&str>| Page { items: items.to_vec(), next_cursor: next.map(str::to_owned) };
        let mut place = Place::default();
        assert_eq!(place.advance(page(&[1, 2], None)), (vec![1, 2], false));
        assert_eq!(place.advance(page(&[1, 2, 3], Some("3"))), (vec![3], true));
        assert_eq!(place.cursor(), Some("3"));
        assert_eq!(place.advance(page(&[], None)), (vec![], false));
        assert_eq!(place.advance(page(&[4], None)), (vec![4], false));
        assert_eq!(place.advance(page(&[4], None)), (vec![], false));
    }
}
