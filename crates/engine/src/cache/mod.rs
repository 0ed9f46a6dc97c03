//! Results of steps as those see them who keep them: what there is, what it spared, and what goes. How runs take them is
//! the committer's matter. `hot` keeps their outputs in Redis as well, where there is one.

mod evictor;
mod hot;
mod view;

use std::time::Duration;

pub(crate) use evictor::Evictor;
pub use hot::{BadRedisUrl, RedisConfig};
pub(crate) use hot::{Held, Hot, HotTasks, result_name};
pub use view::{CacheEntry, CacheKey, cursor_of, describe_key, evict_results, key_range, read_cursor};

/// How results are kept.
#[derive(Clone, Debug, Default)]
pub struct CacheConfig {
    /// How long a result is kept that nobody takes; for ever if it is not said.
    pub ttl: Option<Duration>,
    /// Bytes of outputs in the database at most; what was not taken for longest goes first.
    pub bytes: Option<u64>,
    /// A Redis that spares reading outputs from the database.
    pub redis: Option<RedisConfig>,
}
