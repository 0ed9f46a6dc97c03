//! What the store refuses of something that several callers share: it is tried in halves until those stand alone that the
//! store will not have. The others are not taken along.

use std::ops::Range;

use milepost_store::{Result, StoreError};

/// A range in two; nothing of an empty one.
fn halves(range: Range<usize>) -> Vec<Range<usize>> {
    let middle = range.start + range.len() / 2;
    [middle..range.end, range.start..middle].into_iter().filter(|half| !half.is_empty()).collect()
}

/// Which of so many members the store refuses, in order. `attempt` tries some of them; of what it was not refused nothing is
/// tried again.
///
/// # Errors
/// The store cannot be asked now.
pub(crate) async fn refused_of<A, R>(count: usize, mut attempt: A) -> Result<Vec<usize>>
where
    A: FnMut(Range<usize>) -> R,
    R: Future<Output = Result<()>>,
{
    let mut refused = Vec::new();
    let mut parts = halves(0..count);
    while let Some(part) = parts.pop() {
        match attempt(part.clone()).await {
            Ok(()) => {}
            Err(StoreError::Refused(_)) if part.len() > 1 => parts.extend(halves(part)),
            Err(StoreError::Refused(_)) => refused.push(part.start),
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    async fn tried(count: usize, bad: &[usize]) -> (Vec<usize>, usize, usize) {
        let (calls, taken) = (Cell::new(0), Cell::new(0));
        let refused = refused_of(count, |range| {
            calls.set(calls.get() + 1);
            let refuse = bad.iter().any(|place| range.contains(place));
            taken.set(taken.get() + if refuse { 0 } else { range.len() });
            async move { if refuse { Err(StoreError::Refused("no".to_owned())) } else { Ok(()) } }
        });
        (refused.await.unwrap(), calls.get(), taken.get())
    }

    #[tokio::test]
    async fn only_those_are_left_out_that_are_refused_alone() {
        assert_eq!(tried(0, &[]).await, (vec![], 0, 0));
        assert_eq!(tried(1, &[0]).await, (vec![0], 1, 0));
        assert_eq!(tried(1, &[]).await, (vec![], 1, 1));
        for bad in [&[0][..], &[7], &[0, 1, 2, 3, 4, 5, 6, 7, 8], &[3, 4]] {
            let (refused, _, taken) = tried(9, bad).await;
            assert_eq!((refused.as_slice(), taken), (bad, 9 - bad.len()));
        }
    }

    #[tokio::test]
    async fn few_among_many_are_found_soon() {
        let (refused, calls, _) = tried(1024, &[100, 500, 900]).await;
        assert_eq!(refused, [100, 500, 900]);
        assert!(calls <= 60, "{calls} calls");
    }

    #[tokio::test]
    async fn a_store_that_is_not_there_refuses_nobody() {
        let gone = refused_of(2, |_| async { Err(StoreError::Unavailable("gone".to_owned())) }).await;
        assert!(matches!(gone, Err(StoreError::Unavailable(_))));
    }
}
