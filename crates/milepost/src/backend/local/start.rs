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
use crate::backend::{Begun, Change, Documents, NewRun, NewSignal, Newer, Subject, Update};
use crate::person;
use crate::progress::Outline;
use crate::wire::{Accepted, Planned, Said};

impl Local {
    pub(in crate::backend) async fn start(&self, new: NewRun) -> anyhow::Result<Begun> {
        let engine = self.engine().await?;
        let (subject, new) = parts(new);
        let new = milepost_engine::NewRun { trace: caller_trace(), submitted_by: Some(person::name()), ..new };
        let (accepted, outline) = match subject {
            Subject::Workflow(reference) => (engine.start(&reference, new).await?, None),
            Subject::Documents(documents) => {
                let plan = stored(engine, *documents, Some(&new)).await?;
                let accepted = engine.start_plan(&plan, new).await?;
                // A run that was there already may be one of another document.
                (accepted, (!accepted.existing).then(|| Outline::of_plan(&plan)))
            }
            Subject::Update(Update { base, changes, definition }) => {
                let (plan, new) = match definition {
                    None => (None, new),
                    Some(Newer::Workflow(reference)) => {
                        let (plan, new) = followed(engine, &reference, new).await?;
                        (Some(plan), new)
                    }
                    Some(Newer::Documents(documents)) => (Some(stored(engine, *documents, None).await?), new),
                };
                (engine.update(base, plan, requests(changes), new).await?, None)
            }
        };
        let said = Said::of(&json!({ "run_id": accepted.run, "status": accepted.status }))?;
        Ok(Begun { said, existing: accepted.existing, outline })
    }

    pub(in crate::backend) async fn plan(&self, new: NewRun) -> anyhow::Result<Said<Planned>> {
        let engine = self.engine().await?;
        let (subject, new) = parts(new);
        Said::of(&match subject {
            Subject::Workflow(reference) => {
                let (plan, new) = followed(engine, &reference, new).await?;
                engine.plan_run(&plan, new).await?
            }
            Subject::Documents(documents) => engine.plan_run(&Arc::new(documents.first.plan), new).await?,
            Subject::Update(Update { base, changes, definition }) => {
                let (plan, new) = match definition {
                    None => (None, new),
                    Some(Newer::Workflow(reference)) => {
                        let (plan, new) = followed(engine, &reference, new).await?;
                        (Some(plan), new)
                    }
                    Some(Newer::Documents(documents)) => (Some(Arc::new(documents.first.plan)), new),
                };
                engine.plan_update(base, plan, requests(changes), new).await?
            }
        })
    }

    pub(in crate::backend) async fn signal(&self, run: RunId, signal: NewSignal) -> anyhow::Result<Said<Accepted>> {
        let NewSignal { name, signal_id, step_id, payload } = signal;
        let signal = Signal { id: signal_id, name, step: step_id, payload, actor: Some(person::name()) };
        let accepted = self.engine().await?.signal(run, signal).await?;
        Said::of(&json!({
            "accepted": true,
            "run_id": run,
            "status": accepted.status,
            "signal_id": signal_id,
        }))
    }
}

fn parts(new: NewRun) -> (Subject, milepost_engine::NewRun) {
    let NewRun { subject, payload, request_id, priority, start_at, rebuild } = new;
    (subject, milepost_engine::NewRun { payload, request_id, priority, start_at, rebuild, ..Default::default() })
}

/// What a reference means, and a run that follows it.
async fn followed(
    engine: &Engine,
    reference: &str,
    new: milepost_engine::NewRun,
) -> anyhow::Result<(Arc<Plan>, milepost_engine::NewRun)> {
    let (plan, target) = engine.resolve_target(reference).await?;
    let definition = Some(engine.definition_of(reference, (&plan, &target), None).await?);
    let trust = engine.trust_in(&plan, &target).await?;
    Ok((plan, milepost_engine::NewRun { definition, trust, ..new }))
}

fn requests(changes: Vec<Change>) -> Vec<ChangeRequest> {
    changes.into_iter().map(|Change { kind, payload }| ChangeRequest { kind, payload }).collect()
}

/// Checks everything, then stores everything: what is refused leaves nothing behind. The others are deployed, so that
/// they are found by name; the one that is run moves no tag.
async fn stored(
    engine: &Engine,
    documents: Documents,
    new: Option<&milepost_engine::NewRun>,
) -> anyhow::Result<Arc<Plan>> {
    for other in &documents.others {
        engine.check_skills(&other.plan)?;
    }
    let Loaded { canonical, hash, plan } = documents.first;
    let plan = Arc::new(plan);
    match new {
        Some(new) => engine.check_start(&plan, new).await?,
        None => engine.check_skills(&plan)?,
    }
    for other in documents.others {
        engine.deploy_loaded(other).await?;
    }
    let plan = Arc::into_inner(plan).ok_or_else(|| anyhow::anyhow!("the plan is still being checked"))?;
    Ok(engine.add(Loaded { canonical, hash, plan }).await?)
}
