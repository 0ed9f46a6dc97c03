//! Milepost inside your own program: two skills, one workflow, one run.

use std::sync::Arc;

use milepost_engine::{Config, Engine, NewRun};
use milepost_store::sqlite::SqliteStore;
use serde_json::{Value, json};

const GREETING: &str = r#"
name: greeting
steps:
  greet: {skill: greet, input: {name: "${{ payload.name }}"}}
  shout: {skill: shout, input: {text: "${{ steps.greet.output.text }}"}}
"#;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(&folder.path().join("milepost.db"))?);
    let config = Config::default()
        .skill("greet", |_, input: Value| async move {
            Ok(json!({"text": format!("hello, {}", input["name"].as_str().unwrap_or("you"))}))
        })
        .skill("shout", |_, input: Value| async move {
            Ok(json!({"text": input["text"].as_str().unwrap_or_default().to_uppercase()}))
        });
    let engine = Engine::open_with(store, config).await?;
    let plan = engine.deploy(GREETING).await?;
    let new = NewRun { payload: serde_json::from_str(r#"{"name": "Ada"}"#)?, ..NewRun::default() };
    let (run, status) = engine.run_plan(&plan, new).await?;
    #[expect(clippy::print_stdout, reason = "this is what the example is for")]
    {
        println!("{run} {status}: {:?}", engine.run(run).await?.output);
    }
    engine.shutdown().await;
    Ok(())
}
