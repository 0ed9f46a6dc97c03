//! A document as a tree with positions: what YAML and JSON both become, and all that the planner reads.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use crate::patience;

/// Line and column, both from 1; 0 means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Position {
    pub(super) fn shown(self) -> (Option<u32>, Option<u32>) {
        if self.line == 0 { (None, None) } else { (Some(self.line), Some(self.column)) }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) data: Data,
}

#[derive(Clone, Debug)]
pub(super) enum Data {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a map and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) at: Position,
    pub(super) node: Node,
}

impl Node {
    /// What it is, as messages say it.
    pub(super) fn kind(&self) -> &'static str {
        match &self.data {
            Data::Null => "null",
            Data::Bool(_) => "a boolean",
            Data::Number(_) => "a number",
            Data::Text(_) => "a text",
            Data::List(_) => "a list",
            Data::Map(_) => "a map",
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.data {
            Data::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn as_map(&self) -> Option<&[Entry]> {
        match &self.data {
            Data::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn as_list(&self) -> Option<&[Node]> {
        match &self.data {
            Data::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn to_value(&self) -> Value {
        patience::look();
        match &self.data {
            Data::Null => Value::Null,
            Data::Bool(value) => Value::Bool(*value),
            Data::Number(number) => Value::Number(number.clone()),
            Data::Text(text) => Value::String(text.clone()),
            Data::List(items) => items.iter().map(Node::to_value).collect(),
            Data::Map(entries) => Value::Object(entries.iter().map(|e| (e.key.clone(), e.node.to_value())).collect()),
        }
    }
}

impl From<Data> for Node {
    fn from(data: Data) -> Node {
        Node { at: Position::default(), data }
    }
}

impl From<&Value> for Node {
    fn from(value: &Value) -> Node {
        patience::look();
        let entry = |(key, value): (&String, &Value)| Entry {
            key: key.clone(),
            at: Position::default(),
            node: Node::from(value),
        };
        Node::from(match value {
            Value::Null => Data::Null,
            Value::Bool(value) => Data::Bool(*value),
            Value::Number(number) => Data::Number(number.clone()),
            Value::String(text) => Data::Text(text.clone()),
            Value::Array(items) => Data::List(items.iter().map(Node::from).collect()),
            Value::Object(map) => Data::Map(map.iter().map(entry).collect()),
        })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Data::Null.into())
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Data::Bool(value).into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Data::Number(value.into()).into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Data::Number(value.into()).into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("the number is out of range"))?;
        Ok(Data::Number(number).into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Data::Text(value.to_owned()).into())
    }

    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Data::Text(value).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Data::List(items).into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, node)) = access.next_entry()? {
            entries.push(Entry { key, at: Position::default(), node });
        }
        Ok(Data::Map(entries).into())
    }
}
