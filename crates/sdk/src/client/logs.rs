//! What steps said.

use super::Client;
use crate::error::Error;
use crate::wire::{LogLine, Page, RunId};

impl Client {
    /// A page of a run's log lines, or of one of its steps.
    ///
    /// # Errors
    /// There is no such run or step, or the server does not answer.
    pub async fn logs(
        &self,
        run: RunId,
        step_id: Option<&str>,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Page<LogLine>, Error> {
        let run = run.to_string();
        let mut path = vec!["runs", &run];
        path.extend(step_id.into_iter().flat_map(|step| ["steps", step]));
        path.push("logs");
        let mut query = vec![("limit", limit.to_string())];
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get(&path, &query).await
    }
}
