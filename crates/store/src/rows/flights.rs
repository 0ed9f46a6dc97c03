//! Results that are being made.

use milepost_core::event::StepRef;
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;

use super::ResultKey;

/// What one run's write does to flights. What is led is so after it, whatever else it ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlightWrite {
    /// Results that steps of this run make from now on.
    pub led: Vec<Led>,
    /// Flights of these steps are over.
    pub landed: Vec<StepRef>,
    /// Flights of all steps are over but of these.
    pub landed_but: Option<Vec<StepRef>>,
}

impl FlightWrite {
    /// Whether a flight of the run is over by this.
    #[must_use]
    pub fn lands(&self, step: StepRef) -> bool {
        self.landed.contains(&step) || self.landed_but.as_ref().is_some_and(|but| !but.contains(&step))
    }
}

/// Written only if no step but this one makes the result, for a run that has not ended, and if there is none: else the write
/// conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Led {
    pub key: ResultKey,
    pub step: StepRef,
    /// There may be a result.
    pub anyway: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightRow {
    pub org: OrgId,
    pub key: ResultKey,
    pub leader: (RunId, StepRef),
    pub since: Timestamp,
}
