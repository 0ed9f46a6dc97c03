//! What is kept of a watched run: its newest events, and the last pages that were read for those who are further back.
//! Bounded in number and in bytes; whatever is not here is in the log.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::{Batch, StreamEvent};

const EVENTS: usize = 1024;
const BYTES: usize = 1024 * 1024;
const PAGES: usize = 4;
/// As much is given at a time.
const BATCH_EVENTS: usize = 128;
const BATCH_BYTES: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Without a gap.
    newest: VecDeque<Arc<StreamEvent>>,
    bytes: usize,
    pages: VecDeque<Batch>,
}

impl Kept {
    /// The events that follow on `seq`, if the first of them is here.
    pub(super) fn after(&self, seq: u64) -> Option<Batch> {
        if let Some(at) = place(self.newest.front(), seq).filter(|at| *at < self.newest.len()) {
            return Some(batch(self.newest.range(at..)));
        }
        self.pages.iter().find_map(|page| {
            let at = place(page.first(), seq).filter(|at| *at < page.len())?;
            Some(batch(page[at..].iter()))
        })
    }

    /// Takes what was just committed.
    pub(super) fn add(&mut self, events: &[Arc<StreamEvent>]) {
        let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
        let (from, to) = match (self.newest.front(), self.newest.back()) {
            (Some(front), Some(back)) => (front.seq, back.seq),
            _ => (first.seq, first.seq - 1),
        };
        let apart = first.seq > to + 1 || last.seq + 1 < from;
        if apart && last.seq < from {
            return;
        }
        if apart {
            // Another node wrote what is missing in between; the newer part is the one that more will ask for.
            self.newest.clear();
            self.bytes = 0;
        }
        for event in events.iter().rev().filter(|event| !apart && event.seq < from) {
            self.bytes += event.size();
            self.newest.push_front(event.clone());
        }
        for event in events.iter().filter(|event| apart || event.seq > to) {
            self.bytes += event.size();
            self.newest.push_back(event.clone());
        }
        self.trim();
    }

    /// Takes a page that was read for somebody who is further back: others are probably on their way to it.
    pub(super) fn add_page(&mut self, page: &Batch) {
        self.add(page);
        let is_newest = page.first().is_some_and(|first| self.newest.front().is_some_and(|kept| kept.seq <= first.seq));
        if is_newest || page.iter().map(|event| event.size()).sum::<usize>() > BYTES {
            return;
        }
        if self.pages.len() == PAGES {
            self.pages.pop_front();
        }
        self.pages.push_back(page.clone());
    }

    fn trim(&mut self) {
        while self.newest.len() > EVENTS || (self.bytes > BYTES && self.newest.len() > 1) {
            self.bytes -= self.newest.pop_front().map_or(0, |event| event.size());
        }
    }
}

/// Where the event after `seq` is, or would be, among events without a gap.
fn place(first: Option<&Arc<StreamEvent>>, seq: u64) -> Option<usize> {
    usize::try_from((seq + 1).checked_sub(first?.seq)?).ok()
}

/// As many as are given at a time, but one at least.
fn batch<'e>(events: impl Iterator<Item = &'e Arc<StreamEvent>>) -> Batch {
    let mut bytes = 0;
    let fits = |event: &&Arc<StreamEvent>| {
        let first = bytes == 0;
        bytes += event.size();
        first || bytes <= BATCH_BYTES
    };
    events.take(BATCH_EVENTS).take_while(fits).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::event::tests::{event, row};
    use super::*;

    fn events(seqs: std::ops::RangeInclusive<u64>) -> Batch {
        seqs.map(event).collect()
    }

    fn newest(kept: &Kept) -> Vec<u64> {
        kept.newest.iter().map(|event| event.seq).collect()
    }

    fn seqs(batch: Option<Batch>) -> Vec<u64> {
        batch.into_iter().flatten().map(|event| event.seq).collect()
    }

    #[test]
    fn what_overlaps_is_kept_once() {
        let mut kept = Kept::default();
        kept.add(&events(5..=7));
        kept.add(&events(6..=9));
        kept.add(&events(3..=4));
        kept.add(&events(5..=8));
        kept.add(&events(1..=11));
        assert_eq!(newest(&kept), (1..=11).collect::<Vec<_>>());
        assert_eq!(kept.bytes, kept.newest.iter().map(|event| event.size()).sum::<usize>());
    }

    #[test]
    fn a_gap_is_never_inside() {
        let mut kept = Kept::default();
        kept.add(&events(1..=3));
        kept.add(&events(6..=7));
        assert_eq!(newest(&kept), [6, 7]);
        kept.add(&events(1..=3));
        assert_eq!(newest(&kept), [6, 7], "what is older and apart is not wanted");
        kept.add(&events(4..=6));
        assert_eq!(newest(&kept), [4, 5, 6, 7]);
        assert_eq!(seqs(kept.after(2)), [] as [u64; 0]);
        assert_eq!(seqs(kept.after(3)), [4, 5, 6, 7]);
        assert_eq!(seqs(kept.after(7)), [] as [u64; 0]);
    }

    #[test]
    fn it_stays_small() {
        let mut kept = Kept::default();
        for n in 0..100 {
            kept.add(&events(n * 50 + 1..=n * 50 + 50));
        }
        assert_eq!(kept.newest.len(), EVENTS);
        assert_eq!(kept.newest.back().unwrap().seq, 5000);
        let large = format!("\"{}\"", "x".repeat(300 * 1024));
        let of = |seq| StreamEvent::of(milepost_core::id::RunId(uuid::Uuid::nil()), &row(seq, "StepCompleted", &large));
        for seq in 5001..=5010 {
            kept.add(&[of(seq)]);
        }
        assert_eq!(newest(&kept), [5008, 5009, 5010]);
        assert_eq!(seqs(kept.after(5007)), [5008], "a large event is given alone");
        for n in 0..10 {
            kept.add_page(&events(n * 10 + 1..=n * 10 + 10));
        }
        assert_eq!(kept.pages.len(), PAGES);
        assert_eq!(seqs(kept.after(65)), [66, 67, 68, 69, 70]);
    }
}
