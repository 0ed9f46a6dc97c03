//! JSON text read strictly: no duplicate keys, no integers that would be rounded, no bottomless nesting.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::{MAX_SAFE_INTEGER, is_safe};
use crate::limits::Limits;
use crate::text;

/// Bytes of a key that is quoted.
const MAX_SHOWN: usize = 256;

/// The text is not JSON that we take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} at line {line} column {column}")]
pub struct StrictJsonError {
    pub message: String,
    pub line: usize,
    pub column: usize,
}

/// Reads JSON text. Containers inside containers count as depth; a scalar has depth 0.
///
/// # Errors
/// The text is not JSON, repeats a key, is nested too deeply or holds an integer beyond ±(2^53 − 1).
pub fn parse_strict(text: &str, max_depth: usize) -> Result<Value, StrictJsonError> {
    read(text, Strict { depth_left: max_depth, key_bytes: usize::MAX })
}

/// Reads JSON text whose depth and keys have the limits of all that is taken from outside.
///
/// # Errors
/// As [`parse_strict`], or a key is too long.
pub fn parse_within(text: &str, limits: &Limits) -> Result<Value, StrictJsonError> {
    read(text, Strict { depth_left: limits.json_depth, key_bytes: limits.key_bytes })
}

fn read(text: &str, strict: Strict) -> Result<Value, StrictJsonError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = strict.deserialize(&mut deserializer).map_err(explain)?;
    deserializer.end().map_err(explain)?;
    refuse_long_integers(text)?;
    Ok(value)
}

/// What is seen of a JSON text without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// Containers inside containers.
    pub deepest: usize,
    /// Values on all levels, or one more for each empty container.
    pub values: usize,
    /// Those of them that are maps.
    pub maps: usize,
    /// It has numbers that may be out of range, or halves of surrogate pairs: reading it may fail.
    pub odd: bool,
}

impl Glance {
    /// About how many bytes of memory the text takes once it is read; never much less.
    #[must_use]
    pub fn memory(&self, text: &str) -> usize {
        // A list that grew, and an entry of a map with its key.
        const VALUE: usize = 96;
        // A map has room for eleven entries, however few it has.
        const MAP: usize = 640;
        text.len().saturating_add(self.values.saturating_mul(VALUE)).saturating_add(self.maps.saturating_mul(MAP))
    }
}

/// Looks over text that is well-formed JSON, in one pass.
#[must_use]
pub fn glance(text: &str) -> Glance {
    let (mut seen, mut depth, mut in_text) = (Glance { values: 1, ..Glance::default() }, 0_usize, false);
    // Of the whole part of a number: how many digits its fraction has is of no matter.
    let (mut digits, mut in_fraction) = (0_usize, false);
    let bytes = text.as_bytes();
    let mut i = 0;
    while let Some(byte) = bytes.get(i) {
        i += 1;
        if in_text {
            match byte {
                b'\\' => {
                    seen.odd |= matches!(bytes.get(i..i + 2), Some([b'u', b'd' | b'D']));
                    i += 1;
                }
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        in_fraction = *byte == b'.' || in_fraction && byte.is_ascii_digit();
        digits = if byte.is_ascii_digit() && !in_fraction { digits + 1 } else { 0 };
        match byte {
            b'"' => in_text = true,
            b'[' | b'{' => {
                seen.maps += usize::from(*byte == b'{');
                depth += 1;
                seen.values += 1;
                seen.deepest = seen.deepest.max(depth);
            }
            b',' => seen.values += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            // `true` and `false` have one, too, but no digit before it.
            b'e' | b'E' => seen.odd |= i > 1 && (bytes[i - 2].is_ascii_digit() || bytes[i - 2] == b'.'),
            _ => seen.odd |= digits > 15,
        }
    }
    seen
}

/// Checks that text, which is well-formed, is JSON as we take it. Most is seen to be at a glance.
///
/// # Errors
/// As [`parse_strict`].
pub fn check_strict(text: &str, max_depth: usize) -> Result<(), StrictJsonError> {
    let seen = glance(text);
    match !seen.odd && seen.deepest <= max_depth {
        true => Ok(()),
        false => look(text, Look { depth_left: max_depth, integers: true }),
    }
}

/// Whether a reader finds a value in the text.
pub(crate) fn is_readable(text: &str) -> bool {
    // Readers stop at 128 levels.
    look(text, Look { depth_left: 127, integers: false }).is_ok()
}

/// Reads text to its end and keeps nothing of it.
fn look(text: &str, look: Look) -> Result<(), StrictJsonError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    look.deserialize(&mut deserializer).map_err(explain)?;
    deserializer.end().map_err(explain)?;
    if look.integers { refuse_long_integers(text) } else { Ok(()) }
}

/// `serde_json` hands integers beyond 64 bits over as floats, so they are found in the text: 20 digits and more.
fn refuse_long_integers(text: &str) -> Result<(), StrictJsonError> {
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        i = match bytes[i] {
            b'"' => end_of_text(bytes, i + 1),
            b'0'..=b'9' | b'-' => end_of_number(bytes, i).ok_or_else(|| too_long(text, i))?,
            _ => i + 1,
        };
    }
    Ok(())
}

/// The position after the closing quote of a text that starts at `i`.
fn end_of_text(bytes: &[u8], mut i: usize) -> usize {
    while i < bytes.len() && bytes[i] != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    i + 1
}

fn end_of_number(bytes: &[u8], start: usize) -> Option<usize> {
    let length = bytes[start..].iter().take_while(|b| b.is_ascii_digit() || b"+-.eE".contains(b)).count();
    let number = &bytes[start..start + length];
    let whole = !number.iter().any(|b| b".eE".contains(b));
    (!whole || length < 20).then_some(start + length)
}

fn too_long(text: &str, at: usize) -> StrictJsonError {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = at - before.rfind('\n').map_or(0, |i| i + 1) + 1;
    let message = format!("an integer is beyond ±{MAX_SAFE_INTEGER}; send it as a string");
    StrictJsonError { message, line, column }
}

fn explain(error: serde_json::Error) -> StrictJsonError {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let message = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text).to_owned();
    StrictJsonError { message, line, column }
}

#[derive(Clone, Copy)]
struct Strict {
    depth_left: usize,
    key_bytes: usize,
}

fn deeper<E: de::Error>(depth_left: usize) -> Result<usize, E> {
    depth_left.checked_sub(1).ok_or_else(|| E::custom("the JSON is nested too deeply"))
}

impl Strict {
    fn inside<E: de::Error>(self) -> Result<Strict, E> {
        Ok(Strict { depth_left: deeper(self.depth_left)?, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

fn integer<E: de::Error>(number: Number) -> Result<Value, E> {
    if is_safe(&number) {
        return Ok(Value::Number(number));
    }
    Err(E::custom(format_args!("the integer {number} is beyond ±{MAX_SAFE_INTEGER}; send it as a string")))
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        integer(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        integer(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("the number is out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(inside)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inside = self.inside()?;
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if key.len() > self.key_bytes {
                let (bytes, most) = (key.len(), self.key_bytes);
                return Err(de::Error::custom(format_args!("a key has {bytes} bytes, the limit is {most}")));
            }
            if map.contains_key(&key) {
                let key = text::shortened(&key, MAX_SHOWN);
                return Err(de::Error::custom(format_args!("the key `{key}` appears twice")));
            }
            let value = access.next_value_seed(inside)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Sees what would keep a reader from taking a text.
#[derive(Clone, Copy)]
struct Look {
    depth_left: usize,
    /// Integers have to be those that every reader keeps.
    integers: bool,
}

impl Look {
    fn inside<E: de::Error>(self) -> Result<Look, E> {
        Ok(Look { depth_left: deeper(self.depth_left)?, ..self })
    }

    fn integer<E: de::Error>(self, number: Number) -> Result<(), E> {
        if self.integers { integer(number).map(drop) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for Look {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let inside = self.inside()?;
        while access.next_element_seed(inside)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let inside = self.inside()?;
        // A key is a text like any other: half a character in it is found here.
        while access.next_key_seed(inside)?.is_some() {
            access.next_value_seed(inside)?;
        }
        Ok(())
    }
}
