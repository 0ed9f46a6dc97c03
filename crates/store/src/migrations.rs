//! The schema, as numbered steps. Both databases have the same numbers; each step is applied in its own transaction.

/// One step of the schema. Never changed once released: a correction is another step.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub version: u32,
    pub name: &'static str,
    pub sql: &'static str,
}

pub const SQLITE: &[Migration] =
    &[Migration { version: 1, name: "init", sql: include_str!("migrations/sqlite/0001_init.sql") }];

/// The schema that this release works with.
#[must_use]
pub fn latest(migrations: &[Migration]) -> u32 {
    migrations.last().map_or(0, |migration| migration.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_gaps() {
        for (index, migration) in SQLITE.iter().enumerate() {
            assert_eq!(migration.version as usize, index + 1, "{}", migration.name);
        }
    }
}
