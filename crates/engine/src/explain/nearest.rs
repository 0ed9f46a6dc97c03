//! The earlier key that is most like one: what differs is why a step ran.

use milepost_core::cache::key_of;
use milepost_core::difference::{Difference, Differences, Part, differences, in_words};
use milepost_core::json::Json;
use milepost_store::rows::PreimageRow;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::work::Lane;

/// So many of the newest are compared.
const COMPARED: u32 = 20;

/// An earlier key of the same step.
pub(super) struct Nearest {
    pub(super) row: PreimageRow,
    pub(super) differences: Differences,
}

/// What is known of the past of a key.
pub(super) struct Past {
    /// The step began under this very key before.
    pub(super) same: Option<PreimageRow>,
    /// The one with the fewest differences, of several the newest.
    pub(super) nearest: Option<Nearest>,
}

impl Past {
    fn of(rows: Vec<PreimageRow>, preimage: &Json) -> Past {
        let (key, now) = (key_of(preimage), preimage.to_value());
        let mut past = Past { same: None, nearest: None };
        for row in rows {
            if row.key == key {
                past.same = Some(row);
                continue;
            }
            let found = differences(&row.preimage.to_value(), &now);
            let fewer = |nearest: &Nearest| found.count() < nearest.differences.count();
            if past.nearest.as_ref().is_none_or(fewer) {
                past.nearest = Some(Nearest { row, differences: found });
            }
        }
        past
    }
}

/// Why there is no result under a key.
pub(crate) struct Missed {
    pub(crate) words: String,
    /// The steps whose artifacts a key had before and this one lacks, if nothing else is different.
    pub(crate) without: Vec<String>,
}

fn without_artifacts(differences: &Differences) -> Vec<String> {
    let gone = |difference: &Difference| difference.part == Part::Artifacts && difference.after.is_none();
    if differences.more > 0 || !differences.list.iter().all(gone) {
        return Vec::new();
    }
    differences.list.iter().map(|difference| difference.path.trim_start_matches('/').to_owned()).collect()
}

impl Engine {
    /// What a step began with before, compared with what it begins with now.
    pub(super) async fn past_of(&self, workflow: &str, step: &str, preimage: &Json) -> Result<Past, EngineError> {
        let rows = self.store.cache().preimages(self.org, workflow, step, COMPARED).await?;
        let bytes = preimage.len() + rows.iter().map(|row| row.preimage.len()).sum::<usize>();
        let preimage = preimage.clone();
        Ok(self.work().sized(Lane::Documents, bytes, move || Past::of(rows, &preimage)).await?)
    }

    /// Why there is no result under a key.
    pub(crate) async fn why_missed(&self, workflow: &str, step: &str, preimage: &Json) -> Result<Missed, EngineError> {
        let past = self.past_of(workflow, step, preimage).await?;
        let words = match (&past.same, &past.nearest) {
            (Some(_), _) => "it began with this before and no result is left".to_owned(),
            (None, Some(nearest)) => in_words(&nearest.differences),
            (None, None) => "nothing is known of an earlier time".to_owned(),
        };
        let differences = past.nearest.filter(|_| past.same.is_none()).map(|nearest| nearest.differences);
        Ok(Missed { words, without: without_artifacts(&differences.unwrap_or_default()) })
    }
}
