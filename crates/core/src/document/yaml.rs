//! YAML to trees, by the events of saphyr's parser.
//!
//! Stricter than YAML on purpose: only what JSON calls a number is a number, only `true`, `false` and `null` (and `~`) are
//! words with a meaning, keys are texts, tags and merge keys are refused, and aliases may not multiply.

mod paced;

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Span, Tag};

use self::paced::{Pace, Paced};
use super::builder::{Builder, TooMuch};
use super::node::{Data, Node, Position};
use super::problem::{Problems, segment};
use crate::limits::Limits;

/// Nodes that anchors and aliases of one source may copy.
const MAX_COPIED_NODES: usize = 100_000;

/// Reads all documents of a stream; `None` where one is empty.
pub(super) fn read(source: &str, limits: &Limits, problems: &mut Problems) -> Vec<Option<Node>> {
    let mut reader = Reader::new(Builder::new(limits, problems), limits.document_bytes);
    let pace = Pace::default();
    let mut parser = Parser::new(Paced::new(source.strip_prefix('\u{feff}').unwrap_or(source), &pace));
    while let Some(event) = parser.next_event() {
        let done = match event {
            _ if pace.is_lost() => {
                reader.too_far_ahead(event.map_or_else(|error| *error.marker(), |(_, span)| span.start))
            }
            Ok((Event::StreamEnd, _)) => break,
            Ok((event, span)) => reader.take(event, span),
            Err(error) => reader.not_yaml(&error),
        };
        pace.begin();
        if done.is_err() {
            break;
        }
    }
    reader.documents
}

/// Reading cannot go on.
struct Stop;

impl From<TooMuch> for Stop {
    fn from(_: TooMuch) -> Stop {
        Stop
    }
}

struct Copied {
    node: Node,
    size: Size,
}

/// How large a node is, with all that is in it.
#[derive(Clone, Copy)]
struct Size {
    nodes: usize,
    /// Of texts and keys.
    bytes: usize,
    /// Levels of lists and maps.
    depth: usize,
}

struct Reader<'p> {
    builder: Builder<'p>,
    documents: Vec<Option<Node>>,
    anchors: HashMap<usize, Copied>,
    /// Anchors of the lists and maps that are open; 0 for none.
    open_anchors: Vec<usize>,
    copied_nodes: usize,
    copied_bytes: usize,
    max_copied_bytes: usize,
    /// Depth of a key that is a list or map, which is refused as a whole.
    inside_key: usize,
}

impl<'p> Reader<'p> {
    fn new(builder: Builder<'p>, max_copied_bytes: usize) -> Reader<'p> {
        Reader {
            builder,
            documents: Vec::new(),
            anchors: HashMap::new(),
            open_anchors: Vec::new(),
            copied_nodes: 0,
            copied_bytes: 0,
            max_copied_bytes,
            inside_key: 0,
        }
    }

    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Stop> {
        let at = position(span.start);
        if self.inside_key > 0 || self.builder.wants_key() {
            return self.take_key(event, at);
        }
        if let Event::Alias(_) | Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) = event {
            self.builder.count(at)?;
        }
        match event {
            Event::DocumentEnd => self.documents.push(self.builder.take_root().filter(|node| !is_empty(node))),
            Event::Alias(anchor) => self.alias(anchor, at)?,
            Event::Scalar(text, style, anchor, tag) => self.scalar(text, style, anchor, tag, at)?,
            Event::SequenceStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), at);
                self.open_anchors.push(anchor);
                self.builder.open_list(at)?;
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_tag(tag.as_deref(), at);
                self.open_anchors.push(anchor);
                self.builder.open_map(at)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            _ => {}
        }
        Ok(())
    }

    fn take_key(&mut self, event: Event<'_>, at: Position) -> Result<(), Stop> {
        match event {
            Event::MappingEnd if self.inside_key == 0 => return self.close(),
            Event::Scalar(text, style, _, tag) if self.inside_key == 0 => {
                self.refuse_tag(tag.as_deref(), at);
                self.scalar_key(text.into_owned(), style, at);
            }
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                self.builder.check_depth(at, self.inside_key + 1)?;
                self.inside_key += 1;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.inside_key -= 1;
                if self.inside_key == 0 {
                    self.bad_key(at, "a list or a map");
                }
            }
            Event::Alias(_) if self.inside_key == 0 => self.bad_key(at, "an alias"),
            _ => {}
        }
        Ok(())
    }

    fn scalar_key(&mut self, text: String, style: ScalarStyle, at: Position) {
        let path = |builder: &Builder<'_>| builder.path() + &segment(&text);
        if style == ScalarStyle::Plain && text == "<<" {
            let path = path(&self.builder);
            let message = "YAML merge keys (`<<`) are not supported";
            self.builder.problems.add("unknown_key", at, &path, message);
        } else if style == ScalarStyle::Plain && !matches!(plain(&text), Plain::Text) {
            let path = path(&self.builder);
            let message = format!("keys are texts; `{text}` is not one");
            let suggestion = Some(format!("write \"{text}\""));
            self.builder.problems.add_with("wrong_type", at, &path, message, suggestion);
        }
        self.builder.key(text, at);
    }

    fn bad_key(&mut self, at: Position, what: &str) {
        let path = self.builder.path();
        self.builder.problems.add("wrong_type", at, &path, format!("keys are texts, not {what}"));
        self.builder.key(format!("?{}:{}", at.line, at.column), at);
    }

    fn scalar(
        &mut self,
        text: Cow<'_, str>,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<Cow<'_, Tag>>,
        at: Position,
    ) -> Result<(), Stop> {
        self.refuse_tag(tag.as_deref(), at);
        let data = match plain(&text) {
            _ if style != ScalarStyle::Plain => Data::Text(text.into_owned()),
            Plain::Text => Data::Text(text.into_owned()),
            Plain::Null => Data::Null,
            Plain::Bool(value) => Data::Bool(value),
            Plain::Number => self.builder.number(&text, at),
        };
        let node = Node { at, data };
        self.remember(anchor, &node)?;
        self.builder.push(node);
        Ok(())
    }

    fn close(&mut self) -> Result<(), Stop> {
        let anchor = self.open_anchors.pop().unwrap_or(0);
        let Some(node) = self.builder.close().filter(|_| anchor != 0) else { return Ok(()) };
        let (at, size) = (node.at, measure(node));
        // It is copied again, so that only what can be paid for is.
        let node = (size.bytes <= self.max_copied_bytes && size.nodes <= MAX_COPIED_NODES).then(|| node.clone());
        self.pay(size, at)?;
        self.anchors.extend(node.map(|node| (anchor, Copied { node, size })));
        Ok(())
    }

    fn remember(&mut self, anchor: usize, node: &Node) -> Result<(), Stop> {
        if anchor == 0 {
            return Ok(());
        }
        let size = measure(node);
        self.pay(size, node.at)?;
        self.anchors.insert(anchor, Copied { node: node.clone(), size });
        Ok(())
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<(), Stop> {
        let Some(size) = self.anchors.get(&anchor).map(|copied| copied.size) else {
            let path = self.builder.path();
            self.builder.problems.add("bad_alias", at, &path, "the alias stands inside what it refers to");
            return Err(Stop);
        };
        self.pay(size, at)?;
        self.builder.check_depth(at, size.depth)?;
        if let Some(copied) = self.anchors.get(&anchor) {
            self.builder.push(Node { at, data: copied.node.data.clone() });
        }
        Ok(())
    }

    fn pay(&mut self, size: Size, at: Position) -> Result<(), Stop> {
        self.copied_nodes = self.copied_nodes.saturating_add(size.nodes);
        self.copied_bytes = self.copied_bytes.saturating_add(size.bytes);
        if self.copied_nodes <= MAX_COPIED_NODES && self.copied_bytes <= self.max_copied_bytes {
            return Ok(());
        }
        let path = self.builder.path();
        let message = format!(
            "aliases make the document too large; {MAX_COPIED_NODES} values with {} bytes may be copied",
            self.max_copied_bytes
        );
        self.builder.problems.add("bad_alias", at, &path, message);
        Err(Stop)
    }

    fn refuse_tag(&mut self, tag: Option<&Tag>, at: Position) {
        if tag.is_some() {
            let path = self.builder.path();
            self.builder.problems.add("bad_value", at, &path, "YAML tags are not supported");
        }
    }

    fn too_far_ahead(&mut self, at: Marker) -> Result<(), Stop> {
        let path = self.builder.path();
        let message = format!(
            "a list or map in brackets has more than {} pieces; write it in lines, or the document as JSON",
            paced::MOST_AHEAD
        );
        self.builder.problems.add("too_many_values", position(at), &path, message);
        Err(Stop)
    }

    fn not_yaml(&mut self, error: &ScanError) -> Result<(), Stop> {
        let path = self.builder.path();
        self.builder.problems.add("not_yaml", position(*error.marker()), &path, format!("not YAML: {}", error.info()));
        Err(Stop)
    }
}

fn position(marker: Marker) -> Position {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Position { line: number(marker.line()), column: number(marker.col().saturating_add(1)) }
}

fn is_empty(node: &Node) -> bool {
    matches!(node.data, Data::Null)
}

fn measure(node: &Node) -> Size {
    let with = |all: Size, one: Size| Size {
        nodes: all.nodes + one.nodes,
        bytes: all.bytes + one.bytes,
        depth: all.depth.max(one.depth + 1),
    };
    let empty = Size { nodes: 1, bytes: 0, depth: 1 };
    match &node.data {
        Data::List(items) => items.iter().map(measure).fold(empty, with),
        Data::Map(entries) => entries.iter().fold(empty, |all, entry| {
            let size = measure(&entry.node);
            with(all, Size { bytes: size.bytes + entry.key.len(), ..size })
        }),
        Data::Text(text) => Size { nodes: 1, bytes: text.len(), depth: 0 },
        _ => Size { nodes: 1, bytes: 0, depth: 0 },
    }
}

/// What an unquoted scalar stands for.
enum Plain {
    Null,
    Bool(bool),
    Number,
    Text,
}

fn plain(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Plain::Null,
        "true" | "True" | "TRUE" => Plain::Bool(true),
        "false" | "False" | "FALSE" => Plain::Bool(false),
        _ if is_json_number(text) => Plain::Number,
        _ => Plain::Text,
    }
}

fn is_json_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let text = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').map_or((mantissa, None), |(w, f)| (w, Some(f)));
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|e| digits(e.strip_prefix(['+', '-']).unwrap_or(e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_numbers_are_numbers() {
        for number in ["0", "-1", "12.5", "1.0e-6", "1E5", "-0.0"] {
            assert!(is_json_number(number), "{number}");
        }
        for text in ["010", "1_000", "0x1F", "0o17", "+1", ".5", "1.", "1e", "--1", "1.0.0", ".inf", "-"] {
            assert!(!is_json_number(text), "{text}");
        }
    }
}
