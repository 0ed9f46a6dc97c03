//! The engine as a whole, on real stores. `scripts/with-postgres cargo test -p milepost-engine`.
//!
//! Nothing here sleeps to make a test pass: tests wait for runs, events and skills, and move the clock by hand.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

mod support;

mod artifacts;
mod children;
mod concurrency;
mod crash;
mod definitions;
mod doctor;
mod example;
mod explaining;
mod faults;
mod flight;
mod gaps;
mod holes;
mod hostile;
mod large_outputs;
mod live;
mod logs;
mod plans;
mod poison;
mod pressure;
mod projections;
mod push;
mod reading;
mod receiver;
mod requests;
mod results;
mod scenarios;
mod secrets;
mod signals;
mod streams;
mod supervision;
mod timers;
mod traces;
mod two_nodes;
mod updates;
mod upgrade;
mod versions;
mod worker_secrets;
mod workers;
