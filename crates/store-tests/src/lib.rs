//! What every store must do, written once.
//!
//! [`conformance`] is many small checks; [`differential`] sends the same random writes to several stores and compares what
//! they keep. Both use fresh ids only, so they can run again and again on one shared database.

mod conformance;
mod differential;
mod random;
pub mod rows;

pub use conformance::{conformance, leases_run_out};
pub use differential::differential;
