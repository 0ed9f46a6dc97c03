//! Change requests: what an update run's payload is, made from that of the run it goes back to. What each type of change
//! does stands in the document, under `changes`.

use serde_json::Value;

use crate::canonical;
use crate::document::near::near_name;
use crate::json::Json;
use crate::limits::Limits;
use crate::plan::{Change, Plan, Rebuild, StepIndex};
use crate::run::{Rejection, RejectionKind};

/// So many names are listed in a message.
const LISTED: usize = 12;

/// What somebody wants to be different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRequest {
    /// One of the types that the document declares.
    pub kind: String,
    pub payload: Json,
}

/// What several changes come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The payload of the update run.
    pub payload: Json,
    /// Steps that run whatever was kept of earlier runs.
    pub rebuild: Option<Rebuild>,
}

/// Steps that somebody wants to run whatever is kept, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildRequest {
    All,
    Steps(Vec<String>),
}

impl RebuildRequest {
    /// The steps of a plan that are meant.
    ///
    /// # Errors
    /// It has none of that name.
    pub fn of(&self, plan: &Plan) -> Result<Rebuild, Rejection> {
        let RebuildRequest::Steps(names) = self else { return Ok(Rebuild::All) };
        let mut steps = names.iter().map(|name| step_of(plan, name)).collect::<Result<Vec<_>, _>>()?;
        steps.sort_unstable();
        steps.dedup();
        Ok(Rebuild::Steps(steps))
    }
}

fn step_of(plan: &Plan, name: &str) -> Result<StepIndex, Rejection> {
    plan.find(name).filter(|step| !plan.step(*step).removed).ok_or_else(|| {
        let near = near_name(name, plan.steps.iter().map(|step| &*step.id));
        let hint = match name.split_once('[').filter(|(id, _)| plan.find(id).is_some()) {
            Some((id, _)) => format!("; items are rebuilt with their step, `{id}`"),
            None => near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default(),
        };
        let message = format!("the workflow `{}` has no step `{name}` to rebuild{hint}", plan.name);
        Rejection::new(RejectionKind::Invalid, "unknown_step", message)
    })
}

/// Applies changes to a payload, in order: each sees what those before it left.
///
/// # Errors
/// The document does not declare a change of that type, or there is nothing where it would be made.
pub fn apply_changes(
    plan: &Plan,
    payload: &Json,
    requests: &[ChangeRequest],
    limits: &Limits,
) -> Result<Changed, Rejection> {
    let mut value = payload.to_value();
    let mut rebuild = None;
    for request in requests {
        match declared(plan, &request.kind)? {
            Change::Merge(pointer) => json_patch::merge(place(&mut value, pointer, request)?, &read(request, limits)?),
            Change::Replace(pointer) => *place(&mut value, pointer, request)? = read(request, limits)?,
            Change::Rebuild(steps) => rebuild = both(rebuild, Some(steps.clone())),
        }
    }
    Ok(Changed { payload: Json::of(&value), rebuild })
}

fn declared<'p>(plan: &'p Plan, kind: &str) -> Result<&'p Change, Rejection> {
    plan.changes.get(kind).ok_or_else(|| {
        let known: Vec<&str> = plan.changes.keys().map(|kind| &**kind).collect();
        let hint = match (known.is_empty(), near_name(kind, known.iter().copied())) {
            (true, _) => "it declares none".to_owned(),
            (_, Some(near)) => format!("did you mean `{near}`? It declares {}", listed(&known)),
            (_, None) => format!("it declares {}", listed(&known)),
        };
        let message = format!("the workflow `{}` has no change of type `{kind}`; {hint}", plan.name);
        Rejection::new(RejectionKind::Invalid, "unknown_change", message)
    })
}

/// A change is made where something is: what a merge brings may be new, the place where it is made may not.
fn place<'v>(payload: &'v mut Value, pointer: &str, request: &ChangeRequest) -> Result<&'v mut Value, Rejection> {
    if payload.pointer(pointer).is_none() {
        let message = format!(
            "the payload of the base run has nothing at `{pointer}`, where `{}` would change it; {}",
            request.kind,
            reached(payload, pointer)
        );
        return Err(Rejection::new(RejectionKind::Invalid, "change_failed", message));
    }
    Ok(payload.pointer_mut(pointer).expect("it was just looked at"))
}

/// How far a pointer leads, and what is there.
fn reached(payload: &Value, pointer: &str) -> String {
    let mut end = pointer.len();
    loop {
        end = pointer[..end].rfind('/').unwrap_or(0);
        let Some(there) = payload.pointer(&pointer[..end]) else { continue };
        let at = if end == 0 { "it".to_owned() } else { format!("`{}`", &pointer[..end]) };
        return match there {
            Value::Object(members) if members.is_empty() => format!("{at} is empty"),
            Value::Object(members) => {
                let names: Vec<&str> = members.keys().map(String::as_str).collect();
                format!("{at} has {}", listed(&names))
            }
            Value::Array(items) => format!("{at} is a list of {}", items.len()),
            _ => format!("{at} has nothing below it"),
        };
    }
}

/// As many names as one likes to read.
fn listed(names: &[&str]) -> String {
    match names.len().checked_sub(LISTED) {
        Some(more @ 1..) => format!("{} and {more} more", names[..LISTED].join(", ")),
        _ => names.join(", "),
    }
}

fn read(request: &ChangeRequest, limits: &Limits) -> Result<Value, Rejection> {
    canonical::parse_within(request.payload.as_str(), limits).map_err(|error| {
        let message = format!("the payload of the change `{}`: {error}", request.kind);
        Rejection::new(RejectionKind::Invalid, "bad_change", message)
    })
}

/// All that one or the other wants.
#[must_use]
pub fn both(one: Option<Rebuild>, other: Option<Rebuild>) -> Option<Rebuild> {
    Some(match (one, other) {
        (None, other) => return other,
        (one, None) => return one,
        (Some(Rebuild::All), _) | (_, Some(Rebuild::All)) => Rebuild::All,
        (Some(Rebuild::Steps(mut steps)), Some(Rebuild::Steps(more))) => {
            steps.extend(more);
            steps.sort_unstable();
            steps.dedup();
            Rebuild::Steps(steps)
        }
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::document;

    const DOCUMENT: &str = "
name: t
steps: {a: {skill: x}, b: {skill: x}, c: {skill: x}}
changes:
  audio.update: {merge: /audio}
  asset.replace: {replace: /assets/0}
  top: {merge: ''}
  some: {rebuild: [c, a]}
  other: {rebuild: [b, a]}
  all: {rebuild: all}
";

    fn apply(requests: &[(&str, Value)]) -> Result<Changed, Rejection> {
        let plan = document::load(DOCUMENT, &Limits::default()).unwrap().plan;
        let payload = json!({"audio": {"prompt": "calm", "bpm": 90, "key": "d"}, "assets": ["old", "kept"]});
        let request =
            |(kind, payload): &(&str, Value)| ChangeRequest { kind: (*kind).to_owned(), payload: Json::of(payload) };
        let requests: Vec<ChangeRequest> = requests.iter().map(request).collect();
        apply_changes(&plan, &Json::of(&payload), &requests, &Limits::default())
    }

    #[track_caller]
    fn payload(requests: &[(&str, Value)]) -> Value {
        apply(requests).unwrap().payload.to_value()
    }

    #[test]
    fn a_merge_changes_what_it_names_and_removes_what_it_says_is_null() {
        let changed = payload(&[("audio.update", json!({"prompt": "wild", "key": null, "fx": {"echo": 1}}))]);
        let audio = json!({"prompt": "wild", "bpm": 90, "fx": {"echo": 1}});
        assert_eq!(changed, json!({"audio": audio, "assets": ["old", "kept"]}));
        assert_eq!(payload(&[("top", json!({"assets": null}))]).get("assets"), None);
    }

    #[test]
    fn a_replacement_keeps_nothing_of_what_was_there() {
        let changed = payload(&[("asset.replace", json!({"key": null}))]);
        assert_eq!(changed["assets"], json!([{"key": null}, "kept"]));
    }

    #[test]
    fn changes_apply_in_order() {
        let twice = payload(&[("audio.update", json!({"bpm": 100})), ("audio.update", json!({"bpm": 120}))]);
        assert_eq!(twice["audio"]["bpm"], json!(120));
        let gone = apply(&[("top", json!({"audio": null})), ("audio.update", json!({"bpm": 120}))]).unwrap_err();
        assert_eq!(gone.code, "change_failed");
        assert_eq!(payload(&[]), payload(&[("top", json!({}))]));
    }

    #[test]
    fn what_is_to_be_rebuilt_adds_up() {
        let rebuild = |kinds: &[&str]| {
            let requests: Vec<(&str, Value)> = kinds.iter().map(|kind| (*kind, json!(null))).collect();
            apply(&requests).unwrap().rebuild
        };
        assert_eq!(rebuild(&[]), None);
        assert_eq!(rebuild(&["some"]), Some(Rebuild::Steps(vec![0, 2])));
        assert_eq!(rebuild(&["some", "other"]), Some(Rebuild::Steps(vec![0, 1, 2])));
        assert_eq!(rebuild(&["all", "other"]), Some(Rebuild::All));
        assert_eq!(rebuild(&["some", "all"]), Some(Rebuild::All));
    }

    #[test]
    fn unknown_types_and_places_that_do_not_exist_are_refused() {
        let near = apply(&[("audio.updat", json!({}))]).unwrap_err();
        assert_eq!(near.code, "unknown_change");
        assert!(near.message.contains("did you mean `audio.update`? It declares all, asset.replace, "), "{near}");
        let far = apply(&[("video.cut", json!({}))]).unwrap_err();
        assert!(far.message.contains("it declares all, asset.replace, audio.update"), "{far}");
        let nowhere = apply(&[("top", json!({"assets": []})), ("asset.replace", json!(1))]).unwrap_err();
        assert_eq!(nowhere.code, "change_failed");
        assert!(nowhere.message.contains("nothing at `/assets/0`"), "{nowhere}");
        assert!(nowhere.message.ends_with("`/assets` is a list of 0"), "{nowhere}");
        // Also where the parent is there: a change does not make the place it is made at.
        let gone = apply(&[("top", json!({"audio": null})), ("audio.update", json!({"bpm": 1}))]).unwrap_err();
        assert!(gone.message.ends_with("it has assets"), "{gone}");
        let shut = apply(&[("top", json!({"assets": 7})), ("asset.replace", json!(1))]).unwrap_err();
        assert!(shut.message.ends_with("`/assets` has nothing below it"), "{shut}");
    }

    #[test]
    fn steps_to_rebuild_are_named() {
        let plan = document::load(DOCUMENT, &Limits::default()).unwrap().plan;
        let of =
            |names: &[&str]| RebuildRequest::Steps(names.iter().map(|name| (*name).to_owned()).collect()).of(&plan);
        assert_eq!(RebuildRequest::All.of(&plan).unwrap(), Rebuild::All);
        assert_eq!(of(&["c", "a", "c"]).unwrap(), Rebuild::Steps(vec![0, 2]));
        assert_eq!(of(&["d"]).unwrap_err().code, "unknown_step");
        assert!(of(&["a[0]"]).unwrap_err().message.contains("items are rebuilt with their step, `a`"));
    }

    #[test]
    fn a_payload_that_readers_would_not_agree_on_is_refused() {
        let plan = document::load(DOCUMENT, &Limits::default()).unwrap().plan;
        let request = |text: &str| ChangeRequest { kind: "top".to_owned(), payload: Json::trusted(text) };
        for text in [r#"{"a":1,"a":2}"#, r#"{"a":9007199254740993}"#] {
            let refused = apply_changes(&plan, &Json::trusted("{}"), &[request(text)], &Limits::default());
            assert_eq!(refused.unwrap_err().code, "bad_change", "{text}");
        }
    }
}
