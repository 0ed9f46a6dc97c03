//! The pure half of Milepost: what documents mean and what a run may do.
//!
//! Nothing here reads a clock, makes a random number, touches a disk or waits. Time and ids come in with each command,
//! facts that only a database knows are asked for as values, effects are returned as values.

pub mod artifact;
pub mod cache;
pub mod canonical;
pub mod change;
pub mod codec;
pub mod difference;
pub mod document;
pub mod event;
pub mod expression;
pub mod hash;
pub mod id;
pub mod json;
pub mod limits;
pub mod patience;
pub mod plan;
pub mod record;
pub mod request;
pub mod run;
pub mod secret;
pub mod status;
pub mod text;
pub mod time;
pub mod trace;
