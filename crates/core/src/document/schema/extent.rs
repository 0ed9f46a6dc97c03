//! How far a schema reaches before it looks at the payload: references multiply and nest what a short text says.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::meter::weight;
use crate::text;

/// Schemas that one value may be held against at the same place, all branches taken together.
const MAX_BRANCHES: u64 = 10_000;
/// How deep they may be nested at the same place.
const MAX_DEPTH: u32 = 64;
/// More than this no regular expression compiles to.
pub(super) const MAX_COMPILED: usize = 4 << 20;
/// Levels of all that references lead to, one below the other: what compiles, checks and drops a schema recurses.
const MAX_LEVELS: usize = 8_192;

/// Keywords whose schemas are for the same value: one schema, many, or many by name.
const IN_PLACE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"];
/// Keywords that refer to another schema for the same value.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords whose schemas have names.
const BY_NAME: [&str; 6] =
    ["$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies"];
/// Schemas that the validator brings along.
const META_SCHEMAS: [&str; 2] = ["http://json-schema.org/", "https://json-schema.org/"];
/// Keywords whose values are no schemas.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];

/// What a schema holds one value against, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    branches: u64,
    depth: u32,
}

/// The schema, and what was found in it.
struct Reach<'s> {
    root: &'s Value,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
    /// By the address of a schema; `None` while it is being looked at.
    known: HashMap<*const Value, Option<Extent>>,
}

/// What there is to know of a schema before it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measures {
    /// Schemas that one value is held against at the same place, at most.
    pub(super) branches: u64,
    /// Regular expressions.
    pub(super) patterns: usize,
    /// What they may compile to, in bytes, each at most as large as it is allowed to be.
    pub(super) compiled: usize,
    /// Bytes of the longest way to a schema, over references that one value is held against at the same place.
    pub(super) way: usize,
    /// Bytes that an error of one of its keywords copies out of it, at most.
    pub(super) copied: usize,
}

/// Measures a schema.
///
/// # Errors
/// Says what is too much.
pub(super) fn measure(root: &Value) -> Result<Measures, String> {
    let mut reach = Reach { root, anchors: HashMap::new(), known: HashMap::new() };
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    reach.collect(root, &mut seen, &mut found);
    for schema in &found {
        reach.check_names(schema)?;
    }
    // What references lead to may stand where no schema is looked for, and refer to more.
    let (mut targets, mut levels, mut next) = (HashSet::new(), 0, 0);
    while let Some(schema) = found.get(next).copied() {
        next += 1;
        for target in reach.references(schema)? {
            if targets.insert(std::ptr::from_ref(target)) {
                levels += height(target);
                reach.collect(target, &mut seen, &mut found);
            }
        }
    }
    if levels > MAX_LEVELS {
        return Err(format!(
            "its references lead through {levels} levels of schemas in all, the limit is {MAX_LEVELS}; refer to fewer \
             or flatter ones"
        ));
    }
    let mut measures = Measures { branches: 1, patterns: 0, compiled: 0, way: 0, copied: 0 };
    for schema in found {
        let extent = reach.extent(schema, 0)?;
        measures.branches = measures.branches.max(extent.branches);
        measures.way = measures.way.max(extent.depth as usize);
        measures.copied = measures.copied.max(copied(schema));
        let of_names = schema.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        let patterns = schema.get("pattern").and_then(Value::as_str).into_iter().chain(of_names.map(String::as_str));
        for pattern in patterns {
            measures.patterns += 1;
            measures.compiled = measures.compiled.saturating_add(compiled(pattern).min(MAX_COMPILED));
        }
    }
    measures.way = measures.way.saturating_mul(longest_path(root));
    Ok(measures)
}

/// What a regular expression compiles to, in bytes: a class of characters has some thousand, and what is repeated is there as
/// often as it may be.
fn compiled(pattern: &str) -> usize {
    const CHARACTER: usize = 4 * 1024;
    let counts = pattern
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split(['}', ',']).take(2).filter_map(|n| n.trim().parse().ok()).max());
    counts.fold(pattern.len().saturating_mul(CHARACTER), |bytes, count: usize| bytes.saturating_mul(count.max(1)))
}

/// Bytes of the longest pointer into a value, about. Names may be escaped, and numbers are short.
pub(super) fn longest_path(value: &Value) -> usize {
    let (mut longest, mut open) = (0, vec![(value, 0)]);
    while let Some((value, length)) = open.pop() {
        longest = longest.max(length);
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, length + 8))),
            Value::Object(entries) => open.extend(entries.iter().map(|(key, item)| (item, length + 1 + 2 * key.len()))),
            _ => {}
        }
    }
    longest
}

/// What an error of a schema's own keywords repeats of it: a text, one of several texts, or a schema that must not fit.
fn copied(schema: &Value) -> usize {
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).max().unwrap_or(0);
    let of = |(keyword, value): (&String, &Value)| match keyword.as_str() {
        "not" => usize::try_from(weight(value)).unwrap_or(usize::MAX),
        "dependencies" | "dependentRequired" => {
            value.as_object().into_iter().flat_map(Map::values).map(texts).max().unwrap_or(0)
        }
        _ => text(value).max(texts(value)),
    };
    schema.as_object().into_iter().flatten().map(of).max().unwrap_or(0)
}

impl<'s> Reach<'s> {
    /// Everything below a value that may be a schema, and its anchors.
    fn collect(&mut self, top: &'s Value, seen: &mut HashSet<*const Value>, found: &mut Vec<&'s Value>) {
        let mut open = vec![(top, false)];
        while let Some((value, by_name)) = open.pop() {
            if !seen.insert(value) {
                continue;
            }
            match value {
                Value::Array(items) => open.extend(items.iter().map(|item| (item, false))),
                Value::Object(entries) => {
                    found.push(value);
                    for keyword in ["$anchor", "$dynamicAnchor"] {
                        if let Some(Value::String(name)) = entries.get(keyword) {
                            self.anchors.entry(name).or_default().push(value);
                        }
                    }
                    let schemas = entries.iter().filter(|(key, _)| by_name || !DATA.contains(&key.as_str()));
                    open.extend(schemas.map(|(key, inner)| (inner, !by_name && BY_NAME.contains(&key.as_str()))));
                }
                _ => {}
            }
        }
    }

    /// Names that change what references below them mean would need to be followed as the validator does.
    fn check_names(&self, schema: &Value) -> Result<(), String> {
        let old = self.root.get("$schema").and_then(Value::as_str).is_some_and(|draft| draft.contains("draft-04"));
        let mut names = ["$id", "$schema"].into_iter().chain(old.then_some("id"));
        let fault = names.find(|name| schema.get(name).is_some_and(Value::is_string));
        match fault.filter(|_| !std::ptr::eq(schema, self.root)) {
            Some(name) => {
                Err(format!("`{name}` stands below its top; put the part into `$defs` and refer to `#/$defs/NAME`"))
            }
            None => Ok(()),
        }
    }

    /// What a schema refers to for the same value.
    fn references(&self, schema: &'s Value) -> Result<Vec<&'s Value>, String> {
        let Some(entries) = schema.as_object() else { return Ok(Vec::new()) };
        let mut targets = Vec::new();
        for keyword in REFERENCES {
            if let Some(Value::String(reference)) = entries.get(keyword) {
                targets.extend(self.resolve(reference)?);
            }
        }
        Ok(targets)
    }

    fn resolve(&self, reference: &str) -> Result<Vec<&'s Value>, String> {
        if META_SCHEMAS.iter().any(|known| reference.starts_with(known)) {
            return Ok(Vec::new());
        }
        let id = self.root.get("$id").and_then(Value::as_str).unwrap_or_default();
        let local = reference.strip_prefix(id.trim_end_matches('#')).unwrap_or(reference);
        let quoted = || text::clean(reference.to_owned(), 200);
        let unknown = || format!("`{}` leads nowhere in it; refer to `#/$defs/NAME`", quoted());
        let fragment = match local {
            "" => "",
            _ => local.strip_prefix('#').ok_or_else(|| {
                format!(
                    "`{}` refers to another document, and those are not read; put the schema into `$defs`",
                    quoted()
                )
            })?,
        };
        match fragment.starts_with('/') || fragment.is_empty() {
            true => Ok(vec![self.root.pointer(&percent_decoded(fragment)).ok_or_else(unknown)?]),
            false => self.anchors.get(fragment).cloned().ok_or_else(unknown),
        }
    }

    /// What one value is held against by a schema, without a look into the value.
    fn extent(&mut self, schema: &'s Value, depth: u32) -> Result<Extent, String> {
        let Some(entries) = schema.as_object() else { return Ok(Extent { branches: 1, depth: 1 }) };
        match self.known.get(&std::ptr::from_ref(schema)) {
            Some(Some(extent)) => return Ok(*extent),
            Some(None) => return Err("a schema in it refers to itself without looking into the value".to_owned()),
            None if depth > MAX_DEPTH => return Err(too_deep()),
            None => self.known.insert(schema, None),
        };
        let mut whole = Extent { branches: 1, depth: 1 };
        let mut inner = self.references(schema)?;
        for keyword in IN_PLACE {
            match entries.get(keyword) {
                Some(Value::Array(schemas)) => inner.extend(schemas),
                Some(Value::Object(named)) if keyword.starts_with("depend") => inner.extend(named.values()),
                Some(one) => inner.push(one),
                None => {}
            }
        }
        for schema in inner {
            let part = self.extent(schema, depth + 1)?;
            whole.branches = whole.branches.saturating_add(part.branches);
            whole.depth = whole.depth.max(part.depth + 1);
        }
        if whole.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        if whole.branches > MAX_BRANCHES {
            return Err(format!(
                "its references multiply: one value would be held against more than {MAX_BRANCHES} schemas; use fewer \
                 branches"
            ));
        }
        self.known.insert(schema, Some(whole));
        Ok(whole)
    }
}

fn too_deep() -> String {
    format!("its references nest more than {MAX_DEPTH} schemas for the same value; refer to flatter ones")
}

/// The levels of a value. It came from a text whose depth has a limit.
fn height(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(height).max().unwrap_or(0),
        Value::Object(entries) => entries.values().map(height).max().unwrap_or(0),
        _ => 0,
    }
}

/// As in a URI fragment. What is not an escape stays as it is.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let byte =
            escaped.and_then(|hex| std::str::from_utf8(hex).ok()).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
