//! Texts from outside: which of them may name something, and how the others are made fit to be kept.
//!
//! A caller that names something is refused and can correct it ([`name_fault`], [`remark_fault`]). What workers, receivers and
//! programs say is kept whatever is in it, so it is cleaned ([`clean`]).
//!
//! **Invariant:** no text with U+0000 reaches a store as it is: Postgres takes none, and one such text would be refused with
//! all that is written beside it.

use std::borrow::Cow;

use crate::run::{Rejection, RejectionKind};

/// Characters of a text that explains something: the message of a deploy, the reason of a signal.
pub const REMARK_CHARS: usize = 4096;
/// Stands for a character that is not kept.
const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Why a text cannot name anything, if it cannot: `is empty`, say.
#[must_use]
pub fn name_fault(text: &str, most_chars: usize) -> Option<String> {
    match text.is_empty() {
        true => Some("is empty".to_owned()),
        false => fault(text, most_chars, char::is_control),
    }
}

/// The same for a text that explains something. It may have several lines, and may be empty.
#[must_use]
pub fn remark_fault(text: &str) -> Option<String> {
    fault(text, REMARK_CHARS, is_unfit)
}

fn fault(text: &str, most_chars: usize, unfit: fn(char) -> bool) -> Option<String> {
    // No text has more characters than bytes.
    if text.len() > most_chars && text.chars().count() > most_chars {
        return Some(format!("has more than {most_chars} characters"));
    }
    let (place, odd) = text.chars().enumerate().find(|(_, letter)| unfit(*letter))?;
    Some(format!("has the control character U+{:04X} as character {}", u32::from(odd), place + 1))
}

/// # Errors
/// The text cannot name anything; `field` says whose text it is.
pub fn check_name(field: &str, text: &str, most_chars: usize, code: &'static str) -> Result<(), Rejection> {
    reject(field, name_fault(text, most_chars), code)
}

/// # Errors
/// The text cannot be kept; `field` says whose text it is.
pub fn check_remark(field: &str, text: Option<&str>) -> Result<(), Rejection> {
    reject(field, text.and_then(remark_fault), "bad_text")
}

fn reject(field: &str, fault: Option<String>, code: &'static str) -> Result<(), Rejection> {
    match fault {
        None => Ok(()),
        Some(fault) => {
            let message = format!("{field} {fault}; send another one");
            Err(Rejection::new(RejectionKind::Invalid, code, message))
        }
    }
}

/// A text as it may be kept: without control characters but line breaks and tabs, and not longer than so many bytes.
#[must_use]
pub fn clean(text: String, most_bytes: usize) -> String {
    let text = match without_controls(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(cleaned) => cleaned,
    };
    match shortened(&text, most_bytes) {
        Cow::Borrowed(_) => text,
        Cow::Owned(short) => short,
    }
}

/// A text of no more than so many bytes, and a sign that there was more.
#[must_use]
pub fn shortened(text: &str, most_bytes: usize) -> Cow<'_, str> {
    match text.len() <= most_bytes {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("{} … (cut)", &text[..text.floor_char_boundary(most_bytes)])),
    }
}

/// A text with every control character but line breaks and tabs replaced.
#[must_use]
pub fn without_controls(text: &str) -> Cow<'_, str> {
    match text.contains(is_unfit) {
        false => Cow::Borrowed(text),
        true => Cow::Owned(text.replace(is_unfit, REPLACEMENT.encode_utf8(&mut [0; 4]))),
    }
}

fn is_unfit(letter: char) -> bool {
    letter.is_control() && !matches!(letter, '\n' | '\r' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_control_characters_and_is_not_too_long() {
        for good in ["a", "order 7", "é", "日本語", &"x".repeat(255), &"é".repeat(255)] {
            assert_eq!(name_fault(good, 255), None, "{good}");
        }
        assert_eq!(name_fault("", 255).unwrap(), "is empty");
        assert_eq!(name_fault(&"é".repeat(256), 255).unwrap(), "has more than 255 characters");
        assert_eq!(name_fault("ab\0", 255).unwrap(), "has the control character U+0000 as character 3");
        for odd in ["\n", "\t", "\u{1b}[2J", "\u{7f}", "\u{85}"] {
            assert!(name_fault(odd, 255).is_some(), "{odd:?}");
        }
    }

    #[test]
    fn a_remark_may_have_lines_and_nothing_else_that_is_not_text() {
        assert_eq!(remark_fault("first\r\n\tsecond"), None);
        assert_eq!(remark_fault(""), None);
        assert!(remark_fault("a\0b").is_some() && remark_fault("\u{1b}[0m").is_some());
        assert!(remark_fault(&"x".repeat(REMARK_CHARS + 1)).is_some());
        let rejection = check_remark("`message`", Some("a\0b")).unwrap_err();
        assert_eq!((rejection.kind, rejection.code), (RejectionKind::Invalid, "bad_text"));
        assert!(rejection.message.starts_with("`message` has the control character U+0000 as character 2;"));
    }

    #[test]
    fn what_is_said_is_kept_without_its_control_characters() {
        assert_eq!(clean("fine\n\tso far".to_owned(), 100), "fine\n\tso far");
        assert_eq!(clean("a\0b\u{1b}[31mc\u{9b}".to_owned(), 100), "a\u{fffd}b\u{fffd}[31mc\u{fffd}");
        assert_eq!(clean("ééé".to_owned(), 3), "é … (cut)");
    }
}
