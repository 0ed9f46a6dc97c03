//! The items of a `foreach` step. Those of one that is over stay as a checkpoint has them, packed, until somebody looks:
//! mostly nobody does, and a run that has gone over many items is loaded as fast as one that went over few.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use super::checkpoint::unpack;
use super::state::StepState;

/// The sub-steps of a `foreach` step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Items {
    pub(super) steps: ItemSteps,
    pub(super) unfinished: u32,
    pub(super) running: u32,
    pub(super) failed: u32,
}

/// A list of steps that is unpacked when it is first looked at, and no longer packed once it is changed.
#[derive(Clone, Debug, Default)]
pub(super) struct ItemSteps {
    packed: Option<Packed>,
    open: OnceLock<Vec<StepState>>,
}

/// What a checkpoint has of a list of steps; known to be as it was written.
#[derive(Clone, Debug)]
struct Packed {
    bytes: Box<[u8]>,
    count: usize,
}

impl ItemSteps {
    pub(super) fn packed(bytes: &[u8], count: usize) -> ItemSteps {
        ItemSteps { packed: Some(Packed { bytes: bytes.into(), count }), open: OnceLock::new() }
    }

    /// As it would come out of a checkpoint.
    #[cfg(test)]
    pub(super) fn pack(&mut self) {
        *self = ItemSteps::packed(&super::checkpoint::pack(self), self.len());
    }

    pub(super) fn as_packed(&self) -> Option<&[u8]> {
        self.packed.as_ref().map(|packed| &*packed.bytes)
    }

    /// How many there are, without looking at them.
    pub(super) fn count(&self) -> usize {
        self.packed.as_ref().map_or_else(|| self.len(), |packed| packed.count)
    }

    /// Bytes in memory.
    pub(super) fn weight(&self) -> usize {
        let packed = self.packed.as_ref().map_or(0, |packed| packed.bytes.len());
        packed + self.open.get().map_or(0, |steps| size_of_val(steps.as_slice()))
    }
}

impl From<Vec<StepState>> for ItemSteps {
    fn from(steps: Vec<StepState>) -> ItemSteps {
        ItemSteps { packed: None, open: OnceLock::from(steps) }
    }
}

impl Deref for ItemSteps {
    type Target = Vec<StepState>;

    fn deref(&self) -> &Vec<StepState> {
        self.open.get_or_init(|| self.packed.as_ref().map_or_else(Vec::new, |packed| unpack(&packed.bytes)))
    }
}

impl DerefMut for ItemSteps {
    fn deref_mut(&mut self) -> &mut Vec<StepState> {
        let _ = ItemSteps::deref(self);
        self.packed = None;
        self.open.get_mut().expect("it was just opened")
    }
}

impl PartialEq for ItemSteps {
    fn eq(&self, other: &ItemSteps) -> bool {
        **self == **other
    }
}

impl Eq for ItemSteps {}
