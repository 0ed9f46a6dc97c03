//! Values that are read for a question about a run: events carry them, or the blob store has them.
//!
//! **Invariant:** what is read for one question has a limit, and what all of them take together has one, too.

use milepost_core::codec;
use milepost_core::limits::Limits;
use milepost_core::run::RunState;

use crate::artifacts::{Artifacts, lost};
use crate::error::EngineError;
use crate::room::{Place, Room};

/// Values that an input needs are asked for in so many rounds: the payload, then the outputs of steps and their items.
const ROUNDS: usize = 5;
/// Events that are read at once.
pub(crate) const EVENTS: usize = 64;

/// Bytes of values that may be read at once.
pub(crate) struct Budget {
    left: usize,
    most: usize,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Budget {
        Budget { left: limits.large_output_bytes, most: limits.large_output_bytes }
    }

    /// Pays for a value before it is read.
    ///
    /// # Errors
    /// Why it is not read: whoever needs it fails, and can be told what to do.
    pub(crate) fn pay(&mut self, bytes: usize) -> Result<(), String> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            format!(
                "with what else is needed at once it has more than {} bytes; let the steps return references to their data",
                self.most
            )
        })?;
        Ok(())
    }
}

/// Questions to one state, and the room that their answers take.
pub(crate) struct Reading<'a> {
    artifacts: &'a Artifacts,
    room: &'a Room,
    place: Place,
    budget: Budget,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(artifacts: &'a Artifacts, room: &'a Room, limits: &Limits) -> Reading<'a> {
        Reading { artifacts, room, place: Place::default(), budget: Budget::new(limits) }
    }

    /// Asks a state something, and reads what it lacks for the answer.
    pub(crate) async fn ask<T>(
        &mut self,
        state: &mut RunState,
        mut ask: impl FnMut(&mut RunState) -> Result<Option<T>, Vec<u64>>,
    ) -> Result<Option<T>, EngineError> {
        for _ in 0..ROUNDS {
            self.room.grow(&mut self.place, state.memory_of_values()).await?;
            let missing = match ask(state) {
                Ok(answer) => return Ok(answer),
                Err(missing) => missing,
            };
            for page in missing.chunks(EVENTS) {
                self.read(state, page).await?;
            }
        }
        Ok(None)
    }

    async fn read(&mut self, state: &mut RunState, seqs: &[u64]) -> Result<(), EngineError> {
        for row in self.artifacts.store().events_at(state.org, state.run, seqs).await? {
            if let Some(beyond) = codec::carried_beyond(&row) {
                state.learn_artifacts(row.seq, beyond.result());
            }
            match (codec::carried_value(&row), codec::carried_blob(&row)) {
                (Ok(Some(json)), _) => match self.budget.pay(json.len()) {
                    Ok(()) => state.learn(row.seq, json),
                    Err(reason) => state.learn_lost(row.seq, reason),
                },
                (_, Some(blob)) => match self.budget.pay(usize::try_from(blob.size_bytes).unwrap_or(usize::MAX)) {
                    Ok(()) => match self.artifacts.read_output(state.org, blob).await? {
                        Some(json) => state.learn(row.seq, json),
                        None => state.learn_lost(row.seq, lost(blob)),
                    },
                    Err(reason) => state.learn_lost(row.seq, reason),
                },
                _ => {}
            }
        }
        Ok(())
    }
}
