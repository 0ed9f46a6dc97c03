//! What a run may do, by example and by property.

mod basics;
mod begin;
mod failing;
mod foreach;
mod golden;
mod harness;
mod invariants;
mod kept;
mod leasing;
mod looking;
mod patch_properties;
mod patches;
mod patching;
mod previews;
mod properties;
mod random;
mod recovery;
mod results;
mod results_properties;
mod retries;
mod signals;
mod starting;
mod stopping;
mod traces;
mod waiting;
mod waits;
