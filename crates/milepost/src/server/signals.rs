//! What the system, or the person at the keyboard, wants of a server.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP: all ask a server to end in good order; asked again, it ends at once.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// From here on signals are heard, and no longer end the process by themselves.
    pub(crate) fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Ends the process soon, whatever still goes on: a call that blocks a thread would keep it alive.
pub(crate) fn end_soon(status: u8) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        std::process::exit(i32::from(status));
    });
}
