//! The same rows through the driver alone: what an engine on this database could reach at best.

use std::time::{Duration, Instant};

use deadpool_postgres::Pool;
use uuid::Uuid;

use super::{commit, connect, migrate, project};
use crate::Result;
use crate::rows::Recorded;

/// Sends recorded calls one after the other over one connection into a schema of their own, which is dropped afterwards.
/// Answers the time of that loop alone.
///
/// # Errors
/// The database cannot be reached, or refuses what it took before.
pub async fn replay(url: &str, recorded: &[Recorded]) -> Result<Duration> {
    let target = connect::parse(url)?;
    let owner = connect::single(&target).await?;
    let schema = format!("milepost_replay_{}", Uuid::now_v7().simple());
    owner.batch_execute(&format!("CREATE SCHEMA {schema}")).await?;
    let elapsed = run(&target.with_setting(&format!("search_path={schema}")), recorded).await;
    owner.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await?;
    elapsed
}

async fn run(target: &connect::Target, recorded: &[Recorded]) -> Result<Duration> {
    migrate::migrate(&connect::single(target).await?).await?;
    let pool = connect::pool(target, 1)?;
    drop(pool.get().await?);
    let began = Instant::now();
    for call in recorded {
        send(&pool, call).await?;
    }
    let elapsed = began.elapsed();
    pool.close();
    Ok(elapsed)
}

async fn send(pool: &Pool, call: &Recorded) -> Result<()> {
    match call {
        Recorded::Commit(batch) => drop(commit::commit(pool, batch).await?),
        Recorded::Project(writes) => drop(project::project(pool, writes).await?),
    }
    Ok(())
}
