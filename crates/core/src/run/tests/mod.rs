//! What a run may do, by example and by property.

mod basics;
mod failing;
mod foreach;
mod harness;
mod invariants;
mod properties;
mod recovery;
mod retries;
mod signals;
mod starting;
mod stopping;
mod waiting;
