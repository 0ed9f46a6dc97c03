//! Work that somebody waits for, and ends when nobody does any more.
//!
//! Documents, patches and merges are worked on by functions that only end when they are done. Whoever runs them says here that
//! it gave up, and the next of their long loops that looks ends them all: by unwinding, as they keep nothing that could be
//! half written. There is no clock here.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody waits; all its copies say the same.
#[derive(Clone, Debug, Default)]
pub struct Patience {
    is_over: Arc<AtomicBool>,
}

/// The work was ended before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp;

thread_local! {
    /// That of the work which this thread does.
    static CURRENT: RefCell<Option<Patience>> = const { RefCell::new(None) };
}

impl Patience {
    /// Nobody waits any more.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Does work on this thread until it is done, or nobody waits for it.
    ///
    /// # Errors
    /// Nobody waits for it.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> Result<T, GivenUp> {
        let before = CURRENT.replace(Some(self.clone()));
        let done = catch_unwind(AssertUnwindSafe(work));
        CURRENT.set(before);
        done.map_err(|cause| match cause.downcast::<GivenUp>() {
            Ok(given_up) => *given_up,
            Err(panic) => resume_unwind(panic),
        })
    }
}

/// Ends the work of this thread if nobody waits for it.
pub(crate) fn look() {
    let is_over = |current: &Option<Patience>| current.as_ref().is_some_and(|it| it.is_over.load(Ordering::Relaxed));
    if CURRENT.with_borrow(is_over) {
        resume_unwind(Box::new(GivenUp) as Box<dyn Any + Send>);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_when_nobody_waits() {
        let patience = Patience::default();
        assert_eq!(
            patience.during(|| {
                look();
                1
            }),
            Ok(1)
        );
        let mut turns = 0;
        let endless = || -> u32 {
            loop {
                look();
                turns += 1;
                if turns == 10 {
                    patience.end();
                }
            }
        };
        assert_eq!(patience.during(endless), Err(GivenUp));
        assert_eq!(turns, 10);
        look();
    }
}
