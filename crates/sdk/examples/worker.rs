//! A worker with one skill. Start `milepost dev` first, and a run of `crates/sdk/examples/shots.yaml` then.

use milepost_sdk::{Context, Error, LogStream, SkillError, Worker};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Shot {
    name: String,
    frames: u32,
}

#[derive(Serialize)]
struct Rendered {
    file: String,
}

async fn render(ctx: Context, shot: Shot) -> Result<Rendered, SkillError> {
    if shot.frames == 0 {
        return Err(SkillError::fatal("no_frames", "a shot has at least one frame"));
    }
    ctx.log(LogStream::Log, format!("{} frames for {}", shot.frames, ctx.step_id()));
    Ok(Rendered { file: format!("{}.png", shot.name) })
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    Worker::from_env().concurrency(8).skill("shots.render", render).run().await
}
