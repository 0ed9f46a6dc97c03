//! Time and randomness, which the core is told and never asks for.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use milepost_core::time::Timestamp;
use tokio::sync::watch;

/// Where the engine takes the time from.
pub trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Timestamp;

    /// Waits until the clock is set to another time than `seen`. A clock that only ticks never is.
    fn set_from(&self, seen: Timestamp) -> BoxFuture<'_, ()> {
        let _ = seen;
        Box::pin(std::future::pending())
    }
}

/// The machine's clock.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

/// A clock that stands still until it is told to go on. For tests.
#[derive(Debug)]
pub struct ManualClock(watch::Sender<Timestamp>);

impl ManualClock {
    #[must_use]
    pub fn at(moment: Timestamp) -> ManualClock {
        ManualClock(watch::Sender::new(moment))
    }

    pub fn advance_ms(&self, ms: u64) {
        self.0.send_modify(|now| *now = now.plus_ms(ms));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    fn set_from(&self, seen: Timestamp) -> BoxFuture<'_, ()> {
        let mut moved = self.0.subscribe();
        Box::pin(async move {
            // It ends with its sender, which is borrowed.
            let _ = moved.wait_for(|now| *now != seen).await;
        })
    }
}

/// 64 random bits.
#[must_use]
pub(crate) fn entropy() -> u64 {
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    high.rotate_left(32) ^ low
}
