//! JSON text that passes through: encoded once, shared by reference, never parsed unless somebody looks inside.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

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

    #[must_use]
    pub fn to_value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).expect("a Json holds well-formed JSON")
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <Box<RawValue>>::deserialize(deserializer)?;
        Ok(Json(Arc::from(String::from(Box::<str>::from(raw)))))
    }
}
