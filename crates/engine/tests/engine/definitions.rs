//! Definitions that are made for one run.

use milepost_core::status::RunStatus;
use milepost_engine::EngineError;
use serde_json::json;

use crate::support::*;

on! {
    embedded: [a_patched_document_is_one_of_its_own, a_patch_that_does_not_fit_stores_nothing],
    postgres: [a_patched_document_is_one_of_its_own]
}

const GREET: &str = "{name: greet, steps: {a: {skill: echo, input: {text: hello, n: 1}}}}";

async fn a_patched_document_is_one_of_its_own(home: Home) {
    let engine = home.open(config()).await;
    let plan = engine.deploy(GREET).await.unwrap();
    let ops = json!([
        {"op": "test", "path": "/steps/a/input/n", "value": 1.0},
        {"op": "replace", "path": "/steps/a/input/text", "value": "good day"},
    ]);
    let patched = engine.patched(&plan, &ops).await.unwrap();
    assert_ne!(patched.hash, plan.hash);
    let accepted = engine.start_plan(&patched, payload(&json!({}))).await.unwrap();
    assert_eq!(ended(&engine, accepted.run).await, RunStatus::Completed);
    assert_eq!(output(&engine.run(accepted.run).await.unwrap(), "a")["text"], json!("good day"));
    // Its name still means what was deployed; another engine finds it by its hash.
    assert_eq!(engine.resolve("greet").await.unwrap().hash, plan.hash);
    let other = home.open(config()).await;
    assert_eq!(other.resolve(&format!("sha256:{}", patched.hash)).await.unwrap().hash, patched.hash);
    // A patch of a patched document.
    let again = engine.patched(&patched, &json!([{"op": "remove", "path": "/steps/a/input/n"}])).await.unwrap();
    assert!(again.hash != patched.hash && again.hash != plan.hash);
}

async fn a_patch_that_does_not_fit_stores_nothing(home: Home) {
    let engine = home.open(config()).await;
    let plan = engine.deploy(GREET).await.unwrap();
    let refused = async |ops| engine.patched(&plan, &ops).await.unwrap_err();
    let failed = refused(json!([{"op": "replace", "path": "/steps/b/input", "value": 1}])).await;
    assert_eq!(failed.code(), "patch_failed");
    assert!(failed.to_string().contains("operation 1 of the patch (`replace /steps/b/input`)"), "{failed}");
    let invalid = refused(json!([{"op": "add", "path": "/steps/a/depends_on", "value": ["b"]}])).await;
    assert!(matches!(&invalid, EngineError::Invalid(problems) if problems[0].code == "unknown_step"), "{invalid:?}");
    let unknown = refused(json!([{"op": "replace", "path": "/steps/a/skill", "value": "nobody.knows"}])).await;
    assert_eq!(unknown.code(), "unknown_skill");
}
