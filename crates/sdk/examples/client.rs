//! Deploys a document, starts a run of it, follows it and prints what came out.

use milepost_sdk::{Client, Error, NewRun};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let client = Client::from_env()?;
    client
        .deploy("{name: hello, steps: {greet: {skill: echo, input: {text: \"hello, ${{ payload.name }}\"}}}}")
        .await?;
    let started = client.start(&NewRun::of("hello").payload(&json!({"name": "Ada"}))?.request_id("first")).await?;
    let mut events = client.watch(started.run_id, 0);
    while let Some(event) = events.next().await? {
        eprintln!("{} {}", event.run_seq, event.event_type);
    }
    let run = client.run(started.run_id).await?;
    #[expect(clippy::print_stdout, reason = "this is what the example is for")]
    {
        println!("{}: {}", run.status(), run.output["greet"]["text"]);
    }
    Ok(())
}
