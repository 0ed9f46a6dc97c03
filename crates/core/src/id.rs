//! Identifiers. Newtypes, so that a run's id cannot be passed where a signal's belongs.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The tenant a row belongs to. A small integer inside the database; the outside sees a slug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OrgId(pub i32);

impl OrgId {
    /// The one org that exists until identity is set up.
    pub const DEFAULT: OrgId = OrgId(1);

    /// Its name for the outside. Others than the one that exists have none but their number.
    #[must_use]
    pub fn slug(self) -> Cow<'static, str> {
        match self {
            OrgId::DEFAULT => Cow::Borrowed("default"),
            OrgId(number) => Cow::Owned(number.to_string()),
        }
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

uuid_id! {
    /// A run. UUIDv7, so that active runs sit next to each other in the B-tree and a month is a range of ids.
    RunId
}
uuid_id! {
    /// A signal sent to a run; the same id sent twice is one signal.
    SignalId
}
uuid_id! {
    /// A step of a run that waits for a worker, or that one has.
    TaskId
}
uuid_id! {
    /// Something that a commit asks for and that is carried out after it. UUIDv7: by age, but in no order that anybody
    /// relies on.
    OutboxId
}
uuid_id! {
    /// One event of a run's log, derived from the run and the event's sequence number.
    EventId
}
uuid_id! {
    /// A file that a run left.
    ArtifactId
}

/// One process that runs the engine, for one boot: a restarted process is another node, so a reused name never hides
/// the work that the dead one left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub i64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for NodeId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(|bits| NodeId(bits.cast_signed()))
    }
}
