//! `milepost cache stats`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;

use super::{OfStep, bytes};
use crate::backend::Backend;
use crate::context::Context;
use crate::output::{print_json, table, time};
use crate::wire::{CacheCounts, CacheStats, StepCacheStats};

/// So many steps are shown one by one, unless somebody asks for those of a workflow.
const FEW: usize = 40;

/// What results spared, in all and step by step.
///
/// Hits are steps that took a result; misses are attempts that had to run, because there was none or none was wanted. What
/// was saved is how long the results that were taken took to make.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost cache stats
  milepost cache stats --workflow campaign.build
  milepost cache stats -o json")]
pub(super) struct Stats {
    #[command(flatten)]
    of: OfStep,
}

impl Stats {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let stats = backend.cache_stats(&self.of.results()).await?;
        match context.is_json() {
            true => print_json(&stats)?,
            false => print(&stats.value, self.of.workflow.is_some()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(stats: &CacheStats, all: bool) {
    if stats.steps.is_empty() {
        crate::print_line("no step with a cache has run yet");
        return;
    }
    let mut rows = table::new(&["WORKFLOW", "STEP", "RESULTS", "SIZE", "HITS", "MISSES", "RATIO", "SAVED"]);
    let folded = !all && stats.steps.len() > FEW;
    if folded {
        for (workflow, (steps, counts)) in by_workflow(&stats.steps) {
            rows.add_row(row(workflow, &format!("({steps} steps)"), &counts));
        }
    } else {
        for step in &stats.steps {
            rows.add_row(row(&step.workflow, &step.step_id, &step.counts));
        }
    }
    if stats.steps.len() > 1 {
        rows.add_row(row("all", "", &stats.total));
    }
    table::print(&rows);
    if folded {
        crate::print_line("`--workflow NAME` shows the steps of one");
    }
}

fn by_workflow(steps: &[StepCacheStats]) -> BTreeMap<&str, (u64, CacheCounts)> {
    let mut workflows: BTreeMap<&str, (u64, CacheCounts)> = BTreeMap::new();
    for step in steps {
        let (count, sum) = workflows.entry(&step.workflow).or_default();
        *count += 1;
        sum.results += step.counts.results;
        sum.bytes += step.counts.bytes;
        sum.hits += step.counts.hits;
        sum.misses += step.counts.misses;
        sum.saved_ms += step.counts.saved_ms;
        let asked = sum.hits + sum.misses;
        sum.hit_ratio = (asked > 0).then(|| sum.hits as f64 / asked as f64);
    }
    workflows
}

fn row(workflow: &str, step: &str, counts: &CacheCounts) -> [String; 8] {
    [
        workflow.to_owned(),
        step.to_owned(),
        counts.results.to_string(),
        bytes(counts.bytes),
        counts.hits.to_string(),
        counts.misses.to_string(),
        counts.hit_ratio.map(|ratio| format!("{:.0} %", ratio * 100.0)).unwrap_or_default(),
        time::span(counts.saved_ms),
    ]
}
