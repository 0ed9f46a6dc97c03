//! Which writes of a batch stand or fall together.

use crate::rows::RunWrite;

/// The places of a batch's writes, group after group, in the order in which the groups first appear.
pub(crate) fn in_groups(writes: &[RunWrite]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::with_capacity(writes.len());
    // Callers number groups as they go, so a known number is nearly always the last one.
    let ascending = writes.windows(2).all(|pair| pair[0].group <= pair[1].group);
    let mut last = None;
    for (index, write) in writes.iter().enumerate() {
        let known = if ascending {
            last.filter(|group| *group == write.group).map(|_| groups.len() - 1)
        } else {
            groups.iter().position(|group| writes[group[0]].group == write.group)
        };
        match known {
            Some(place) => groups[place].push(index),
            None => groups.push(vec![index]),
        }
        last = Some(write.group);
    }
    groups
}
