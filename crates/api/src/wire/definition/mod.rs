//! Answers about definitions. Whoever answers in a server's place, on a database alone, says the same: these types are
//! public.

mod diff;
mod revision;
mod tag;

pub use diff::{Diff, Difference, Merged, Target};
pub use revision::{Collected, Revision, Workflow, WorkflowRevision};
pub(crate) use revision::{RevisionAnswer, WorkflowOrRevision};
pub use tag::{Deployed, Move, MovedTag, Protection, Tag, Trust};
