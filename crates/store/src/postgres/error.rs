//! What went wrong in the database, cut by what the caller does next.

use std::error::Error as _;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;

use crate::StoreError;

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> StoreError {
        let text = describe(&error);
        let Some(state) = error.code() else {
            // Without a code it is the connection or the driver: a row that does not fit its type is the only lasting one.
            let misfit = error.source().is_some_and(|cause| cause.is::<tokio_postgres::types::WrongType>());
            return if misfit { StoreError::Corrupt(text) } else { StoreError::Unavailable(text) };
        };
        match *state {
            SqlState::DISK_FULL => StoreError::DiskFull(text),
            SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED => StoreError::Corrupt(text),
            SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::T_R_DEADLOCK_DETECTED
            | SqlState::LOCK_NOT_AVAILABLE
            | SqlState::READ_ONLY_SQL_TRANSACTION
            | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
            // A plan from before a migration; the next call makes another.
            | SqlState::FEATURE_NOT_SUPPORTED => StoreError::Unavailable(text),
            _ => match &state.code()[..2] {
                // Connections, resources, operators' doing, the server's own disk or system.
                "08" | "53" | "57" | "58" => StoreError::Unavailable(text),
                // Values, constraints, limits.
                "22" | "23" | "54" => StoreError::Refused(text),
                _ => StoreError::Unusable(format!("the database cannot be used as it is: {text}")),
            },
        }
    }
}

impl From<PoolError> for StoreError {
    fn from(error: PoolError) -> StoreError {
        match error {
            PoolError::Backend(error) => error.into(),
            other => StoreError::Unavailable(other.to_string()),
        }
    }
}

/// One line with all that the server said.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let detail = db.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        return format!("{}{detail} [{}]", db.message(), db.code().code());
    }
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
