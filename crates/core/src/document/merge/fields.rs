//! Merges two documents value by value, against the one that both came from.
//!
//! Nothing is copied: what comes out is made of references into the three documents, and a subtree that one side left alone is
//! taken from the other as it is.

use serde_json::{Map, Value};

use super::conflict::{Conflict, ConflictKind, Conflicts, Side};
use super::set;
use crate::canonical::{pointer_segment, written};
use crate::document::node::{Data, Entry, Node};
use crate::patience;

/// What came out.
#[derive(Debug)]
pub(super) enum Tree<'a> {
    Taken(&'a Value),
    Made(Value),
    Map(Vec<(&'a str, Tree<'a>)>),
}

impl From<&Tree<'_>> for Node {
    fn from(tree: &Tree<'_>) -> Node {
        let entry = |(key, tree): &(&str, Tree<'_>)| Entry {
            key: (*key).to_owned(),
            at: super::Position::default(),
            node: Node::from(tree),
        };
        match tree {
            Tree::Taken(value) => Node::from(*value),
            Tree::Made(value) => Node::from(value),
            Tree::Map(entries) => Data::Map(entries.iter().map(entry).collect()).into(),
        }
    }
}

/// One place in the three documents.
#[derive(Clone, Copy)]
struct Three<'a> {
    base: Option<&'a Value>,
    ours: Option<&'a Value>,
    theirs: Option<&'a Value>,
}

/// How a place merges, by where it is.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Document,
    Steps,
    /// Belongs together: two steps of one name that came into being apart from each other are not mixed.
    Step,
    /// A set in effect.
    DependsOn,
    Field,
}

impl Place {
    fn below(self, key: &str) -> Place {
        match (self, key) {
            (Place::Document, "steps") => Place::Steps,
            (Place::Steps, _) => Place::Step,
            (Place::Step, "depends_on") => Place::DependsOn,
            _ => Place::Field,
        }
    }
}

/// Merges all values. Where they clash stands what `preferred` has.
pub(super) fn merge<'a>(base: &'a Value, ours: &'a Value, theirs: &'a Value, preferred: Side) -> (Tree<'a>, Conflicts) {
    let mut merging = Merging { at: Vec::new(), conflicts: Conflicts::default(), preferred };
    let three = Three { base: Some(base), ours: Some(ours), theirs: Some(theirs) };
    let tree = merging.value(three, Place::Document).unwrap_or(Tree::Taken(base));
    (tree, merging.conflicts)
}

struct Merging<'a> {
    at: Vec<&'a str>,
    conflicts: Conflicts,
    preferred: Side,
}

impl<'a> Merging<'a> {
    fn value(&mut self, three: Three<'a>, place: Place) -> Option<Tree<'a>> {
        patience::look();
        let Three { base, ours, theirs } = three;
        if ours == theirs || theirs == base {
            return ours.map(Tree::Taken);
        }
        if ours == base {
            return theirs.map(Tree::Taken);
        }
        if place == Place::DependsOn
            && let Some(merged) = set::merge(base, ours, theirs)
        {
            return merged.map(Tree::Made);
        }
        match (base, ours, theirs) {
            (Some(Value::Object(base)), Some(Value::Object(ours)), Some(Value::Object(theirs))) => {
                Some(self.maps(Some(base), ours, theirs, place))
            }
            (None, Some(Value::Object(ours)), Some(Value::Object(theirs))) if place != Place::Step => {
                Some(self.maps(None, ours, theirs, place))
            }
            _ => self.clash(three),
        }
    }

    fn maps(
        &mut self,
        base: Option<&'a Map<String, Value>>,
        ours: &'a Map<String, Value>,
        theirs: &'a Map<String, Value>,
        place: Place,
    ) -> Tree<'a> {
        let mut merged = Vec::with_capacity(ours.len());
        let mut one = |key: &'a String, ours: Option<&'a Value>, theirs: Option<&'a Value>| {
            self.at.push(key);
            let three = Three { base: base.and_then(|base| base.get(key)), ours, theirs };
            merged.extend(self.value(three, place.below(key)).map(|tree| (key.as_str(), tree)));
            self.at.pop();
        };
        for (key, value) in ours {
            one(key, Some(value), theirs.get(key));
        }
        for (key, value) in theirs.iter().filter(|(key, _)| !ours.contains_key(*key)) {
            one(key, None, Some(value));
        }
        Tree::Map(merged)
    }

    fn clash(&mut self, three: Three<'a>) -> Option<Tree<'a>> {
        let Three { base, ours, theirs } = three;
        let (kind, message) = match (base, ours, theirs) {
            (None, ..) => (ConflictKind::BothAdded, "both sides added it, and not the same"),
            (_, None, _) => (ConflictKind::ChangedAndRemoved, "ours removed what theirs changed"),
            (_, _, None) => (ConflictKind::ChangedAndRemoved, "theirs removed what ours changed"),
            _ => (ConflictKind::BothChanged, "both sides changed it, and not to the same"),
        };
        let bytes = [base, ours, theirs].into_iter().flatten().map(written).sum::<usize>()
            + self.at.iter().map(|segment| segment.len() + 1).sum::<usize>();
        let at = &self.at;
        self.conflicts.add(bytes, || Conflict {
            kind,
            path: at.iter().map(|segment| pointer_segment(segment)).collect(),
            step_id: match at[..] {
                ["steps", id, ..] => Some(id.to_owned()),
                _ => None,
            },
            message: message.to_owned(),
            steps: Vec::new(),
            base: base.cloned(),
            ours: ours.cloned(),
            theirs: theirs.cloned(),
        });
        match self.preferred {
            Side::Ours => ours.map(Tree::Taken),
            Side::Theirs => theirs.map(Tree::Taken),
        }
    }
}
