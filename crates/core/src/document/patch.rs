//! RFC 6902 patches of a document: operations on its canonical form, where steps are a map by id.
//!
//! **Invariant:** while it is being patched, a document is never nested deeper than documents may be, and all that a patch
//! adds is no larger than a document may be: copies of copies end early. So does what goes over the document again and again.

use std::cell::Cell;

use json_patch::{PatchErrorKind, PatchOperation};
use serde::Deserialize as _;
use serde_json::{Number, Value};

use super::{Loaded, Problem, load_value};
use crate::canonical;
use crate::limits::Limits;
use crate::patience;
use crate::text;

/// Bytes of a path, a name or a member that is quoted.
const MAX_SHOWN: usize = 256;
/// Bytes of what is said about an operation.
const MAX_REASON: usize = 1024;

/// Why there is no patched document.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// One of its operations is none, or does not fit the document; the text names it.
    #[error("{0}")]
    Failed(String),
    /// All of them fit, and what they made is no document that can be run.
    #[error("the patched document has {} problem(s)", .0.len())]
    Invalid(Vec<Problem>),
}

impl PatchError {
    /// What is wrong, in one text: the problems are named as well.
    #[must_use]
    pub fn reason(&self) -> String {
        const SHOWN: usize = 5;
        let PatchError::Invalid(problems) = self else { return self.to_string() };
        let told: Vec<String> = problems.iter().take(SHOWN).map(ToString::to_string).collect();
        format!("{self}: {}", told.join("; "))
    }
}

/// Applies a patch to a document's canonical form, and reads what it made of it.
///
/// # Errors
/// An operation does not fit, or the result has problems.
pub fn patch(canonical: &str, operations: &Value, limits: &Limits) -> Result<Loaded, PatchError> {
    let Some(operations) = operations.as_array() else {
        return Err(PatchError::Failed("a patch is a list of operations, such as `[{\"op\": \"remove\", …}]`".into()));
    };
    let document = serde_json::from_str(canonical)
        .map_err(|error| PatchError::Failed(format!("the document to be patched is not JSON: {error}")))?;
    let mut patching = Patching::new(document, limits);
    for (number, operation) in (1..).zip(operations) {
        let failed = |reason: String| {
            let reason = text::shortened(&reason, MAX_REASON);
            PatchError::Failed(format!("operation {number} of the patch {reason}"))
        };
        let operation = read(operation).map_err(|reason| failed(format!("is none: {reason}")))?;
        patching.apply(&operation).map_err(|reason| failed(format!("({}) {reason}", shown(&operation))))?;
    }
    load_value(&patching.document, limits).map_err(PatchError::Invalid)
}

/// Reads an operation, which has its own members and no others: one that is misspelt is not passed over.
fn read(operation: &Value) -> Result<PatchOperation, String> {
    let Some(members) = operation.as_object() else { return Err("an operation is an object".to_owned()) };
    let known: &[&str] = match members.get("op").and_then(Value::as_str) {
        Some("add" | "replace" | "test") => &["op", "path", "value"],
        Some("remove") => &["op", "path"],
        Some("move" | "copy") => &["op", "from", "path"],
        Some(op) => {
            let op = text::shortened(op, MAX_SHOWN);
            return Err(format!("there is no operation `{op}`; known are add, remove, replace, move, copy, test"));
        }
        None => return Err("`op` is a text, such as `replace`".to_owned()),
    };
    if let Some(other) = members.keys().find(|member| !known.contains(&member.as_str())) {
        let other = text::shortened(other, MAX_SHOWN);
        return Err(format!("it has no member `{other}`; known are {}", known.join(", ")));
    }
    PatchOperation::deserialize(operation).map_err(|error| error.to_string())
}

/// Applies patches that were checked when they were stored to a document's canonical form, one after the other. The result is
/// canonical too, as every patch is kept in a form that makes it so.
///
/// # Errors
/// One of them does not fit: what is stored is damaged.
pub fn patched(canonical: &str, patches: &[String]) -> Result<String, String> {
    let document = serde_json::from_str(canonical).map_err(|error| format!("its base is not JSON: {error}"))?;
    let limits = super::unlimited();
    let mut patching = Patching::new(document, &limits);
    for patch in patches {
        let operations: Vec<PatchOperation> =
            serde_json::from_str(patch).map_err(|error| format!("a patch of it is none: {error}"))?;
        operations.iter().try_for_each(|operation| {
            patching.apply(operation).map_err(|reason| format!("a patch of it ({}) {reason}", shown(operation)))
        })?;
    }
    Ok(canonical::write(&patching.document))
}

struct Patching<'a> {
    document: Value,
    /// Bytes that operations have added so far.
    added: usize,
    /// Values that operations may still go over: each of the document a few times.
    walks_left: Cell<usize>,
    limits: &'a Limits,
}

impl<'a> Patching<'a> {
    fn new(document: Value, limits: &'a Limits) -> Patching<'a> {
        Patching { document, added: 0, walks_left: Cell::new(limits.document_bytes.saturating_mul(4)), limits }
    }

    fn apply(&mut self, operation: &PatchOperation) -> Result<(), String> {
        patience::look();
        self.pay_for_place(operation.path().as_str())?;
        match operation {
            PatchOperation::Test(test) => {
                let found = self.document.pointer(test.path.as_str()).ok_or("finds nothing there")?;
                self.is_deeper(&test.value, usize::MAX)?;
                return if same(found, &test.value) { Ok(()) } else { Err("finds another value there".to_owned()) };
            }
            PatchOperation::Add(add) => self.check_added(&add.value, add.path.as_str())?,
            PatchOperation::Replace(replace) => self.check_added(&replace.value, replace.path.as_str())?,
            PatchOperation::Copy(copy) => {
                let source = self.document.pointer(copy.from.as_str()).ok_or("has nothing at `from`")?;
                self.check_depth(source, copy.path.as_str())?;
                self.add(canonical::written(source))?;
            }
            PatchOperation::Move(moved) => {
                self.pay_for_place(moved.from.as_str())?;
                let source = self.document.pointer(moved.from.as_str()).ok_or("has nothing at `from`")?;
                self.check_depth(source, moved.path.as_str())?;
            }
            PatchOperation::Remove(_) => {}
        }
        json_patch::patch_unsafe(&mut self.document, std::slice::from_ref(operation))
            .map_err(|error| reason(&error.kind, operation).to_owned())
    }

    fn check_added(&mut self, value: &Value, path: &str) -> Result<(), String> {
        self.check_depth(value, path)?;
        self.add(canonical::write(value).len())
    }

    fn add(&mut self, bytes: usize) -> Result<(), String> {
        self.added = self.added.saturating_add(bytes);
        if self.added > self.limits.document_bytes {
            return Err(format!("makes the patch add more than {} bytes", self.limits.document_bytes));
        }
        Ok(())
    }

    fn check_depth(&self, value: &Value, path: &str) -> Result<(), String> {
        let left = self.limits.json_depth.checked_sub(path.matches('/').count());
        if left.map_or(Ok(true), |left| self.is_deeper(value, left))? {
            return Err(format!("nests the document deeper than {} levels", self.limits.json_depth));
        }
        Ok(())
    }

    fn is_deeper(&self, value: &Value, left: usize) -> Result<bool, String> {
        patience::look();
        self.walk(1)?;
        match value {
            Value::Array(_) | Value::Object(_) if left == 0 => Ok(true),
            Value::Array(items) => self.any_is_deeper(items.iter(), left - 1),
            Value::Object(map) => self.any_is_deeper(map.values(), left - 1),
            _ => Ok(false),
        }
    }

    fn any_is_deeper<'v>(&self, values: impl Iterator<Item = &'v Value>, left: usize) -> Result<bool, String> {
        for value in values {
            if self.is_deeper(value, left)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// In a list all that comes after a place makes room, or closes up.
    fn pay_for_place(&self, path: &str) -> Result<(), String> {
        let list = path.rsplit_once('/').and_then(|(list, _)| self.document.pointer(list)?.as_array());
        self.walk(1 + list.map_or(0, |items| items.len() / 16))
    }

    fn walk(&self, values: usize) -> Result<(), String> {
        let left = self.walks_left.get().checked_sub(values);
        self.walks_left.set(left.ok_or("makes the patch do more work than one may; make it of fewer operations")?);
        Ok(())
    }
}

/// Equal as RFC 6902 has it: numbers by their value, 1 and 1.0 are the same.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

fn same_number(a: &Number, b: &Number) -> bool {
    a == b || ((a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64())
}

/// `replace /steps/brief/skill`.
fn shown(operation: &PatchOperation) -> String {
    let name = match operation {
        PatchOperation::Add(_) => "add",
        PatchOperation::Remove(_) => "remove",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Move(_) => "move",
        PatchOperation::Copy(_) => "copy",
        PatchOperation::Test(_) => "test",
    };
    format!("`{name} {}`", text::shortened(operation.path().as_str(), MAX_SHOWN))
}

fn reason(kind: &PatchErrorKind, operation: &PatchOperation) -> &'static str {
    let adds = matches!(operation, PatchOperation::Add(_) | PatchOperation::Copy(_) | PatchOperation::Move(_));
    match kind {
        PatchErrorKind::InvalidFromPointer => "has nothing at `from`",
        PatchErrorKind::CannotMoveInsideItself => "would move a value into itself",
        PatchErrorKind::InvalidPointer if adds => "has no place for it there: what it would stand in does not exist",
        _ => "finds nothing there",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DOCUMENT: &str =
        r#"{"name":"t","steps":{"a":{"input":{"n":1,"xs":[1,2.5]},"skill":"x"},"b":{"depends_on":["a"],"skill":"x"}}}"#;

    fn patched(operations: Value) -> Result<Loaded, PatchError> {
        patch(DOCUMENT, &operations, &Limits::default())
    }

    #[track_caller]
    fn failed(operations: Value) -> String {
        match patched(operations) {
            Err(PatchError::Failed(reason)) => reason,
            other => panic!("it should have failed: {other:?}"),
        }
    }

    #[test]
    fn steps_are_changed_added_and_removed_by_their_ids() {
        let operations = json!([
            {"op": "replace", "path": "/steps/a/input/n", "value": 2},
            {"op": "add", "path": "/steps/c", "value": {"skill": "y", "depends_on": ["a"]}},
            {"op": "remove", "path": "/steps/b"},
            {"op": "copy", "from": "/steps/c", "path": "/steps/d"},
            {"op": "move", "from": "/steps/c", "path": "/steps/e"},
        ]);
        let loaded = patched(operations).unwrap();
        assert_eq!(
            loaded.canonical,
            r#"{"name":"t","steps":{"a":{"input":{"n":2,"xs":[1,2.5]},"skill":"x"},"d":{"depends_on":["a"],"skill":"y"},"e":{"depends_on":["a"],"skill":"y"}}}"#
        );
        assert_eq!(loaded.plan.hash, loaded.hash);
        assert_eq!(loaded.plan.steps.len(), 3);
    }

    #[test]
    fn an_empty_patch_leaves_the_document_as_it_is() {
        assert_eq!(patched(json!([])).unwrap().canonical, DOCUMENT);
    }

    #[test]
    fn a_test_compares_numbers_by_their_value() {
        let test = |value: Value| json!([{"op": "test", "path": "/steps/a/input", "value": value}]);
        patched(test(json!({"xs": [1.0, 2.5], "n": 1.0}))).unwrap();
        for other in [json!({"n": 1}), json!({"n": 1, "xs": [1, 2]}), json!({"n": "1", "xs": [1, 2.5]}), json!(null)] {
            assert_eq!(
                failed(test(other)),
                "operation 1 of the patch (`test /steps/a/input`) finds another value there"
            );
        }
        assert!(same(&json!(9_007_199_254_740_993_u64), &json!(9_007_199_254_740_993_u64)));
        assert!(!same(&json!(9_007_199_254_740_993_u64), &json!(9_007_199_254_740_992_u64)));
    }

    #[test]
    fn an_operation_that_does_not_fit_is_named() {
        let second = |operation: Value| failed(json!([{"op": "remove", "path": "/steps/b"}, operation]));
        for (operation, told) in [
            (json!({"op": "remove", "path": "/steps/b"}), "operation 2 of the patch (`remove /steps/b`) finds nothing"),
            (json!({"op": "replace", "path": "/steps/x", "value": 1}), "(`replace /steps/x`) finds nothing there"),
            (json!({"op": "add", "path": "/steps/x/input", "value": 1}), "(`add /steps/x/input`) has no place for it"),
            (json!({"op": "add", "path": "/steps/a/input/xs/9", "value": 1}), "has no place for it"),
            (json!({"op": "copy", "from": "/steps/x", "path": "/steps/y"}), "has nothing at `from`"),
            (json!({"op": "move", "from": "/steps/x", "path": "/steps/y"}), "has nothing at `from`"),
            (json!({"op": "move", "from": "/steps", "path": "/steps/y"}), "into itself"),
            (json!({"op": "test", "path": "/steps/x", "value": 1}), "(`test /steps/x`) finds nothing there"),
            (json!({"op": "grow", "path": "/steps/x"}), "operation 2 of the patch is none"),
            (json!({"op": "add", "path": "/steps/x"}), "missing field `value`"),
            (json!("remove"), "operation 2 of the patch is none"),
            (json!({"op": "grow", "path": "/steps/x"}), "there is no operation `grow`; known are add, remove"),
            (json!({"op": ["add"], "path": "/steps/x"}), "`op` is a text"),
            (json!({"path": "/steps/x"}), "`op` is a text"),
            (json!({"op": "remove", "path": "/steps/b", "value": 1}), "no member `value`; known are op, path"),
            (json!({"op": "replace", "path": "/version", "value": 1, "form": ""}), "no member `form`"),
            (json!({"op": "move", "path": "/steps/a", "value": 1}), "no member `value`"),
            (json!({"op": "add", "path": 1, "value": 1}), "operation 2 of the patch is none: "),
            (json!({"op": "add", "path": "steps", "value": 1}), "operation 2 of the patch is none: "),
        ] {
            let reason = second(operation.clone());
            assert!(reason.contains(told), "{operation}: {reason}");
        }
        assert!(failed(json!({"op": "remove", "path": "/steps/b"})).contains("a list of operations"));
    }

    #[test]
    fn what_is_wrong_is_told_in_few_bytes() {
        let long = "/x".repeat(100_000);
        for operation in [
            json!({"op": long, "path": ""}),
            json!({"op": "remove", "path": long}),
            json!({"op": "remove", "path": "", long.clone(): 1}),
            json!({"op": "copy", "from": long, "path": long}),
            json!({"op": "add", "path": [long], "value": 1}),
        ] {
            assert!(failed(json!([operation])).len() < 1500);
        }
        let keys = patched(json!([{"op": "add", "path": "/steps/a/input", "value": {"k".repeat(2000): 1}}]));
        let Err(PatchError::Invalid(problems)) = keys else { panic!("the key is too long") };
        assert_eq!(problems[0].code, "key_too_long");
    }

    #[test]
    fn what_it_makes_is_checked_like_any_document() {
        let Err(PatchError::Invalid(problems)) = patched(json!([{"op": "remove", "path": "/steps/a"}])) else {
            panic!("`b` depends on a step that is gone");
        };
        assert_eq!((problems[0].code, problems[0].path.as_str()), ("unknown_step", "/steps/b/depends_on/0"));
    }

    #[test]
    fn going_over_the_document_again_and_again_ends_early() {
        let big: Vec<u32> = (0..400_000).collect();
        let add = json!({"op": "add", "path": "/steps/a/input/n", "value": big});
        let places = ["/steps/a/input/n", "/steps/a/input/m"];
        let swap = |n: usize| json!({"op": "move", "from": (places[n % 2]), "path": (places[(n + 1) % 2])});
        let moves: Vec<Value> = std::iter::once(add.clone()).chain((0..10_000).map(swap)).collect();
        assert!(failed(json!(moves)).contains("more work than one may"));
        let insert = |_| json!({"op": "add", "path": "/steps/a/input/n/0", "value": 1});
        let inserts: Vec<Value> = std::iter::once(add).chain((0..10_000).map(insert)).collect();
        assert!(failed(json!(inserts)).contains("more work than one may"));
        let few: Vec<Value> =
            (0..1000).map(|n| json!({"op": "add", "path": "/steps/a/input/xs/0", "value": n})).collect();
        patched(json!(few)).unwrap();
    }

    #[test]
    fn copies_of_copies_end_early() {
        let copies: Vec<Value> = (0..60).map(|n| json!({"op": "copy", "from": "", "path": format!("/{n}")})).collect();
        assert!(failed(json!(copies)).contains("add more than 4194304 bytes"));
        let deep: Vec<Value> =
            (0..200).map(|_| json!({"op": "copy", "from": "/steps/a/input", "path": "/steps/a/input/n"})).collect();
        assert!(failed(json!(deep)).contains("deeper than 64 levels"));
        let path = "/a".repeat(65);
        assert!(failed(json!([{"op": "add", "path": path, "value": 1}])).contains("deeper than 64 levels"));
    }
}
