//! Field masks: `?fields=run_id,status,steps.step_id` leaves out everything else.
//!
//! **Invariant:** a mask is never deeper than [`MAX_LEVELS`], so that applying and dropping one needs little stack.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserializer as _, Serialize};
use serde_json::value::RawValue;

use crate::error::Problem;

/// Names between the dots of one field at most.
const MAX_LEVELS: usize = 4;
/// Fields of one mask at most.
const MAX_FIELDS: usize = 100;
/// Bytes of one name at most.
const MAX_NAME_BYTES: usize = 255;

/// Which fields are wanted, and within them, which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mask(BTreeMap<String, Mask>);

impl Mask {
    /// Reads `a,b.c`; names that are not known at the top are told.
    ///
    /// # Errors
    /// An unknown field, or a mask that is larger than any answer has use for.
    pub(crate) fn parse(text: &str, known: &[&str]) -> crate::error::Result<Mask> {
        let mut mask = Mask::default();
        for (at, field) in text.split(',').map(str::trim).filter(|field| !field.is_empty()).enumerate() {
            check_size(at, field)?;
            let first = field.split('.').next().unwrap_or_default();
            if !known.contains(&first) {
                let detail = format!("there is no field `{first}`; known are {}", known.join(", "));
                return Err(Problem::bad_request("unknown_field", detail));
            }
            field.split('.').fold(&mut mask, |mask, part| mask.0.entry(part.to_owned()).or_default());
        }
        Ok(mask)
    }

    pub(crate) fn wants(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    /// The JSON of a value, cut down to what is wanted. What is wanted whole is passed on as text: read into values it would
    /// take many times as much.
    pub(crate) fn cut<T: Serialize>(&self, value: &T) -> String {
        let whole = serde_json::to_string(value).expect("what is answered is JSON");
        let mut text = String::new();
        self.write(&whole, &mut text);
        text
    }

    fn write(&self, json: &str, text: &mut String) {
        if self.0.is_empty() || !json.starts_with(['[', '{']) {
            return text.push_str(json);
        }
        let before = text.len();
        let cut = serde_json::Deserializer::from_str(json).deserialize_any(Cut { mask: self, text: &mut *text });
        if cut.is_err() {
            text.truncate(before);
            text.push_str("null");
        }
    }
}

/// Writes the parts of a list or an object that are wanted.
struct Cut<'a> {
    mask: &'a Mask,
    text: &'a mut String,
}

impl<'de> Visitor<'de> for Cut<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list or an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut between = '[';
        while let Some(item) = items.next_element::<&RawValue>()? {
            self.text.push(std::mem::replace(&mut between, ','));
            self.mask.write(item.get(), self.text);
        }
        self.text.push_str(if between == '[' { "[]" } else { "]" });
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut between = '{';
        while let Some(name) = fields.next_key::<String>()? {
            let value = fields.next_value::<&RawValue>()?;
            let Some(inner) = self.mask.0.get(&name) else { continue };
            self.text.push(std::mem::replace(&mut between, ','));
            self.text.push_str(&serde_json::Value::String(name).to_string());
            self.text.push(':');
            inner.write(value.get(), self.text);
        }
        self.text.push_str(if between == '{' { "{}" } else { "}" });
        Ok(())
    }
}

fn check_size(fields_before: usize, field: &str) -> crate::error::Result<()> {
    let too_large = |detail: String| Err(Problem::bad_request("bad_fields", detail));
    if fields_before >= MAX_FIELDS {
        return too_large(format!("`fields` names more than {MAX_FIELDS} fields; name fewer, or leave it out"));
    }
    // Not split to the end: a field may have thousands of dots.
    if field.splitn(MAX_LEVELS + 1, '.').count() > MAX_LEVELS {
        return too_large(format!("a field has more than {MAX_LEVELS} levels; end it at an outer one"));
    }
    match field.split('.').any(|name| name.len() > MAX_NAME_BYTES) {
        true => {
            too_large(format!("a field has a name of more than {MAX_NAME_BYTES} bytes; no answer has such a field"))
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn masked(fields: &str, value: Value) -> Value {
        let mask = Mask::parse(fields, &["a", "b", "steps"]).unwrap();
        serde_json::from_str(&mask.cut(&value)).unwrap()
    }

    #[test]
    fn only_what_is_named_is_left() {
        let value = json!({"a": 1, "b": {"c": 2, "d": 3}, "steps": [{"id": "x", "output": 1}, {"id": "y"}]});
        assert_eq!(masked("a", value.clone()), json!({"a": 1}));
        assert_eq!(masked("b.c, a", value.clone()), json!({"a": 1, "b": {"c": 2}}));
        assert_eq!(masked("steps.id", value.clone()), json!({"steps": [{"id": "x"}, {"id": "y"}]}));
        assert_eq!(
            masked("steps.id, steps.none, b.c.d, a.b", value),
            json!({"a": 1, "b": {"c": 2}, "steps": [{"id": "x"}, {"id": "y"}]})
        );
        let odd = json!({"a": [], "b": {}, "steps": [[{"id": {"\"ä\n": null}, "x": 1}], 1.5, "{", null, {}]});
        assert_eq!(
            masked("a.b, b.c, steps.id", odd),
            json!({"a": [], "b": {}, "steps": [[{"id": {"\"ä\n": null}}], 1.5, "{", null, {}]})
        );
    }

    #[test]
    fn a_mask_is_neither_deep_nor_wide_nor_long() {
        let code = |text: String| Mask::parse(&text, &["a"]).map_err(|problem| problem.code().to_owned()).map(drop);
        assert_eq!(code("a.b.c.d".to_owned()), Ok(()));
        assert_eq!(code(["a"; MAX_FIELDS].join(",")), Ok(()));
        assert_eq!(code(format!("a.{}", "b".repeat(MAX_NAME_BYTES))), Ok(()));
        for text in [
            "a.b.c.d.e".to_owned(),
            format!("a{}", ".a".repeat(30_000)),
            format!("a{}", ".".repeat(30_000)),
            ["a"; MAX_FIELDS + 1].join(","),
            format!("a.{}", "b".repeat(MAX_NAME_BYTES + 1)),
        ] {
            assert_eq!(code(text), Err("bad_fields".to_owned()));
        }
    }

    #[test]
    fn a_name_that_is_not_known_is_told() {
        let problem = Mask::parse("a,sttaus", &["a"]).unwrap_err();
        assert_eq!(problem.code(), "unknown_field");
    }
}
