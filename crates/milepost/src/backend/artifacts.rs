//! Files that runs left, as both backends give them.

use bytes::Bytes;
use futures::stream::BoxStream;

use crate::wire::{Artifact, Page, Said};

/// A page of them.
pub(crate) type Artifacts = Page<Said<Artifact>>;

/// The content of one, piece by piece.
pub(crate) type Pieces = BoxStream<'static, anyhow::Result<Bytes>>;

/// How many are asked for at once.
pub(crate) const PAGE: u32 = 1000;

/// Which of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Which {
    pub(crate) step: Option<String>,
    pub(crate) kind: Option<String>,
}
