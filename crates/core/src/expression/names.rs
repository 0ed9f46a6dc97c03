//! Finds the paths in an expression: which names it uses, whether each is known, and which steps it refers to.

use std::ops::Range;

use super::lex::{Kind, Token};
use super::operators::{FILTERS, TESTS};
use super::paid::FUNCTIONS;
use super::path::{Path, Root, Segment};
use super::{Bindings, CompileError};
use crate::document::near::near_name;

const KEYWORDS: [&str; 12] = ["and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False"];
/// What expressions see of a step.
const OF_STEP: [&str; 2] = ["output", "artifacts"];
/// What they see of an artifact.
const OF_ARTIFACT: [&str; 3] = ["uri", "sha256", "size"];
const ROOTS: [&str; 5] = ["payload", "run", "steps", "item", "index"];

/// A path and the part of the source that it covers.
pub(super) struct Found {
    pub(super) path: Path,
    pub(super) span: Range<usize>,
}

/// All paths of an expression, in their order.
pub(super) fn paths(source: &str, tokens: &[Token<'_>], bindings: &Bindings<'_>) -> Result<Vec<Found>, CompileError> {
    let mut found = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let Some(name) = free_name(tokens, i) else {
            check_filter_or_test(tokens, i)?;
            i += 1;
            continue;
        };
        let reader = Reader { source, tokens, bindings, start: i };
        let (path, end) = reader.path(name)?;
        if let Some(path) = path {
            found.push(Found { span: tokens[i].span.start..tokens[end - 1].span.end, path });
        }
        i = end;
    }
    Ok(found)
}

/// The name at `i`, when it stands for a value: not a keyword, an attribute, a filter, a test or an argument's name.
fn free_name<'a>(tokens: &[Token<'a>], i: usize) -> Option<&'a str> {
    let Kind::Name(name) = tokens[i].kind else { return None };
    let kind = |at: Option<usize>| at.and_then(|at| tokens.get(at)).map(|token| token.kind);
    let before = kind(i.checked_sub(1));
    let test = before == Some(Kind::Name("is"))
        || before == Some(Kind::Name("not")) && kind(i.checked_sub(2)) == Some(Kind::Name("is"));
    let filter = matches!(before, Some(Kind::Sign('.' | '|')));
    let argument = kind(Some(i + 1)) == Some(Kind::Sign('='))
        && kind(Some(i + 2)) != Some(Kind::Sign('='))
        && matches!(before, Some(Kind::Sign('(' | ',')));
    let keyword = KEYWORDS.contains(&name) || name == "None";
    (!test && !filter && !argument && !keyword).then_some(name)
}

/// minijinja would notice an unknown filter or test only when it gets there.
fn check_filter_or_test(tokens: &[Token<'_>], i: usize) -> Result<(), CompileError> {
    let Kind::Name(name) = tokens[i].kind else { return Ok(()) };
    let before = |back: usize| i.checked_sub(back).map(|at| tokens[at].kind);
    let (what, known) = match (before(2), before(1)) {
        (_, Some(Kind::Sign('|'))) => ("filter", FILTERS),
        (_, Some(Kind::Name("is"))) if name != "not" => ("test", TESTS),
        (Some(Kind::Name("is")), Some(Kind::Name("not"))) => ("test", TESTS),
        _ => return Ok(()),
    };
    if known.contains(&name) {
        return Ok(());
    }
    let suggestion = near_name(name, known.iter().copied()).map(|near| format!("did you mean `{near}`?"));
    Err(CompileError { suggestion, ..CompileError::name(format!("there is no {what} `{name}`")) })
}

struct Reader<'a> {
    source: &'a str,
    tokens: &'a [Token<'a>],
    bindings: &'a Bindings<'a>,
    start: usize,
}

impl Reader<'_> {
    /// The path that starts with `name`, if it is no function, and the index of the token after it.
    fn path(&self, name: &str) -> Result<(Option<Path>, usize), CompileError> {
        let after = self.start + 1;
        match name {
            "payload" => Ok(self.rest(Root::Payload, after)),
            "run" => Ok(self.rest(Root::Run, after)),
            "item" | "index" if !self.bindings.item => {
                Err(CompileError::name(format!("`{name}` is known only in the `input` of a step with `foreach`")))
            }
            "item" => Ok(self.rest(Root::Item, after)),
            "index" => Ok(self.rest(Root::Index, after)),
            "steps" => self.step(after),
            _ if FUNCTIONS.contains(&name) && self.sign(after) == Some('(') => Ok((None, after)),
            _ => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> CompileError {
        let suggestion = near_name(name, ROOTS.into_iter()).map(|near| format!("did you mean `{near}`?"));
        let known = "known are `payload`, `run`, `steps.<id>.output`, `steps.<id>.artifacts` and, with `foreach`, `item` and `index`";
        let message = match name {
            "tuned" => "`tuned` is not known in this document".to_owned(),
            _ => format!("there is no name `{name}`; {known}"),
        };
        CompileError { suggestion, ..CompileError::name(message) }
    }

    /// `steps.<id>.output` or `steps.<id>.artifacts`, and what follows it.
    fn step(&self, at: usize) -> Result<(Option<Path>, usize), CompileError> {
        let Some((Segment::Key(id), at)) = self.segment(at) else {
            return Err(CompileError::name(
                "name the step literally: `steps.<id>.output` or `steps['<id>'].output`".into(),
            ));
        };
        let step = (self.bindings.step)(&id)?;
        match self.segment(at) {
            Some((Segment::Key(key), at)) if key == "output" => Ok(self.rest(Root::Step(step), at)),
            Some((Segment::Key(key), at)) if key == "artifacts" => {
                let (path, at) = self.rest(Root::Artifacts(step), at);
                Ok((path.map(|path| artifact_path(path, &id)).transpose()?, at))
            }
            other => {
                let near = match other {
                    Some((Segment::Key(key), _)) => near_name(&key, OF_STEP.into_iter()).unwrap_or(OF_STEP[0]),
                    _ => OF_STEP[0],
                };
                Err(CompileError {
                    suggestion: Some(format!("did you mean `steps{}.{near}`?", written(&id))),
                    ..CompileError::name(format!(
                        "a step has its `output` and its `artifacts`: `steps{}` cannot stand alone",
                        written(&id)
                    ))
                })
            }
        }
    }

    fn rest(&self, root: Root, mut at: usize) -> (Option<Path>, usize) {
        let mut segments = Vec::new();
        while let Some((segment, next)) = self.segment(at) {
            if self.sign(next) == Some('(') {
                break;
            }
            segments.push(segment);
            at = next;
        }
        let text = self.source[self.tokens[self.start].span.start..self.tokens[at - 1].span.end].to_owned();
        (Some(Path { text, root, segments }), at)
    }

    /// `.name`, `.0`, `['text']`, `[0]` or `[-1]` at a token, and the index of the token after it.
    fn segment(&self, at: usize) -> Option<(Segment, usize)> {
        match (self.sign(at)?, self.kind(at + 1)?) {
            ('.', Kind::Name(name)) => Some((Segment::Key(name.to_owned()), at + 2)),
            ('.', Kind::Number(digits)) => Some((Segment::Index(digits.parse().ok()?), at + 2)),
            ('[', Kind::Text(text)) if !text.contains('\\') => self.closed(Segment::Key(text.to_owned()), at + 2),
            ('[', Kind::Number(digits)) => self.closed(Segment::Index(digits.parse().ok()?), at + 2),
            ('[', Kind::Sign('-')) => {
                let Kind::Number(digits) = self.kind(at + 2)? else { return None };
                self.closed(Segment::Index(-digits.parse::<i64>().ok()?), at + 3)
            }
            _ => None,
        }
    }

    fn closed(&self, segment: Segment, at: usize) -> Option<(Segment, usize)> {
        (self.sign(at) == Some(']')).then_some((segment, at + 1))
    }

    fn sign(&self, at: usize) -> Option<char> {
        match self.kind(at) {
            Some(Kind::Sign(sign)) => Some(sign),
            _ => None,
        }
    }

    fn kind(&self, at: usize) -> Option<Kind<'_>> {
        self.tokens.get(at).map(|token| token.kind)
    }
}

/// `<kind>.<name>.<part>`, and before that the number of an item, where the step has a `foreach`. What is not written
/// literally is found out when it is evaluated.
fn artifact_path(path: Path, id: &str) -> Result<Path, CompileError> {
    let mut segments = path.segments.clone();
    let first = usize::from(matches!(segments.first(), Some(Segment::Index(_))));
    // A kind or a name may be a number.
    for segment in segments.iter_mut().skip(first).take(2) {
        if let Segment::Index(number) = segment {
            *segment = Segment::Key(number.to_string());
        }
    }
    let names: Vec<&str> = segments[first..]
        .iter()
        .map_while(|segment| if let Segment::Key(key) = segment { Some(key.as_str()) } else { None })
        .collect();
    let [kind, name, part, below @ ..] = &*names else { return Ok(Path { segments, ..path }) };
    if below.is_empty() && OF_ARTIFACT.contains(part) {
        return Ok(Path { segments, ..path });
    }
    let text = &path.text;
    let message = match OF_ARTIFACT.contains(part) {
        true => format!("`{text}`: `{part}` has nothing below it"),
        false => format!("`{text}`: an artifact has `uri`, `sha256` and `size`, but no `{part}`"),
    };
    let step = written(id);
    let item = if let (1, Segment::Index(item)) = (first, &segments[0]) { format!("[{item}]") } else { String::new() };
    let suggestion = match below.split_last() {
        // The dots of a file's name.
        Some((last, middle)) if OF_ARTIFACT.contains(last) && !OF_ARTIFACT.contains(part) => {
            let name = [&[*name, *part], middle].concat().join(".");
            Some(format!("did you mean `steps{step}.artifacts{item}.{kind}['{name}'].{last}`?"))
        }
        _ => near_part(part).map(|near| format!("did you mean `{near}`?")),
    };
    Err(CompileError { suggestion, ..CompileError::name(message) })
}

/// What of an artifact is meant: also by a word that begins as another, such as `sha` or `size_bytes`.
fn near_part(part: &str) -> Option<&'static str> {
    let begins = |known: &&&str| known.starts_with(part) || part.starts_with(**known);
    near_name(part, OF_ARTIFACT.into_iter()).or_else(|| OF_ARTIFACT.iter().find(begins).copied())
}

fn written(id: &str) -> String {
    if id.contains('-') { format!("['{id}']") } else { format!(".{id}") }
}
