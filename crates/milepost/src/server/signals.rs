//! What the system, or the person at the keyboard, wants of a server.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT, SIGTERM and SIGHUP: all ask a server to end in good order; asked again, it ends at once.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// Not where it is ignored, as `nohup` has it: such a server outlives its terminal.
    hangup: Option<Signal>,
}

impl Signals {
    /// From here on signals are heard, and no longer end the process by themselves.
    pub(crate) fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: (!hangup_is_ignored()).then(|| signal(SignalKind::hangup())).transpose()?,
        })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = hung_up(self.hangup.as_mut()) => {}
        }
    }
}

async fn hung_up(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// What this process inherited, where the system tells: a mask in which SIGHUP is the lowest bit.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Ends the process soon, whatever still goes on: a call that blocks a thread would keep it alive.
pub(crate) fn end_soon(status: u8) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        std::process::exit(i32::from(status));
    });
}
