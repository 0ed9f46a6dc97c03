//! Lists are pages.

use serde::Serialize;
use utoipa::ToSchema;

/// A page of a list.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// Pass it as `cursor` for the next page; null on the last one.
    pub(crate) next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// Makes a page of one more than was asked for: the one too many says that there is another page.
    pub(crate) fn cut(mut items: Vec<T>, limit: u32, cursor: impl Fn(&T) -> String) -> Page<T> {
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next_cursor = items.last().filter(|_| more).map(cursor);
        Page { items, next_cursor }
    }
}
