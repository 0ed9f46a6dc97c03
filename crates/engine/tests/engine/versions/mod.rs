//! Definitions in versions: what is stored, how tags move, what is merged, and what goes.

mod bad_input;
mod collection;
mod history;
mod lifecycle;
mod merging;
mod model;
mod repairing;
mod writers;

use std::sync::Arc;

use milepost_core::document::{self, Loaded};
use milepost_core::limits::Limits;
use milepost_engine::EngineError;
use milepost_engine::definitions::{Definitions, Moved, Moving};
use milepost_store::rows::MoveRow;
use serde_json::{Value, json};

use crate::support::*;

/// The definitions of a home, as another process would open them: nothing is at hand.
async fn definitions(home: &Home) -> Definitions {
    Definitions::open(home.store().await, None, Limits::default())
}

fn loaded(value: &Value) -> Loaded {
    document::load_value(value, &Limits::default()).unwrap()
}

/// A document whose steps say these words.
fn saying(words: &[(&str, &str)]) -> Value {
    let steps: serde_json::Map<String, Value> = words
        .iter()
        .map(|(step, word)| ((*step).to_owned(), json!({"skill": "echo", "input": {"say": word}})))
        .collect();
    json!({"name": "t", "steps": steps})
}

fn by(name: &str) -> Moving {
    Moving { by: Some(name.to_owned()), ..Moving::default() }
}

async fn deployed(definitions: &Definitions, tag: &str, document: &Value) -> Moved {
    definitions.deploy(ORG, tag, loaded(document), &Moving::default()).await.unwrap().1
}

async fn said(definitions: &Definitions, tag: &str, step: &str, word: &str) -> Moved {
    definitions.patch(ORG, tag, &saying_again(step, word), &Moving::default()).await.unwrap()
}

fn saying_again(step: &str, word: &str) -> Value {
    json!([{"op": "add", "path": format!("/steps/{step}"), "value": {"skill": "echo", "input": {"say": word}}}])
}

/// What a reference means, as a value.
async fn meant(definitions: &Definitions, reference: &str) -> Result<Value, EngineError> {
    let target = definitions.resolve(ORG, reference).await?;
    let text: Arc<str> = definitions.document(ORG, &target).await?;
    Ok(serde_json::from_str(&text).unwrap())
}

/// `1 move, 2 undo>1`: the oldest first, with what they bring back.
fn told(mut moves: Vec<MoveRow>) -> String {
    moves.reverse();
    let line = |moved: &MoveRow| {
        let restored = moved.restores_move_id.map(|id| format!(">{id}")).unwrap_or_default();
        format!("{} {}{restored}", moved.move_id, moved.kind)
    };
    moves.iter().map(line).collect::<Vec<_>>().join(", ")
}
