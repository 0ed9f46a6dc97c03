//! One connection: what it is doing, since when, and the socket that stops working when it is let go.
//!
//! ```text
//!   accepted ─► Head ─► Working ─► Idle ─► Head ─► …        Working ─► Upgraded (a WebSocket)
//!               reading a head     between two requests
//! ```
//!
//! Nothing here has a timer: a sweep over all connections compares what they do with the clock.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connections::{Guest, Place};

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The head of a request is awaited or arriving; a TLS handshake counts as part of the first one.
    Head,
    /// A request is being answered, from its head to the last byte that the answer hands over.
    Working,
    /// Nothing has arrived since the last answer.
    Idle,
    /// It is a WebSocket, which looks after itself.
    Upgraded,
}

const PHASES: [Phase; 4] = [Phase::Head, Phase::Working, Phase::Idle, Phase::Upgraded];

/// What others may know of a connection, and the way to end it.
#[derive(Debug)]
pub(crate) struct Pulse {
    began: Instant,
    phase: AtomicU8,
    /// Milliseconds after `began` at which the phase began.
    since: AtomicU64,
    /// Milliseconds after `began`, and one more, at which the peer stopped taking bytes; 0 while it takes them.
    stalled: AtomicU64,
    is_let_go: AtomicBool,
    waker: AtomicWaker,
}

impl Pulse {
    pub(crate) fn new() -> Pulse {
        Pulse {
            began: Instant::now(),
            phase: AtomicU8::new(Phase::Head as u8),
            since: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            is_let_go: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn phase(&self) -> Phase {
        PHASES[usize::from(self.phase.load(Ordering::Relaxed))]
    }

    fn enter(&self, phase: Phase) {
        self.since.store(self.now(), Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// How long the phase has lasted.
    pub(crate) fn lasted(&self) -> Duration {
        Duration::from_millis(self.now().saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    /// How long the peer has taken nothing of what is there for it.
    pub(crate) fn stalled(&self) -> Option<Duration> {
        let since = self.stalled.load(Ordering::Relaxed).checked_sub(1)?;
        Some(Duration::from_millis(self.now().saturating_sub(since)))
    }

    /// No request is lost when it is closed.
    pub(crate) fn is_between_requests(&self) -> bool {
        matches!(self.phase(), Phase::Head | Phase::Idle) && !self.is_let_go()
    }

    pub(crate) fn is_let_go(&self) -> bool {
        self.is_let_go.load(Ordering::Acquire)
    }

    /// Its socket works no longer, and whoever waits for it is woken.
    pub(crate) fn let_go(&self) {
        self.is_let_go.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// The socket of a connection.
#[derive(Debug)]
pub(crate) struct Watched<S> {
    socket: S,
    guest: Guest,
}

impl<S> Watched<S> {
    pub(crate) fn new(socket: S, guest: Guest) -> Watched<S> {
        Watched { socket, guest }
    }

    fn pulse(&self) -> &Pulse {
        &self.guest.0.pulse
    }

    /// What the socket said, unless the connection was let go meanwhile.
    fn checked<T>(&self, context: &Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            self.pulse().waker.register(context.waker());
        }
        match self.pulse().is_let_go() {
            true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            false => polled,
        }
    }

    fn written(&self, context: &Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let pulse = self.pulse();
        let stalled = pulse.stalled.load(Ordering::Relaxed) != 0;
        match &polled {
            Poll::Pending if !stalled => pulse.stalled.store(pulse.now() + 1, Ordering::Relaxed),
            Poll::Ready(Ok(_)) if stalled => pulse.stalled.store(0, Ordering::Relaxed),
            _ => {}
        }
        self.checked(context, polled)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(context, buf);
        let pulse = self.pulse();
        if buf.filled().len() > before && pulse.phase() == Phase::Idle {
            pulse.enter(Phase::Head);
        }
        self.checked(context, polled)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_write_vectored(context, bytes);
        self.written(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.socket).poll_flush(context);
        self.checked(context, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.socket).poll_shutdown(context);
        self.checked(context, polled)
    }
}

/// A request under way, from its head until its answer has been handed over.
#[derive(Debug)]
pub(crate) struct Working {
    place: Arc<Place>,
    is_upgraded: bool,
}

impl Working {
    pub(crate) fn new(place: Arc<Place>) -> Working {
        place.pulse.enter(Phase::Working);
        Working { place, is_upgraded: false }
    }

    /// The connection goes on as something else.
    pub(crate) fn upgraded(&mut self) {
        self.is_upgraded = true;
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        match self.is_upgraded {
            true => self.place.pulse.enter(Phase::Upgraded),
            false => {
                self.place.pulse.enter(Phase::Idle);
                self.place.release();
            }
        }
    }
}
