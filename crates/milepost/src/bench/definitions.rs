//! Definitions: what reading, patching and moving cost when a tag has made so many moves already.
//!
//! Times are medians of each deed by itself, in milliseconds. `commit_ms` is one small commit of the same store, to compare
//! writes with.

use std::sync::Arc;
use std::time::Instant;

use milepost_core::document;
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::limits::Limits;
use milepost_core::time::Timestamp;
use milepost_engine::definitions::{Definitions, Moving};
use milepost_store::Store;
use milepost_store::rows::{DefinitionWrite, RequestRow};
use serde_json::{Value, json};
use uuid::Uuid;

const ORG: OrgId = OrgId::DEFAULT;
const TAG: &str = "bench.definitions";
/// How often each deed is done.
const SAMPLES: usize = 101;
/// Steps of the document.
const STEPS: usize = 20;

pub(super) async fn definitions(store: Arc<dyn Store>, revisions: usize) -> anyhow::Result<Value> {
    let open = || Definitions::open(store.clone(), None, Limits::default());
    let all = open();
    let moving = Moving { by: Some("bench".to_owned()), ..Moving::default() };
    deploy(&all, TAG, 0).await?;
    for number in 1..revisions {
        all.patch(ORG, TAG, &ops(number), &moving).await?;
    }
    // A chain that is as long as chains get.
    let mut number = revisions;
    while all.revision(ORG, all.tag(ORG, TAG).await?.revision_id).await?.depth < 10 {
        number += 1;
        all.patch(ORG, TAG, &ops(number), &moving).await?;
    }
    let commit = median(async |_| commit(&store).await).await?;
    let tag = median(async |_| all.tag(ORG, TAG).await).await?;
    let history = median(async |_| all.history(ORG, TAG, None, 100).await).await?;
    let target = all.resolve(ORG, TAG).await?;
    let cached = median(async |_| all.document(ORG, &target).await).await?;
    let cold = median(async |_| open().document(ORG, &target).await).await?;
    let create_version = median(async |n| deploy(&all, "bench.versions", n + 1).await).await?;
    let create_patch = median(async |n| all.patch(ORG, TAG, &ops(number + 1 + n), &moving).await).await?;
    let undo = median(async |_| all.undo(ORG, TAG, &moving).await).await?;
    let redo = median(async |_| all.redo(ORG, TAG, &moving).await).await?;
    let targets = [all.resolve(ORG, &format!("{TAG}~1")).await?, all.resolve(ORG, TAG).await?];
    let set = median(async |n| {
        let target = targets[n % 2].revision_id.to_string();
        all.set(ORG, TAG, &target, &moving).await
    })
    .await?;
    Ok(json!({
        "peer": "milepost", "store": store.name(), "scenario": "definitions", "revisions": revisions,
        "document_bytes": all.document(ORG, &target).await?.len(), "commit_ms": commit, "current_tag_ms": tag,
        "history_100_ms": history, "materialize_cold_ms": cold, "materialize_cached_ms": cached,
        "create_version_ms": create_version, "create_patch_ms": create_patch, "move_ms": set, "undo_ms": undo,
        "redo_ms": redo,
    }))
}

async fn median<T, E: Into<anyhow::Error>>(mut deed: impl AsyncFnMut(usize) -> Result<T, E>) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(SAMPLES);
    for number in 0..SAMPLES {
        let began = Instant::now();
        deed(number).await.map_err(Into::into)?;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[SAMPLES / 2] * 10_000.0).round() / 10_000.0)
}

async fn commit(store: &Arc<dyn Store>) -> anyhow::Result<()> {
    let request = RequestRow {
        key: Uuid::now_v7().to_string(),
        fingerprint: Digest::of(b"bench"),
        answer: "{}".to_owned(),
        created_at: Timestamp(0),
    };
    let write = DefinitionWrite { request: Some(request), ..DefinitionWrite::default() };
    anyhow::ensure!(store.definitions().write(ORG, &write).await?, "a request of a new key can be kept");
    Ok(())
}

async fn deploy(all: &Definitions, tag: &str, number: usize) -> anyhow::Result<()> {
    let step = |n: usize| (format!("s{n:02}"), json!({"skill": "echo", "input": {"n": number, "say": "a few words"}}));
    let steps: serde_json::Map<String, Value> = (0..STEPS).map(step).collect();
    let document = json!({"name": tag, "steps": steps});
    let loaded = document::load_value(&document, &Limits::default())
        .map_err(|problems| anyhow::anyhow!("the document has problems: {problems:?}"))?;
    let moving = Moving { by: Some("bench".to_owned()), ..Moving::default() };
    all.deploy(ORG, tag, loaded, &moving).await?;
    Ok(())
}

fn ops(number: usize) -> Value {
    json!([{"op": "replace", "path": format!("/steps/s{:02}/input/n", number % STEPS), "value": number}])
}
