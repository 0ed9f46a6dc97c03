//! Answers about definitions. Whoever answers in a server's place, on a database alone, says the same: these types are
//! public.

mod diff;
mod revision;
mod tag;

pub use diff::{Diff, Difference, Merged, Target};
pub(crate) use revision::Revision;
pub use revision::{Collected, Workflow};
pub use tag::{Deployed, Move, MovedTag, Protection, Tag, Trust};
