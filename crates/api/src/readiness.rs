//! Whether the database answers: asked at most once a second, however many want to know, and none of them need a token.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use milepost_core::id::RunId;
use milepost_engine::Engine;
use tokio::sync::Mutex;

use crate::error::{Problem, Result};

/// For so long an answer is given again.
const FRESH: Duration = Duration::from_secs(1);
/// A database that is silent for longer does not answer.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct DatabaseProbe {
    last: Mutex<Option<(Instant, Result<()>)>>,
}

impl DatabaseProbe {
    pub(crate) async fn check(&self, engine: &Engine) -> Result<()> {
        // Those who come meanwhile wait for this answer.
        let mut last = self.last.lock().await;
        if let Some((_, answer)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return answer.clone();
        }
        let nobody = RunId(uuid::Uuid::nil());
        let answer = match tokio::time::timeout(PATIENCE, engine.store().head(engine.org(), nobody)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "store_unavailable",
                format!("the database has said nothing for {} s; see whether it is up", PATIENCE.as_secs()),
            )),
        };
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}
