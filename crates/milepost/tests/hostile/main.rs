//! The real program under attack: by callers, documents, payloads, workers, receivers and readers. Whatever they send, a
//! server answers clearly and in time, keeps within its memory, and carries out normal runs within a second; what it took is
//! no harm to the next start either.
//!
//! Routes and their fields are those of the server's own description, the keys of documents are those that it names: what is
//! added is attacked by itself. For longer: `MILEPOST_HOSTILE_SECONDS=600 cargo test -p milepost --test hostile campaign`.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod budgets;
#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "of those who share it, each needs a part")]
mod common;
mod description;
mod documents;
mod growth;
mod leaks;
mod peers;
mod postgres;
mod routes;
#[path = "../common/server.rs"]
#[expect(dead_code, reason = "of those who share it, each needs a part")]
mod servers;
mod slow;
mod streams;
mod turns;
mod values;
mod victim;
mod wire;
mod work;
mod workers;
