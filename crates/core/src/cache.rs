//! Cache keys: all that a step's result depends on as one value, the pre-image, and the key, its hash.
//!
//! What is not in it does not change a result: which run it is, when, by whom, at which attempt, where. What the world
//! outside adds (epochs, variables, versions of secrets) is given, as the core knows none of it.
//!
//! **Invariant:** a key is the SHA-256 of its pre-image, which is canonical JSON. So a pre-image can be kept by its key, and
//! two keys are compared by comparing what they were made of.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::artifact::Beyond;
use crate::canonical;
use crate::event::StepRef;
use crate::hash::Digest;
use crate::id::{OrgId, RunId};
use crate::json::Json;
use crate::status::UnknownWord;

/// The form of pre-images. Another form has other keys, and whatever was kept before is not found any more.
const FORMAT: u32 = 1;

/// Whose results a run may take: what anybody ran must not come back as the result of a protected tag's run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Takes results of all runs; its own serve other open runs.
    #[default]
    Open,
    /// Follows a protected tag. Takes results of such runs only; its own serve everybody.
    Protected,
}

impl Trust {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Trust::Open => "open",
            Trust::Protected => "protected",
        }
    }

    /// Under whose keys a run looks for results, the first first.
    #[must_use]
    pub fn reads(self) -> &'static [Trust] {
        match self {
            Trust::Open => &[Trust::Open, Trust::Protected],
            Trust::Protected => &[Trust::Protected],
        }
    }
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Trust {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "open" => Ok(Trust::Open),
            "protected" => Ok(Trust::Protected),
            _ => Err(UnknownWord::new(text, &["open", "protected"])),
        }
    }
}

/// What the results of a plan's steps depend on beyond their runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// How often all results of the workflow were disowned.
    pub epoch: u64,
    /// By step id. A step that is not among them depends on nothing else.
    pub steps: BTreeMap<Arc<str>, StepSurroundings>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepSurroundings {
    /// How often the results of the step were disowned.
    pub epoch: u64,
    /// The variables that reach the step, by name: the hash of each value, as a value may be nobody else's business. `None`
    /// is one that is not set, or is set where nobody here can see it.
    pub env: BTreeMap<Arc<str>, Option<Digest>>,
    /// The secrets that reach the step, by name: which version of each.
    pub secrets: BTreeMap<Arc<str>, Arc<str>>,
}

/// What a key is made of.
#[derive(Clone, Copy, Debug)]
pub struct KeyParts<'a> {
    pub org: OrgId,
    pub trust: Trust,
    pub workflow: &'a str,
    /// Of an item, that of its step: an item is what it is given, not where it stands in the list.
    pub step: &'a str,
    /// Of the step's definition.
    pub definition: Digest,
    /// The resolved input in its canonical form.
    pub input: &'a Json,
    /// The steps that it depends on by id, with a hash of the artifacts that each of them left. Of steps that left none there
    /// is no part of the key.
    pub artifacts: &'a BTreeMap<Arc<str>, Digest>,
    pub surroundings: &'a Surroundings,
}

impl KeyParts<'_> {
    /// The value that the key is the hash of.
    #[must_use]
    pub fn preimage(&self) -> Json {
        let nothing = StepSurroundings::default();
        let around = self.surroundings.steps.get(self.step).unwrap_or(&nothing);
        let mut before = json!({
            "definition": self.definition,
            "env": around.env.iter().map(|(name, hash)| (name.to_string(), json!(hash))).collect::<Value>(),
            "epoch": {"step": around.epoch, "workflow": self.surroundings.epoch},
            "format": FORMAT,
        });
        if !self.artifacts.is_empty() {
            let artifacts = self.artifacts.iter().map(|(step, digest)| (step.to_string(), json!(digest)));
            before["artifacts"] = artifacts.collect();
        }
        let after = json!({
            "org": self.org,
            "secrets": around.secrets.iter().map(|(name, version)| (name.to_string(), json!(**version))).collect::<Value>(),
            "step": self.step,
            "trust": self.trust,
            "workflow": self.workflow,
        });
        // The input has its canonical text already, and stands between the others in the order of names.
        let (before, after) = (canonical::write(&before), canonical::write(&after));
        let (before, after) = (&before[..before.len() - 1], &after[1..]);
        Json::trusted(format!("{before},\"input\":{},{after}", self.input.as_str()))
    }

    #[must_use]
    pub fn key(&self) -> Digest {
        key_of(&self.preimage())
    }
}

/// The key of a pre-image.
#[must_use]
pub fn key_of(preimage: &Json) -> Digest {
    Digest::of(preimage.as_str().as_bytes())
}

/// A result that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cached {
    pub key: Digest,
    pub output: Json,
    /// The run that made it, and its event. Both may be forgotten by now.
    pub run: RunId,
    pub seq: u64,
    /// Files that it names.
    pub beyond: Option<Box<Beyond>>,
}

/// A result that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flight {
    pub key: Digest,
    /// Who makes it.
    pub run: RunId,
    pub step: StepRef,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings() -> Surroundings {
        let around = StepSurroundings {
            epoch: 2,
            env: [("LANG".into(), Some(Digest::of(b"de"))), ("HOME".into(), None)].into(),
            secrets: [("TOKEN".into(), "3".into())].into(),
        };
        Surroundings { epoch: 1, steps: [("cut".into(), around)].into() }
    }

    static NOTHING: BTreeMap<Arc<str>, Digest> = BTreeMap::new();

    fn parts<'a>(input: &'a Json, surroundings: &'a Surroundings) -> KeyParts<'a> {
        KeyParts {
            org: OrgId(1),
            trust: Trust::Open,
            workflow: "campaign",
            step: "cut",
            definition: Digest::of(b"definition"),
            input,
            artifacts: &NOTHING,
            surroundings,
        }
    }

    #[test]
    fn golden_keys() {
        let (input, around) = (Json::trusted(r#"{"a":[1,"é"]}"#), surroundings());
        let parts = parts(&input, &around);
        let expected = concat!(
            r#"{"definition":"4c4ed1afbfdaa1e4c3bf7bbb82d730cecb7e384da91eea4f3cc093fd545524d6","#,
            r#""env":{"HOME":null,"LANG":"959a45d44e6fcf58361ed004681556fe50129f2109e817dec098c00c9e5d2578"},"#,
            r#""epoch":{"step":2,"workflow":1},"format":1,"input":{"a":[1,"é"]},"org":1,"secrets":{"TOKEN":"3"},"#,
            r#""step":"cut","trust":"open","workflow":"campaign"}"#,
        );
        assert_eq!(parts.preimage().as_str(), expected);
        assert_eq!(parts.key().to_string(), "3f221187bed08bfde5995cbb61862cb0cae813d6c2073fa9cceeb40c72a102c5");
        let bare = KeyParts { step: "other", trust: Trust::Protected, ..parts };
        assert_eq!(bare.key().to_string(), "4a2784dea482b46b01d5d3768a0cc8062ebdd1185ccd1999d5299bc99472059d");
    }

    #[test]
    fn what_steps_before_it_left_is_part_of_a_key_only_if_they_left_something() {
        let (input, around) = (Json::trusted("1"), surroundings());
        let base = parts(&input, &around);
        let left: BTreeMap<Arc<str>, Digest> =
            [("render".into(), Digest::of(b"r")), ("brief".into(), Digest::of(b"b"))].into();
        let preimage = KeyParts { artifacts: &left, ..base }.preimage();
        let expected = format!(
            r#"{{"artifacts":{{"brief":"{}","render":"{}"}},{}"#,
            Digest::of(b"b"),
            Digest::of(b"r"),
            &base.preimage().as_str()[1..]
        );
        assert_eq!(preimage.as_str(), expected);
        assert_eq!(canonical::to_string(&preimage.to_value()).unwrap(), expected);
    }

    #[test]
    fn a_preimage_is_canonical() {
        let around = surroundings();
        for input in ["null", "[]", r#"{"b":1,"ä":{}}"#, "\"x\\\"y\""] {
            let input = Json::trusted(input);
            let preimage = parts(&input, &around).preimage();
            assert_eq!(canonical::to_string(&preimage.to_value()).unwrap(), preimage.as_str());
            assert_eq!(preimage.to_value()["input"], input.to_value());
        }
    }

    #[test]
    fn every_part_counts() {
        let (input, around) = (Json::trusted("1"), surroundings());
        let base = parts(&input, &around);
        let other_input = Json::trusted("2");
        let changed = |change: fn(&mut Surroundings, &mut StepSurroundings)| {
            let mut other = around.clone();
            let mut step = other.steps["cut"].clone();
            change(&mut other, &mut step);
            other.steps.insert("cut".into(), step);
            KeyParts { surroundings: &other, ..base }.key()
        };
        let keys = [
            base.key(),
            KeyParts { org: OrgId(2), ..base }.key(),
            KeyParts { trust: Trust::Protected, ..base }.key(),
            KeyParts { workflow: "other", ..base }.key(),
            KeyParts { step: "paste", ..base }.key(),
            KeyParts { definition: Digest::of(b"other"), ..base }.key(),
            KeyParts { input: &other_input, ..base }.key(),
            KeyParts { artifacts: &[("a".into(), Digest::of(b"x"))].into(), ..base }.key(),
            KeyParts { artifacts: &[("a".into(), Digest::of(b"y"))].into(), ..base }.key(),
            changed(|all, _| all.epoch = 2),
            changed(|_, step| step.epoch = 3),
            changed(|_, step| step.env.extend([("LANG".into(), Some(Digest::of(b"en")))])),
            changed(|_, step| step.env.extend([("HOME".into(), Some(Digest::of(b"")))])),
            changed(|_, step| step.secrets.extend([("TOKEN".into(), "4".into())])),
        ];
        let distinct: std::collections::BTreeSet<&Digest> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn what_concerns_other_steps_does_not_count() {
        let (input, around) = (Json::trusted("1"), surroundings());
        let mut other = around.clone();
        other.steps.insert("paste".into(), StepSurroundings { epoch: 9, ..StepSurroundings::default() });
        assert_eq!(parts(&input, &around).key(), parts(&input, &other).key());
    }

    #[test]
    fn a_protected_run_takes_only_what_protected_runs_made() {
        assert_eq!(Trust::Protected.reads(), [Trust::Protected]);
        assert_eq!(Trust::Open.reads(), [Trust::Open, Trust::Protected]);
        for trust in [Trust::Open, Trust::Protected] {
            assert_eq!(trust.as_str().parse::<Trust>().unwrap(), trust);
        }
        assert!("Open".parse::<Trust>().is_err());
    }
}
