//! `/`: where to go, and the latest runs.

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::response::Response;
use milepost_engine::view::RunSummary;
use milepost_store::rows::RunFilter;

use crate::error::Result;
use crate::headers;
use crate::state::AppState;

const LATEST: u32 = 20;
const PAGE: &str = include_str!("home.html");
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| headers::policy(PAGE));

pub(super) async fn home(State(state): State<AppState>) -> Result<Response> {
    let filter = RunFilter { limit: LATEST, ..RunFilter::default() };
    let runs = state.engine.list(&filter).await?;
    let mut rows = String::new();
    runs.iter().for_each(|run| row(&mut rows, run));
    if runs.is_empty() {
        rows.push_str("<tr><td colspan=5>No runs yet. Start one: <code>milepost run FILE</code></td></tr>");
    }
    let page = PAGE.replace("<!--runs-->", &rows).replace("<!--version-->", env!("CARGO_PKG_VERSION"));
    Ok(headers::page(page, &POLICY))
}

fn row(rows: &mut String, run: &RunSummary) {
    let took = run.started_at.zip(run.completed_at).map(|(from, to)| format!("{} ms", to.ms_since(from)));
    let (id, status) = (run.run_id, run.status);
    // Writing to a String cannot fail.
    let _ = write!(
        rows,
        "<tr><td><a href=\"/api/v1/runs/{id}\">{id}</a></td><td>{}</td><td class={status}>{status}</td>\
         <td>{}/{}</td><td>{}</td><td>{}</td></tr>",
        escape(&run.workflow),
        run.steps_done,
        run.steps_total,
        run.created_at,
        took.unwrap_or_default(),
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
