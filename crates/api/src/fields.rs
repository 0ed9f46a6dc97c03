//! Field masks: `?fields=run_id,status,steps.step_id` leaves out everything else.
//!
//! **Invariant:** a mask is never deeper than [`MAX_LEVELS`], so that applying and dropping one needs little stack.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{Problem, Result};

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
    pub(crate) fn parse(text: &str, known: &[&str]) -> Result<Mask> {
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

    pub(crate) fn apply(&self, value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.apply(item)),
            Value::Object(fields) => {
                fields.retain(|name, _| self.0.contains_key(name));
                for (name, inner) in self.0.iter().filter(|(_, inner)| !inner.0.is_empty()) {
                    if let Some(value) = fields.get_mut(name) {
                        inner.apply(value);
                    }
                }
            }
            _ => {}
        }
    }
}

fn check_size(fields_before: usize, field: &str) -> Result<()> {
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
    use serde_json::json;

    use super::*;

    fn masked(fields: &str, mut value: Value) -> Value {
        Mask::parse(fields, &["a", "b", "steps"]).unwrap().apply(&mut value);
        value
    }

    #[test]
    fn only_what_is_named_is_left() {
        let value = json!({"a": 1, "b": {"c": 2, "d": 3}, "steps": [{"id": "x", "output": 1}, {"id": "y"}]});
        assert_eq!(masked("a", value.clone()), json!({"a": 1}));
        assert_eq!(masked("b.c, a", value.clone()), json!({"a": 1, "b": {"c": 2}}));
        assert_eq!(masked("steps.id", value), json!({"steps": [{"id": "x"}, {"id": "y"}]}));
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
