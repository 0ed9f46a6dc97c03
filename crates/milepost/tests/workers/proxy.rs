//! A network that can be made bad: it stands between workers and their server, and knows nothing of what it carries.
//!
//! Each connection has its fate: it is cut in the middle of what goes to the server, or in the middle of what comes back,
//! which the server believes to have said. And while the line is dead, nothing is carried, and nobody is told.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::common::Random;

/// A connection carries so many bytes at most before it is cut.
const LONGEST: usize = 4000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// All is carried.
    Good,
    /// Connections are cut at random.
    Bad,
    /// Nothing is carried; what was said meanwhile arrives when this is over.
    Silent,
    /// The same, and connections that were there end with it: what was said on them never arrives.
    Dead,
}

pub(crate) struct Proxy {
    pub(crate) url: String,
    line: watch::Sender<Line>,
    counts: Arc<Counts>,
}

/// What went wrong on the way.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) requests_cut: AtomicUsize,
    pub(crate) answers_swallowed: AtomicUsize,
}

/// How many bytes are carried each way before the connection is cut.
#[derive(Clone, Copy)]
struct Fate {
    to_server: usize,
    to_worker: usize,
}

impl Proxy {
    pub(crate) async fn before(server: SocketAddr, seed: u64) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (line, counts) = (watch::Sender::new(Line::Good), Arc::new(Counts::default()));
        let (told, counted) = (line.subscribe(), counts.clone());
        let random = Mutex::new(Random(seed));
        tokio::spawn(async move {
            while let Ok((worker, _)) = listener.accept().await {
                let fate = fate(&mut random.lock().unwrap());
                tokio::spawn(carry(worker, server, fate, told.clone(), counted.clone()));
            }
        });
        Proxy { url, line, counts }
    }

    pub(crate) fn set(&self, line: Line) {
        self.line.send_replace(line);
    }

    /// Requests that were cut, and answers that nobody got.
    pub(crate) fn lost(&self) -> (usize, usize) {
        (self.counts.requests_cut.load(Ordering::Relaxed), self.counts.answers_swallowed.load(Ordering::Relaxed))
    }
}

fn fate(random: &mut Random) -> Fate {
    let bytes = 1 + random.below(LONGEST);
    match random.below(3) {
        0 => Fate { to_server: bytes, to_worker: usize::MAX },
        1 => Fate { to_server: usize::MAX, to_worker: bytes },
        // The very first answer: the worker does not know whether it was heard.
        _ => Fate { to_server: usize::MAX, to_worker: 0 },
    }
}

async fn carry(
    worker: TcpStream,
    server: SocketAddr,
    fate: Fate,
    line: watch::Receiver<Line>,
    counts: Arc<Counts>,
) -> Option<()> {
    let (from_worker, to_worker) = worker.into_split();
    let (from_server, to_server) = TcpStream::connect(server).await.ok()?.into_split();
    // Whichever way ends first ends both.
    tokio::select! {
        () = pass(from_worker, to_server, fate.to_server, line.clone(), &counts.requests_cut) => {}
        () = pass(from_server, to_worker, fate.to_worker, line, &counts.answers_swallowed) => {}
    }
    Some(())
}

/// Carries bytes one way, until an end is closed or the fate is met.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut left: usize,
    mut line: watch::Receiver<Line>,
    cut: &AtomicUsize,
) {
    let mut buffer = [0; 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        let now = *line.borrow_and_update();
        if matches!(now, Line::Silent | Line::Dead) {
            let _ = line.wait_for(|line| matches!(line, Line::Good | Line::Bad)).await;
        }
        if now == Line::Dead {
            return;
        }
        let carried = if now == Line::Good { count } else { count.min(left) };
        if to.write_all(&buffer[..carried]).await.is_err() {
            return;
        }
        if carried < count {
            cut.fetch_add(1, Ordering::Relaxed);
            return;
        }
        left = left.saturating_sub(carried);
    }
}
