//! Tokens of a Jinja expression, with their places in the text. Only as much as is needed to find names, measure nesting
//! and see where `}}` ends; the grammar itself is minijinja's.

use std::ops::Range;

/// One token and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) span: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Name(&'a str),
    /// The text between the quotes, escapes not undone.
    Text(&'a str),
    Number(&'a str),
    /// One character of punctuation; operators of two characters are two of them.
    Sign(char),
}

/// A text that is never closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unclosed;

pub(super) fn tokens(source: &str) -> Result<Vec<Token<'_>>, Unclosed> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some(token) = next(source, at)? {
        at = token.span.end;
        all.push(token);
    }
    Ok(all)
}

/// Where the expression ends that starts at the beginning of `source`: the position of its `}}`.
pub(super) fn end_of_expression(source: &str) -> Option<usize> {
    let mut braces = 0_usize;
    let mut at = 0;
    while let Ok(Some(token)) = next(source, at) {
        match token.kind {
            Kind::Sign('{') => braces += 1,
            Kind::Sign('}') if braces > 0 => braces -= 1,
            Kind::Sign('}') if source[token.span.end..].starts_with('}') => return Some(token.span.start),
            _ => {}
        }
        at = token.span.end;
    }
    None
}

fn next(source: &str, at: usize) -> Result<Option<Token<'_>>, Unclosed> {
    let rest = &source[at..];
    let trimmed = rest.trim_start();
    let start = at + rest.len() - trimmed.len();
    let Some(first) = trimmed.chars().next() else { return Ok(None) };
    let kind = match first {
        '"' | '\'' => Kind::Text(text(trimmed, first)?),
        '0'..='9' => Kind::Number(number(trimmed, source[..start].ends_with('.'))),
        c if c == '_' || c.is_alphanumeric() => {
            Kind::Name(while_matching(trimmed, |c| c == '_' || c.is_alphanumeric()))
        }
        c => Kind::Sign(c),
    };
    let length = match kind {
        Kind::Text(text) => text.len() + 2,
        Kind::Number(text) | Kind::Name(text) => text.len(),
        Kind::Sign(c) => c.len_utf8(),
    };
    Ok(Some(Token { kind, span: start..start + length }))
}

fn text(source: &str, quote: char) -> Result<&str, Unclosed> {
    let mut escaped = false;
    for (i, c) in source.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Ok(&source[1..i]),
            _ => {}
        }
    }
    Err(Unclosed)
}

/// Digits with what may follow them. After a dot there is no fraction: `a.0.1` is `a[0][1]`.
fn number(source: &str, after_dot: bool) -> &str {
    let digits = while_matching(source, |c| c == '_' || c.is_ascii_alphanumeric());
    let rest = &source[digits.len()..];
    let fraction = rest.strip_prefix('.').filter(|rest| !after_dot && rest.starts_with(|c: char| c.is_ascii_digit()));
    let length = match fraction {
        Some(rest) => digits.len() + 1 + while_matching(rest, |c| c == '_' || c.is_ascii_alphanumeric()).len(),
        None => digits.len(),
    };
    &source[..length]
}

fn while_matching(source: &str, matches: impl Fn(char) -> bool) -> &str {
    &source[..source.find(|c| !matches(c)).unwrap_or(source.len())]
}

/// How deeply the parts of an expression nest: brackets, chains of `-` and `not`, and `else` after `else`.
pub(super) fn depth(tokens: &[Token<'_>]) -> usize {
    let mut open: Vec<usize> = vec![0];
    let (mut deepest, mut prefixes, mut elses) = (0, 0, 0);
    for token in tokens {
        match token.kind {
            Kind::Sign('(' | '[' | '{') => {
                open.push(elses);
                prefixes = 0;
            }
            Kind::Sign(')' | ']' | '}') => {
                elses = if open.len() > 1 { open.pop().unwrap_or(0) } else { 0 };
                prefixes = 0;
            }
            Kind::Sign('-' | '+') | Kind::Name("not") => prefixes += 1,
            Kind::Name("else") => elses += 1,
            _ => prefixes = 0,
        }
        deepest = deepest.max(open.len() - 1 + open.iter().skip(1).sum::<usize>() + elses + prefixes);
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<Kind<'_>> {
        tokens(source).unwrap().into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn names_numbers_texts_and_signs_are_told_apart() {
        use Kind::{Name, Number, Sign, Text};
        assert_eq!(kinds("a.0.1"), [Name("a"), Sign('.'), Number("0"), Sign('.'), Number("1")]);
        assert_eq!(kinds("1.5+'x\\''"), [Number("1.5"), Sign('+'), Text("x\\'")]);
        assert_eq!(kinds("größe"), [Name("größe")]);
        assert_eq!(tokens("'a"), Err(Unclosed));
    }

    #[test]
    fn an_expression_ends_outside_texts_and_braces() {
        assert_eq!(end_of_expression(" a }} b"), Some(3));
        assert_eq!(end_of_expression("'}}' }}"), Some(5));
        assert_eq!(end_of_expression("{'a': {'b': 1}} }}"), Some(16));
        assert_eq!(end_of_expression("{'a': {'b': 1}}}}"), Some(15));
        assert_eq!(end_of_expression("a }"), None);
    }

    #[test]
    fn depth_counts_what_parsers_recurse_on() {
        let depth_of = |source| depth(&tokens(source).unwrap());
        assert_eq!(depth_of("a + b + c"), 1);
        assert_eq!(depth_of("((a))[0]"), 2);
        assert_eq!(depth_of("not not not a"), 3);
        assert_eq!(depth_of("a if b else c if d else e"), 2);
        assert_eq!(depth_of(&"(".repeat(1000)), 1000);
    }
}
