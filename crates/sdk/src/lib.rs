//! Milepost from your own program: a [`Worker`] carries steps out, a [`Client`] deploys documents, starts runs and follows them.
//!
//! Both speak HTTP with a server; neither has the engine in it.

mod client;
mod error;
pub mod wire;
mod worker;

pub use client::{ArtifactFilter, Client, EventStream, NewRun, RunFilter, Seen, Signal};
pub use error::{Error, Problem};
pub use wire::{Artifact, Blob, LogStream, NewArtifact, RunId};
pub use worker::{Context, SkillError, Worker, WorkerBuilder};
