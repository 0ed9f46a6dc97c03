//! The order of a plan's steps, and the circles that make one impossible. Nothing here recurses: chains may be 100,000 long.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::plan::StepIndex;

/// Circles shown at most; each is a problem of its own.
const MAX_CIRCLES: usize = 20;

/// For each step, the steps that depend on it; sorted.
pub(super) fn dependents(depends_on: &[Vec<StepIndex>]) -> Vec<Vec<StepIndex>> {
    let mut all = vec![Vec::new(); depends_on.len()];
    for (step, needs) in (0..).zip(depends_on) {
        for need in needs {
            all[*need as usize].push(step);
        }
    }
    all
}

/// Every step after all that it depends on, ties by index; or the circles that prevent it, each as the way around.
pub(super) fn order(
    depends_on: &[Vec<StepIndex>],
    dependents: &[Vec<StepIndex>],
) -> Result<Vec<StepIndex>, Vec<Vec<StepIndex>>> {
    let mut waiting: Vec<usize> = depends_on.iter().map(Vec::len).collect();
    let free = (0..).zip(&waiting).filter(|(_, count)| **count == 0).map(|(step, _)| Reverse(step));
    let mut ready: BinaryHeap<Reverse<StepIndex>> = free.collect();
    let mut order = Vec::with_capacity(depends_on.len());
    while let Some(Reverse(step)) = ready.pop() {
        order.push(step);
        for dependent in &dependents[step as usize] {
            waiting[*dependent as usize] -= 1;
            if waiting[*dependent as usize] == 0 {
                ready.push(Reverse(*dependent));
            }
        }
    }
    if order.len() == depends_on.len() { Ok(order) } else { Err(circles(depends_on, &waiting)) }
}

/// Follows each stuck step to a step it waits for until a circle closes. Each step is visited once.
fn circles(depends_on: &[Vec<StepIndex>], waiting: &[usize]) -> Vec<Vec<StepIndex>> {
    let next = |step: StepIndex| depends_on[step as usize].iter().copied().find(|need| waiting[*need as usize] > 0);
    let mut visited_by: Vec<Option<StepIndex>> = vec![None; waiting.len()];
    let mut found = Vec::new();
    for start in (0..).take(waiting.len()).filter(|step| waiting[*step as usize] > 0) {
        let mut at = Some(start);
        while let Some(step) = at.filter(|step| visited_by[*step as usize].is_none()) {
            visited_by[step as usize] = Some(start);
            at = next(step);
        }
        if let Some(step) = at.filter(|step| visited_by[*step as usize] == Some(start)) {
            found.push(circle(step, next));
        }
        if found.len() == MAX_CIRCLES {
            break;
        }
    }
    found
}

/// The way around from the smallest step back to itself.
fn circle(on_it: StepIndex, next: impl Fn(StepIndex) -> Option<StepIndex>) -> Vec<StepIndex> {
    let around = |start: StepIndex| {
        std::iter::successors(next(start), |step| if *step == start { None } else { next(*step) }).collect::<Vec<_>>()
    };
    let first = around(on_it).into_iter().min().unwrap_or(on_it);
    let mut way = vec![first];
    way.extend(around(first));
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_of(depends_on: &[Vec<StepIndex>]) -> Result<Vec<StepIndex>, Vec<Vec<StepIndex>>> {
        order(depends_on, &dependents(depends_on))
    }

    #[test]
    fn steps_come_after_what_they_need_and_ties_by_index() {
        assert_eq!(order_of(&[vec![2], vec![], vec![], vec![0, 1]]), Ok(vec![1, 2, 0, 3]));
    }

    #[test]
    fn circles_start_at_their_smallest_step() {
        assert_eq!(order_of(&[vec![0]]), Err(vec![vec![0, 0]]));
        let two = order_of(&[vec![], vec![3], vec![1], vec![2], vec![5], vec![4], vec![4]]);
        assert_eq!(two, Err(vec![vec![1, 3, 2, 1], vec![4, 5, 4]]));
    }

    #[test]
    fn long_chains_and_long_circles_need_no_stack() {
        let chain: Vec<Vec<StepIndex>> = (0..100_000).map(|i| if i == 0 { vec![] } else { vec![i - 1] }).collect();
        assert_eq!(order_of(&chain).unwrap().len(), 100_000);
        let circle: Vec<Vec<StepIndex>> = (0..100_000).map(|i| vec![(i + 1) % 100_000]).collect();
        assert_eq!(order_of(&circle).unwrap_err()[0].len(), 100_001);
    }
}
