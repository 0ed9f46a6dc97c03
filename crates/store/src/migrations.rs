//! The schema, as numbered steps. Both databases have the same numbers; each step is applied in its own transaction.

/// One step of the schema. Never changed once released: a correction is another step.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub version: u32,
    pub name: &'static str,
    pub sql: &'static str,
}

pub const SQLITE: &[Migration] = &[
    Migration { version: 1, name: "init", sql: include_str!("migrations/sqlite/0001_init.sql") },
    Migration { version: 2, name: "server", sql: include_str!("migrations/sqlite/0002_server.sql") },
    Migration { version: 3, name: "workers", sql: include_str!("migrations/sqlite/0003_workers.sql") },
    Migration { version: 4, name: "secrets_blobs", sql: include_str!("migrations/sqlite/0004_secrets_blobs.sql") },
    Migration { version: 5, name: "outbox", sql: include_str!("migrations/sqlite/0005_outbox.sql") },
    Migration { version: 6, name: "definitions", sql: include_str!("migrations/sqlite/0006_definitions.sql") },
    Migration { version: 7, name: "step_cache", sql: include_str!("migrations/sqlite/0007_step_cache.sql") },
    Migration { version: 8, name: "artifacts", sql: include_str!("migrations/sqlite/0008_artifacts.sql") },
    Migration { version: 9, name: "run_requests", sql: include_str!("migrations/sqlite/0009_run_requests.sql") },
    Migration { version: 10, name: "append_only", sql: include_str!("migrations/sqlite/0010_append_only.sql") },
    Migration { version: 11, name: "poison", sql: include_str!("migrations/sqlite/0011_poison.sql") },
    Migration { version: 12, name: "who", sql: include_str!("migrations/sqlite/0012_who.sql") },
    Migration { version: 13, name: "audit", sql: include_str!("migrations/sqlite/0013_audit.sql") },
];

pub const POSTGRES: &[Migration] = &[
    Migration { version: 1, name: "init", sql: include_str!("migrations/postgres/0001_init.sql") },
    Migration { version: 2, name: "server", sql: include_str!("migrations/postgres/0002_server.sql") },
    Migration { version: 3, name: "workers", sql: include_str!("migrations/postgres/0003_workers.sql") },
    Migration { version: 4, name: "secrets_blobs", sql: include_str!("migrations/postgres/0004_secrets_blobs.sql") },
    Migration { version: 5, name: "outbox", sql: include_str!("migrations/postgres/0005_outbox.sql") },
    Migration { version: 6, name: "definitions", sql: include_str!("migrations/postgres/0006_definitions.sql") },
    Migration { version: 7, name: "step_cache", sql: include_str!("migrations/postgres/0007_step_cache.sql") },
    Migration { version: 8, name: "artifacts", sql: include_str!("migrations/postgres/0008_artifacts.sql") },
    Migration { version: 9, name: "run_requests", sql: include_str!("migrations/postgres/0009_run_requests.sql") },
    Migration { version: 10, name: "append_only", sql: include_str!("migrations/postgres/0010_append_only.sql") },
    Migration { version: 11, name: "poison", sql: include_str!("migrations/postgres/0011_poison.sql") },
    Migration { version: 12, name: "who", sql: include_str!("migrations/postgres/0012_who.sql") },
    Migration { version: 13, name: "audit", sql: include_str!("migrations/postgres/0013_audit.sql") },
];

/// The schema that this release works with.
#[must_use]
pub fn latest(migrations: &[Migration]) -> u32 {
    migrations.last().map_or(0, |migration| migration.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_databases_have_the_same_numbers_in_order() {
        let names = |list: &[Migration]| list.iter().map(|step| (step.version, step.name)).collect::<Vec<_>>();
        assert_eq!(names(SQLITE), names(POSTGRES));
        assert!(SQLITE.is_sorted_by(|before, after| before.version < after.version));
    }

    /// A change to a step that somebody may have applied would leave two kinds of databases with the same number.
    #[test]
    fn a_released_step_never_changes() {
        let released = [
            (SQLITE[0], "9fb5d25f949918d94103d13bdb24123b0ec512ca90584a60b2597ef79507b648"),
            (POSTGRES[0], "b8ac690705a163a79772bd22873dda5ef9fcd852b459860a9e1b5909262b565e"),
        ];
        for (migration, digest) in released {
            assert_eq!(
                milepost_core::hash::Digest::of(migration.sql.as_bytes()).to_string(),
                digest,
                "{}",
                migration.name
            );
        }
    }
}
