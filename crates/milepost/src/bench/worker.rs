//! `milepost bench-worker`: the worker of a load, with a skill that the engine cannot see into.

use std::process::ExitCode;

use clap::Args;
use milepost_sdk::{Context, Worker};

use super::load::Number;
use super::on_one_thread;

#[derive(Debug, Args)]
pub(crate) struct BenchWorker {
    /// Tasks at once
    #[arg(long, default_value_t = 64)]
    concurrency: usize,
}

impl BenchWorker {
    pub(crate) fn run(self, context: &crate::context::Context) -> anyhow::Result<ExitCode> {
        let worker = Worker::builder(context.server_flag().unwrap_or(crate::target::DEFAULT_SERVER))
            .concurrency(self.concurrency)
            .skill("bench.step", |_: Context, input: Number| async move {
                tokio::task::yield_now().await;
                Ok(Number { n: input.n + 1 })
            });
        // Its skill only waits: one thread is enough, and takes least from the server.
        on_one_thread(async { anyhow::Ok(worker.run().await?) })?;
        Ok(ExitCode::SUCCESS)
    }
}
