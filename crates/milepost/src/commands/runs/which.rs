//! Which run is meant: an id, the beginning of one, or `last`.

use milepost_core::id::RunId;

use crate::backend::{Backend, RunFilter};
use crate::output::error::Refusal;

pub(in crate::commands) async fn resolve(backend: &Backend, wanted: &str) -> anyhow::Result<RunId> {
    if let Ok(run) = wanted.parse() {
        return if backend.has(run).await? { Ok(run) } else { Err(unknown(wanted)) };
    }
    let prefix: String = if wanted == "last" { String::new() } else { wanted.to_lowercase().replace('-', "") };
    if prefix.len() > 32 || !prefix.chars().all(|letter| letter.is_ascii_hexdigit()) {
        return Err(unknown(wanted));
    }
    // Ids are in the order of time: those that begin like this are the newest before the last that could.
    let bound = RunId(format!("{prefix:f<32}").parse()?);
    let found = backend.list(&RunFilter::default(), Some(bound), 2).await?;
    let ids = found.items.iter().map(|run| run.value.run_id);
    let mut matching = ids.filter(|run| run.0.simple().to_string().starts_with(&prefix));
    match (matching.next(), matching.next()) {
        (Some(run), None) => Ok(run),
        (Some(run), Some(_)) if wanted == "last" => Ok(run),
        (Some(_), Some(_)) => Err(Refusal::new(
            "ambiguous_run",
            format!("several runs begin with {wanted}; give more of the id, as in `milepost runs list`"),
        )
        .into()),
        (None, _) => Err(unknown(wanted)),
    }
}

fn unknown(wanted: &str) -> anyhow::Error {
    let what = if wanted == "last" { "there is no run yet".to_owned() } else { format!("there is no run {wanted}") };
    Refusal::new("unknown_run", format!("{what}; `milepost runs list` shows those there are")).into()
}
