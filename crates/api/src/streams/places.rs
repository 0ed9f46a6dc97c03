//! How many streams there may be, and how many runs WebSockets may follow in all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;

use crate::error::{Problem, Result};
use crate::token::TokenHash;

/// Runs that all WebSockets of a server follow together.
const MOST_SUBSCRIPTIONS: usize = 100_000;

/// Places for streams and for what they follow.
#[derive(Debug)]
pub(crate) struct Places {
    most: usize,
    /// Streams of one token, where there are several.
    most_of_token: usize,
    open: Mutex<HashMap<Option<TokenHash>, usize>>,
    subscriptions: AtomicUsize,
}

/// A stream, as long as it is open.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    of: Option<TokenHash>,
}

/// A run that a WebSocket follows, as long as it does.
#[derive(Debug)]
pub(crate) struct Subscribed(Arc<Places>);

impl Places {
    pub(crate) fn new(most: usize, tokens: usize) -> Arc<Places> {
        let most_of_token = if tokens > 1 { most.div_ceil(2) } else { most };
        Arc::new(Places { most, most_of_token, open: Mutex::default(), subscriptions: AtomicUsize::new(0) })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Option<TokenHash>, usize>> {
        // Counts are right after any panic.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more stream of whoever has this token.
    ///
    /// # Errors
    /// There are too many already.
    pub(crate) fn enter(self: &Arc<Places>, token: Option<TokenHash>) -> Result<Place> {
        let mut open = self.open();
        if open.values().sum::<usize>() >= self.most {
            let detail = format!(
                "{} streams are open, and this server has no more; close some, or raise `connections.streams`",
                self.most
            );
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", detail));
        }
        let own = open.entry(token).or_default();
        if *own >= self.most_of_token {
            let detail = format!("this token has {own} streams, half of what the server has; close some of them");
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_streams", detail));
        }
        *own += 1;
        Ok(Place { places: self.clone(), of: token })
    }

    /// A place for one more run that a WebSocket follows, if there is one.
    pub(super) fn subscribe(self: &Arc<Places>) -> Option<Subscribed> {
        let more = |count| (count < MOST_SUBSCRIPTIONS).then_some(count + 1);
        self.subscriptions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Subscribed(self.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.open();
        if let Some(own) = open.get_mut(&self.of) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.of);
            }
        }
    }
}

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.0.subscriptions.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_has_half_of_the_streams() {
        let token = |text: &str| Some(TokenHash::of(text));
        let places = Places::new(4, 2);
        let status = |entered: Result<Place>| entered.map(drop).map_err(|problem| problem.status().as_u16());
        let first = [places.enter(token("a")).unwrap(), places.enter(token("a")).unwrap()];
        assert_eq!(status(places.enter(token("a"))), Err(429));
        let _others = [places.enter(token("b")).unwrap(), places.enter(token("b")).unwrap()];
        assert_eq!(status(places.enter(token("c"))), Err(503));
        drop(first);
        assert_eq!(status(places.enter(token("c"))), Ok(()));
        let alone = Places::new(4, 1);
        let all: Vec<Place> = (0..4).map(|_| alone.enter(token("a")).unwrap()).collect();
        assert_eq!((all.len(), status(alone.enter(token("a")))), (4, Err(503)));
    }
}
