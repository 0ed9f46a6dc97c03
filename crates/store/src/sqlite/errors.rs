//! What SQLite's result codes mean to the caller of a store.

use rusqlite::{Error, ErrorCode, ffi};

use crate::StoreError;

/// There is no room: for the database, for its log, or for the index that its processes share.
pub(super) fn needs_room(cause: &ffi::Error) -> bool {
    cause.code == ErrorCode::DiskFull || cause.extended_code == ffi::SQLITE_IOERR_SHMSIZE
}

impl From<Error> for StoreError {
    fn from(error: Error) -> StoreError {
        let text = error.to_string();
        let Error::SqliteFailure(cause, _) = &error else {
            // A column that cannot be read as what it should be.
            return StoreError::Corrupt(text);
        };
        match cause.code {
            _ if needs_room(cause) => StoreError::DiskFull(text),
            ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch => StoreError::Refused(text),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Corrupt(text),
            ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly => StoreError::Unusable(format!(
                "the SQLite database cannot be used: {text}; check that its file and folder exist and may be written"
            )),
            _ => StoreError::Unavailable(text),
        }
    }
}
