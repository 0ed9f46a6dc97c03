//! Counts round trips to the database.
//!
//! Handles are taken when a store is opened: a recorder of metrics must be installed before that.

use metrics::{Counter, counter};

/// Jobs of the writer, jobs of the readers, uses of a connection: what the store does for a living.
const STATEMENTS: &str = "milepost_store_statements_total";

#[derive(Clone, Debug)]
pub(crate) struct Meter {
    reads: Counter,
    writes: Counter,
}

impl Meter {
    pub(crate) fn of(store: &'static str) -> Meter {
        Meter {
            reads: counter!(STATEMENTS, "store" => store, "kind" => "read"),
            writes: counter!(STATEMENTS, "store" => store, "kind" => "write"),
        }
    }

    pub(crate) fn read(&self) {
        self.reads.increment(1);
    }

    pub(crate) fn write(&self) {
        self.writes.increment(1);
    }
}
