//! Field masks: `?fields=run_id,status,steps.step_id` leaves out everything else.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{Problem, Result};

/// Which fields are wanted, and within them, which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mask(BTreeMap<String, Mask>);

impl Mask {
    /// Reads `a,b.c`; names that are not known at the top are told.
    pub(crate) fn parse(text: &str, known: &[&str]) -> Result<Mask> {
        let mut mask = Mask::default();
        for field in text.split(',').map(str::trim).filter(|field| !field.is_empty()) {
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
    fn a_name_that_is_not_known_is_told() {
        let problem = Mask::parse("a,sttaus", &["a"]).unwrap_err();
        assert_eq!(problem.code(), "unknown_field");
    }
}
