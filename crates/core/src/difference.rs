//! What is different between two pre-images of keys: why a step ran where it had run before.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::canonical::pointer_segment;
use crate::patience;
use crate::text;

/// So many differences are put into words.
const IN_WORDS: usize = 3;
/// Bytes of a path that is put into words.
const WORDS_BYTES: usize = 512;
/// So many differences are listed, the rest is counted.
const LISTED: usize = 1000;
/// Bytes of all their paths: each level of a path repeats a name of the input.
const PATH_BYTES: usize = 1 << 20;

/// A smallest place where two pre-images differ. A side that does not have it has no value, which is not the same as null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    pub part: Part,
    /// A JSON pointer below the part; empty for the part as a whole.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// What a key is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// What the document says of the step; a digest in a pre-image.
    Definition,
    Input,
    /// What the steps before it left, by their ids: a hash of all the artifacts of each.
    Artifacts,
    /// Declared variables, by the hashes of their values.
    Env,
    /// Secrets, by their versions.
    Secrets,
    /// How often results were disowned.
    Epoch,
    /// Whose results may be taken.
    Trust,
    /// Of what else there may be one day.
    Other,
}

impl Part {
    fn of(name: &str) -> Part {
        match name {
            "definition" => Part::Definition,
            "input" => Part::Input,
            "artifacts" => Part::Artifacts,
            "env" => Part::Env,
            "secrets" => Part::Secrets,
            "epoch" => Part::Epoch,
            "trust" => Part::Trust,
            _ => Part::Other,
        }
    }

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Definition => "definition",
            Part::Input => "input",
            Part::Artifacts => "artifacts",
            Part::Env => "env",
            Part::Secrets => "secrets",
            Part::Epoch => "epoch",
            Part::Trust => "trust",
            Part::Other => "other",
        }
    }
}

/// What is different, as far as it is listed.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    pub list: Vec<Difference>,
    /// How many more there are.
    pub more: usize,
    path_bytes: usize,
}

/// Compares two pre-images, part by part.
#[must_use]
pub fn differences(before: &Value, after: &Value) -> Differences {
    let mut found = Differences::default();
    let (Some(before), Some(after)) = (before.as_object(), after.as_object()) else { return found };
    let nothing = Value::Object(serde_json::Map::new());
    for name in names_of(before, after) {
        let part = Part::of(name);
        // Where no step left anything, there is no such part.
        let absent = (part == Part::Artifacts).then_some(&nothing);
        let (before, after) = (before.get(name).or(absent), after.get(name).or(absent));
        found.compare(part, &Place::Part, before, after);
    }
    found.list.sort_by(|a, b| (a.part, &a.path).cmp(&(b.part, &b.path)));
    found
}

fn names_of<'a>(before: &'a Map<String, Value>, after: &'a Map<String, Value>) -> BTreeSet<&'a String> {
    before.keys().chain(after.keys()).collect()
}

/// The way from a part to one of its values; costs nothing until it is listed.
enum Place<'a> {
    Part,
    Key(&'a Place<'a>, &'a str),
    Index(&'a Place<'a>, usize),
}

impl Place<'_> {
    fn bytes(&self) -> usize {
        match self {
            Place::Part => 0,
            Place::Key(parent, key) => parent.bytes() + 1 + key.len(),
            Place::Index(parent, _) => parent.bytes() + 8,
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Part => Ok(()),
            Place::Key(parent, key) => write!(f, "{parent}{}", pointer_segment(key)),
            Place::Index(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

impl Differences {
    /// The differences between two values of one part.
    #[must_use]
    pub fn of_part(part: Part, before: &Value, after: &Value) -> Differences {
        let mut found = Differences::default();
        found.compare(part, &Place::Part, Some(before), Some(after));
        found
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len() + self.more
    }

    /// Puts what is different in a part into the place of one that is about the part as a whole.
    #[must_use]
    pub fn with_part(mut self, part: Part, inner: Differences) -> Differences {
        let place = self.list.iter().position(|difference| difference.part == part);
        if let Some(place) = place.filter(|_| inner.count() > 0) {
            self.list.splice(place..=place, inner.list);
            self.more += inner.more;
        }
        self
    }

    /// Lists of one length are walked, others differ as a whole.
    fn compare(&mut self, part: Part, place: &Place<'_>, before: Option<&Value>, after: Option<&Value>) {
        patience::look();
        match (before, after) {
            (before, after) if before == after => {}
            (Some(Value::Object(before)), Some(Value::Object(after))) => {
                for name in names_of(before, after) {
                    self.compare(part, &Place::Key(place, name), before.get(name), after.get(name));
                }
            }
            (Some(Value::Array(before)), Some(Value::Array(after))) if before.len() == after.len() => {
                for (index, (before, after)) in before.iter().zip(after).enumerate() {
                    self.compare(part, &Place::Index(place, index), Some(before), Some(after));
                }
            }
            (before, after) => self.add(part, place, before, after),
        }
    }

    fn add(&mut self, part: Part, place: &Place<'_>, before: Option<&Value>, after: Option<&Value>) {
        let bytes = self.path_bytes + place.bytes();
        if self.list.len() >= LISTED || bytes > PATH_BYTES {
            self.more += 1;
            return;
        }
        self.path_bytes = bytes;
        self.list.push(Difference { part, path: place.to_string(), before: before.cloned(), after: after.cloned() });
    }
}

/// What is different in a few words: `prompt` of its input changed.
#[must_use]
pub fn in_words(differences: &Differences) -> String {
    let mut words: Vec<String> = Vec::new();
    for difference in &differences.list {
        let said = difference.words();
        if !words.contains(&said) {
            words.push(said);
        }
    }
    match (words.len() + differences.more).checked_sub(IN_WORDS) {
        Some(more @ 1..) => format!("{} and {more} more", words[..IN_WORDS.min(words.len())].join(", ")),
        _ => words.join(" and "),
    }
}

impl Difference {
    fn words(&self) -> String {
        let path = text::shortened(self.path.trim_start_matches('/'), WORDS_BYTES);
        let name = path.replace('/', ".").replace("~1", "/").replace("~0", "~");
        let became = match (&self.before, &self.after) {
            (None, Some(_)) => "is new",
            (Some(_), None) => "is gone",
            _ => "changed",
        };
        match (self.part, name.is_empty()) {
            (Part::Definition, true) => "its definition changed".to_owned(),
            (Part::Definition, false) => format!("`{name}` of its definition {became}"),
            (Part::Input, true) => "its input changed".to_owned(),
            (Part::Input, false) => format!("`{name}` of its input {became}"),
            (Part::Artifacts, _) => format!("the artifacts of `{name}` {}", plural(became)),
            (Part::Env, _) => format!("the variable `{name}` {became}"),
            (Part::Secrets, _) => format!("the secret `{name}` {became}"),
            (Part::Epoch, _) => "earlier results were disowned".to_owned(),
            (Part::Trust, _) if self.after == Some(Value::from("protected")) => {
                "only results of runs that follow a protected tag count".to_owned()
            }
            (Part::Trust, _) => "the run follows no protected tag".to_owned(),
            (Part::Other, _) => "keys are made in another way".to_owned(),
        }
    }
}

fn plural(became: &str) -> String {
    became.replace("is ", "are ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn preimage(input: Value) -> Value {
        json!({"definition": "d1", "env": {"LANG": "h1"}, "epoch": {"step": 0, "workflow": 0}, "format": 1,
            "input": input, "org": 1, "secrets": {"TOKEN": "3"}, "step": "cut", "trust": "open", "workflow": "w"})
    }

    fn shown(before: &Value, after: &Value) -> Vec<String> {
        let show = |difference: &Difference| format!("{}{}", difference.part.as_str(), difference.path);
        differences(before, after).list.iter().map(show).collect()
    }

    #[test]
    fn each_part_is_walked_to_the_smallest_place() {
        let before = preimage(json!({"prompt": "calm", "shots": [1, {"a": 1}], "gone": null}));
        let mut after = preimage(json!({"prompt": "wild", "shots": [1, {"a": 2}], "new": 1}));
        assert_eq!(shown(&before, &after), ["input/gone", "input/new", "input/prompt", "input/shots/1/a"]);
        after["input"] = before["input"].clone();
        (after["env"]["LANG"], after["secrets"]["TOKEN"]) = (json!("h2"), json!("4"));
        (after["epoch"]["step"], after["trust"], after["definition"]) = (json!(1), json!("protected"), json!("d2"));
        assert_eq!(shown(&before, &after), ["definition", "env/LANG", "secrets/TOKEN", "epoch/step", "trust"]);
        assert_eq!(shown(&before, &before), [""; 0]);
    }

    #[test]
    fn what_earlier_steps_left_is_told_by_step() {
        let none = preimage(json!(1));
        let mut before = none.clone();
        before["artifacts"] = json!({"render": "h1", "brief": "h2"});
        let mut after = before.clone();
        after["artifacts"]["render"] = json!("h3");
        assert_eq!(shown(&before, &after), ["artifacts/render"]);
        assert_eq!(in_words(&differences(&before, &after)), "the artifacts of `render` changed");
        assert_eq!(shown(&none, &after), ["artifacts/brief", "artifacts/render"]);
        let gone = "the artifacts of `brief` are gone and the artifacts of `render` are gone";
        assert_eq!(in_words(&differences(&before, &none)), gone);
    }

    #[test]
    fn lists_of_another_length_differ_as_a_whole() {
        assert_eq!(shown(&preimage(json!([1, 2])), &preimage(json!([1]))), ["input"]);
    }

    #[test]
    fn many_differences_are_counted() {
        let wide = |n: u32| -> Value { (0..5000).map(|i| (format!("k{i}"), json!(n))).collect::<Map<_, _>>().into() };
        let found = differences(&preimage(wide(1)), &preimage(wide(2)));
        assert_eq!((found.list.len(), found.count()), (LISTED, 5000));
        assert!(in_words(&found).ends_with(" and 4997 more"));
        let long = |n: u32| (0..40).fold(wide(n), |inner, _| json!({ "k".repeat(1000): inner }));
        let found = differences(&preimage(long(1)), &preimage(long(2)));
        assert!(found.list.len() < 30 && found.count() == 5000, "{}", found.list.len());
        assert!(in_words(&found).len() < 3000);
    }

    #[test]
    fn a_few_differences_are_put_into_words() {
        let words = |before: Value, after: Value| in_words(&differences(&preimage(before), &preimage(after)));
        assert_eq!(words(json!({"prompt": 1}), json!({"prompt": 2})), "`prompt` of its input changed");
        assert_eq!(
            words(json!({"a": {"b/c": 1}, "x": 1}), json!({"a": {"b/c": 2}})),
            "`a.b/c` of its input changed and `x` of its input is gone"
        );
        let many = words(json!({}), json!({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}));
        assert!(many.ends_with("`c` of its input is new and 2 more"), "{many}");
        let mut after = preimage(json!(1));
        (after["trust"], after["epoch"]) = (json!("protected"), json!({"step": 1, "workflow": 1}));
        let said = in_words(&differences(&preimage(json!(1)), &after));
        assert_eq!(said, "earlier results were disowned and only results of runs that follow a protected tag count");
    }
}
