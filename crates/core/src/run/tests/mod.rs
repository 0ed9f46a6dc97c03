//! What a run may do, by example and by property.

mod basics;
mod harness;
mod invariants;
mod properties;
