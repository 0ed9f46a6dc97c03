//! Milepost's engine, usable as a library: open a store, register skills as async functions, start runs.
//!
//! The rules are in `milepost-core`; here they meet disks, clocks and other people's code.

pub mod artifacts;
pub mod cache;
mod clock;
mod committer;
pub mod definitions;
mod doctor;
mod engine;
mod error;
mod executor;
mod explain;
mod flights;
mod live_patch;
mod logs;
mod lookout;
mod outbox;
mod outlook;
mod patch;
mod plans;
mod preview;
mod projector;
mod push;
mod read;
mod reaper;
mod retention;
pub mod secrets;
pub mod skills;
mod step;
mod streams;
mod surroundings;
pub mod telemetry;
mod timers;
mod update;
pub mod view;
mod watch;
pub mod workers;
mod workflows;

pub use clock::{Clock, ManualClock, SystemClock};
pub use committer::Accepted;
pub use doctor::{Diagnosis, Finding, diagnose};
pub use engine::{Config, Engine, NewRun, list_runs, load_state, transitions};
pub use error::EngineError;
pub use explain::{Explanation, NearestKey, ResultOrigin, Wait};
pub use live_patch::{PatchOptions, PatchPreview, PatchRefusal, PatchedRun, StepLists};
pub use logs::{LogLineView, LogPage};
pub use milepost_core::change::{ChangeRequest, RebuildRequest};
pub use milepost_core::run::ItemCounts;
pub use outbox::{OutboxConfig, OutboxItem, OutboxStatus, Retried, list_outbox};
pub use outlook::{OpenRun, Outlook, open_runs};
pub use preview::{PlanCounts, PlanView, PlannedItems, PlannedStep, StepDecision};
pub use push::PushConfig;
pub use read::read_run;
pub use step::{AttemptView, StepDetail};
pub use streams::{Batch, EventStream, StreamEvent};
