//! A transaction that owns its connection: dropped at any moment, it is rolled back before anybody else gets the connection.

use deadpool_postgres::{Object, Pool};

use crate::{Result, StoreError};

pub(super) struct Open {
    /// Taken out when the transaction has ended.
    connection: Option<Object>,
}

impl Open {
    /// The caller sends `BEGIN` itself, together with its first statement.
    pub(super) async fn on(pool: &Pool) -> Result<Open> {
        Ok(Open { connection: Some(pool.get().await?) })
    }

    pub(super) fn connection(&self) -> Result<&Object> {
        self.connection.as_ref().ok_or_else(|| StoreError::Unavailable("the transaction has ended".to_owned()))
    }

    pub(super) async fn commit(mut self) -> Result<()> {
        self.connection()?.batch_execute("COMMIT").await?;
        // Back to the pool. Had COMMIT failed, dropping `self` would see to the connection.
        self.connection = None;
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    if connection.batch_execute("ROLLBACK").await.is_err() {
                        drop(Object::take(connection));
                    }
                });
            }
            // Nobody is there to send anything: closing the connection rolls back as well.
            Err(_) => drop(Object::take(connection)),
        }
    }
}
