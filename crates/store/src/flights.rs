//! The part of a store that knows which results are being made. Flights come and go with [`crate::rows::RunWrite`] and are
//! looked up with [`crate::rows::Question::Flights`]; here they are looked at by those who wait for them.
//!
//! **Invariant:** a result has one flight at most. Whoever writes another, while the run that leads it is open, conflicts.
//! **Invariant:** a flight whose run is gone or has ended is none, and is taken over by whoever comes next.

use std::fmt;

use async_trait::async_trait;
use milepost_core::cache::Flight;
use milepost_core::id::OrgId;

use crate::Result;
use crate::rows::{FlightRow, ResultKey};

#[async_trait]
pub trait FlightStore: Send + Sync + fmt::Debug {
    /// Who makes these results, in one statement. Answers are in the order of the keys.
    async fn under_way(&self, keys: &[(OrgId, ResultKey)]) -> Result<Vec<Option<Flight>>>;

    /// Flights whose runs are gone or have ended: there should be none.
    async fn left_behind(&self, limit: u32) -> Result<Vec<FlightRow>>;
}
