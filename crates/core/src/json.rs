//! JSON text that passes through: encoded once, shared by reference, never parsed unless somebody looks inside.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::canonical::{Glance, glance, is_readable};

/// Well-formed JSON text.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Arc<str>);

impl Json {
    #[must_use]
    pub fn null() -> Json {
        Json(Arc::from("null"))
    }

    #[must_use]
    pub fn of(value: &serde_json::Value) -> Json {
        Json(Arc::from(value.to_string()))
    }

    /// Takes text that is known to be JSON, such as what this program wrote before.
    #[must_use]
    pub fn trusted(text: impl Into<Arc<str>>) -> Json {
        Json(text.into())
    }

    /// # Errors
    /// The text is not JSON.
    pub fn parse(text: &str) -> Result<Json, serde_json::Error> {
        let raw: &RawValue = serde_json::from_str(text)?;
        Ok(Json(Arc::from(raw.get())))
    }

    /// Takes a text that a reader finds a value in.
    #[must_use]
    pub fn readable(text: &str) -> Option<Json> {
        Json::parse(text).ok().filter(Json::is_readable)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What the text means. Earlier versions stored texts that are well-formed and mean nothing, such as a number that is out
    /// of range: one of those is itself, as a text.
    #[must_use]
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).unwrap_or_else(|_| serde_json::Value::from(&*self.0))
    }

    /// Whether whoever reads the text finds a value.
    fn is_readable(&self) -> bool {
        let Glance { deepest, odd, .. } = glance(&self.0);
        !odd && deepest < 128 || is_readable(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(&self.0) {
            Ok(raw) if self.is_readable() => raw.serialize(serializer),
            // Whoever asks is shown what is there.
            _ => self.0.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <Box<RawValue>>::deserialize(deserializer)?;
        Ok(Json(Arc::from(String::from(Box::<str>::from(raw)))))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_nobody_can_read_is_shown_as_it_stands() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        for text in ["1e999", r#"{"a":"\ud800"}"#, "[-1E400]", &deep, "{", ""] {
            let json = Json::trusted(text);
            assert_eq!(json.to_value(), Value::from(text));
            assert_eq!(serde_json::to_value(&json).unwrap(), Value::from(text));
            assert_eq!(serde_json::to_string(&json).unwrap(), Value::from(text).to_string());
        }
        for text in [r#"{"b":1.50,"a":"\ud83d\ude00"}"#, "1e3", "9007199254740993", "\"1e999\""] {
            let json = Json::trusted(text);
            assert_eq!(serde_json::to_string(&json).unwrap(), text);
            assert_eq!(json.to_value(), serde_json::from_str::<Value>(text).unwrap());
        }
        assert_eq!(Json::of(&json!([1])).to_value(), json!([1]));
    }
}
