//! Starting runs and sending them signals, through an engine in this process.

use std::sync::Arc;

use milepost_core::document::Loaded;
use milepost_core::id::RunId;
use milepost_core::plan::Plan;
use milepost_core::run::Signal;
use milepost_engine::{ChangeRequest, Engine};
use serde_json::json;

use super::Local;
use crate::backend::caller_trace;
use crate::backend::{Begun, Change, Documents, NewRun, NewSignal, Subject, Update};
use crate::progress::Outline;
use crate::wire::{Accepted, Planned, Said};

impl Local {
    pub(in crate::backend) async fn start(&self, new: NewRun) -> anyhow::Result<Begun> {
        let engine = self.engine().await?;
        let NewRun { subject, payload, request_id, priority, start_at } = new;
        let trace = caller_trace();
        let new = milepost_engine::NewRun { payload, request_id, priority, start_at, trace, ..Default::default() };
        let (accepted, outline) = match subject {
            Subject::Workflow(reference) => (engine.start(&reference, new).await?, None),
            Subject::Documents(documents) => {
                let plan = stored(engine, *documents, &new).await?;
                let accepted = engine.start_plan(&plan, new).await?;
                // A run that was there already may be one of another document.
                (accepted, (!accepted.existing).then(|| Outline::of_plan(&plan)))
            }
            Subject::Update(update) => {
                let plan = definition(engine, &update).await?;
                (engine.update(update.base, plan, changes(update.changes), new).await?, None)
            }
        };
        let said = Said::of(&json!({ "run_id": accepted.run, "status": accepted.status }))?;
        Ok(Begun { said, existing: accepted.existing, outline })
    }

    pub(in crate::backend) async fn plan(&self, new: NewRun) -> anyhow::Result<Said<Planned>> {
        let engine = self.engine().await?;
        let NewRun { subject, payload, request_id, priority, start_at } = new;
        let new = milepost_engine::NewRun { payload, request_id, priority, start_at, ..Default::default() };
        Said::of(&match subject {
            Subject::Workflow(reference) => engine.plan_run(&engine.resolve(&reference).await?, new).await?,
            Subject::Documents(documents) => engine.plan_run(&Arc::new(documents.first.plan), new).await?,
            Subject::Update(update) => {
                let plan = definition(engine, &update).await?;
                engine.plan_update(update.base, plan, changes(update.changes), new).await?
            }
        })
    }

    pub(in crate::backend) async fn signal(&self, run: RunId, signal: NewSignal) -> anyhow::Result<Said<Accepted>> {
        let NewSignal { name, signal_id, step_id, payload } = signal;
        let signal = Signal { id: signal_id, name, step: step_id, payload };
        let accepted = self.engine().await?.signal(run, signal).await?;
        Said::of(&json!({
            "accepted": true,
            "run_id": run,
            "status": accepted.status,
            "signal_id": signal_id,
        }))
    }
}

/// What an update run runs, where that is not what its base run ran.
async fn definition(engine: &Engine, update: &Update) -> anyhow::Result<Option<Arc<Plan>>> {
    match &update.workflow {
        Some(reference) => Ok(Some(engine.resolve(reference).await?)),
        None => Ok(None),
    }
}

fn changes(changes: Vec<Change>) -> Vec<ChangeRequest> {
    changes.into_iter().map(|Change { kind, payload }| ChangeRequest { kind, payload }).collect()
}

/// Checks everything, then stores everything: what is refused leaves nothing behind. The others are deployed, so that
/// they are found by name; the one that is run moves no tag.
async fn stored(engine: &Engine, documents: Documents, new: &milepost_engine::NewRun) -> anyhow::Result<Arc<Plan>> {
    for other in &documents.others {
        engine.check_skills(&other.plan)?;
    }
    let Loaded { canonical, hash, plan } = documents.first;
    let plan = Arc::new(plan);
    engine.check_start(&plan, new)?;
    for other in documents.others {
        engine.deploy_loaded(other).await?;
    }
    let plan = Arc::into_inner(plan).ok_or_else(|| anyhow::anyhow!("the plan is still being checked"))?;
    Ok(engine.add(Loaded { canonical, hash, plan }).await?)
}
