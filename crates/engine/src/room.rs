//! Memory that work of one kind may take together: bodies of requests, answers of other servers, answers to large questions.
//!
//! **Invariant:** who waits for room holds no lock and gives up after a while, so that those who wait for each other go on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Room is given out in pieces.
const PIECE_BYTES: usize = 4 * 1024;
/// What grows takes room step by step.
const STEP_BYTES: usize = 256 * 1024;
/// What is smaller needs none: there are never more of them than connections and steps.
const SMALL_BYTES: usize = 64 * 1024;
/// How long somebody waits for room.
const PATIENCE: Duration = Duration::from_secs(10);

/// Room for so many bytes.
#[derive(Clone, Debug)]
pub struct Room(Arc<Semaphore>);

/// Room that somebody has, until this is dropped.
#[derive(Debug, Default)]
pub struct Place(Option<OwnedSemaphorePermit>);

impl Place {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// Something with the room that it takes.
#[derive(Debug, Default)]
pub struct Held<T> {
    pub it: T,
    pub place: Place,
}

/// There is no room, and there was none for a while.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("what is under way leaves no memory for this; try again in a moment")]
pub struct Full;

impl Full {
    /// A stable word for programs.
    pub const CODE: &'static str = "overloaded";
}

impl Room {
    #[must_use]
    pub fn new(bytes: usize) -> Room {
        Room(Arc::new(Semaphore::new(pieces(bytes).min(Semaphore::MAX_PERMITS))))
    }

    /// Makes a place at least this large.
    ///
    /// # Errors
    /// There was no room for a while.
    pub async fn take(&self, place: &mut Place, bytes: usize) -> Result<(), Full> {
        let held = place.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(more) = pieces(bytes).checked_sub(held).filter(|more| *more > 0) else { return Ok(()) };
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let Ok(Ok(taken)) = timeout(PATIENCE, self.0.clone().acquire_many_owned(more)).await else { return Err(Full) };
        match &mut place.0 {
            Some(held) => held.merge(taken),
            none => *none = Some(taken),
        }
        Ok(())
    }

    /// The same for what has grown to so many bytes and may grow on.
    ///
    /// # Errors
    /// There was no room for a while.
    pub async fn grow(&self, place: &mut Place, bytes: usize) -> Result<(), Full> {
        match bytes <= SMALL_BYTES {
            true => Ok(()),
            false => self.take(place, bytes.next_multiple_of(STEP_BYTES)).await,
        }
    }
}

fn pieces(bytes: usize) -> usize {
    bytes.div_ceil(PIECE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_taken_is_there_for_others_when_it_is_given_back() {
        let room = Room::new(4 * STEP_BYTES);
        let (mut one, mut other) = (Place::default(), Place::default());
        room.grow(&mut one, SMALL_BYTES).await.unwrap();
        room.take(&mut other, 4 * STEP_BYTES).await.unwrap();
        let waits = timeout(Duration::from_millis(10), room.grow(&mut one, SMALL_BYTES + 1)).await;
        assert!(waits.is_err(), "there is none left");
        drop(other);
        for bytes in [SMALL_BYTES + 1, 2 * STEP_BYTES, STEP_BYTES, 4 * STEP_BYTES] {
            room.grow(&mut one, bytes).await.unwrap();
        }
        drop(one);
        room.take(&mut Place::default(), 4 * STEP_BYTES).await.unwrap();
    }
}
