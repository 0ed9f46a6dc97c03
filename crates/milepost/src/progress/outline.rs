//! The steps that are shown of a run, in an order in which they can run, and how deep each stands.

use std::collections::HashMap;

use milepost_core::plan::Plan;

use super::happening::StepName;

#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    /// Every step after all that it depends on.
    pub(super) ids: Vec<String>,
    /// By step: how many steps stand before it on its longest way.
    pub(super) depth: Vec<usize>,
    index: HashMap<String, usize>,
    /// The run waits for `APPROVE` before its first step.
    pub(super) approval: bool,
}

impl Outline {
    pub(crate) fn of_plan(plan: &Plan) -> Outline {
        let mut depth = vec![0; plan.steps.len()];
        for index in &plan.order {
            let before = plan.step(*index).depends_on.iter().map(|before| depth[*before as usize] + 1);
            depth[*index as usize] = before.max().unwrap_or(0);
        }
        let ids = plan.order.iter().map(|index| plan.step(*index).id.to_string());
        let depth = plan.order.iter().map(|index| depth[*index as usize]);
        Outline { approval: plan.approval, ..Outline::new(ids.collect(), depth.collect()) }
    }

    /// Where only the names are known, as a run's own list has them: items stand there, too, and are counted, not shown.
    pub(crate) fn of_names<'n>(names: impl Iterator<Item = &'n str>) -> Outline {
        let whole = names.map(StepName::parse).filter(|name| name.item.is_none());
        let ids: Vec<String> = whole.map(|name| name.id).collect();
        let depth = vec![0; ids.len()];
        Outline::new(ids, depth)
    }

    fn new(ids: Vec<String>, depth: Vec<usize>) -> Outline {
        let index = ids.iter().cloned().enumerate().map(|(index, id)| (id, index)).collect();
        Outline { ids, depth, index, approval: false }
    }

    /// A step that a patch brought.
    pub(super) fn add(&mut self, id: &str) {
        self.index.insert(id.to_owned(), self.ids.len());
        self.ids.push(id.to_owned());
        self.depth.push(0);
    }

    pub(super) fn find(&self, id: &str) -> Option<usize> {
        self.index.get(id).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_names_has_its_items_left_out() {
        let outline = Outline::of_names(["brief", "shots", "shots[0]", "shots[1]", "cut"].into_iter());
        assert_eq!(outline.ids, ["brief", "shots", "cut"]);
        assert_eq!((outline.find("cut"), outline.find("shots[0]")), (Some(2), None));
    }
}
