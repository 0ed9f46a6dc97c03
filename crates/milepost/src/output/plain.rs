//! Texts of others on a terminal: a log line, a name or an error may move the cursor, set the title, answer for the keyboard,
//! or turn the direction of writing around. Nothing of that gets through.
//!
//! **Invariant:** all that this program prints goes through here; see `print_line`, `print_json` and `say`.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Stands for what was taken out.
const TAKEN_OUT: char = '\u{fffd}';
const ESCAPE: char = '\u{1b}';
const RESET: &str = "\u{1b}[0m";

/// A text of others as one line, without anything that a terminal would obey.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        // Colours go without a trace, or each would leave its digits.
        let skipped = style_at(rest).map_or(letter.len_utf8(), str::len);
        match letter {
            ESCAPE if skipped > letter.len_utf8() => {}
            '\t' => plain.push(letter),
            '\n' | '\r' => plain.push(' '),
            letter if is_obeyed(letter) => plain.push(TAKEN_OUT),
            letter => plain.push(letter),
        }
        rest = &rest[skipped..];
    }
    plain.into()
}

/// Lines of our own with texts of others in them. With `styled`, colours stay, but none outlives its text.
pub(crate) fn shown(text: &str, styled: bool) -> Cow<'_, str> {
    let is_fine = |letter: char| matches!(letter, '\n' | '\t') || !is_obeyed(letter);
    if text.chars().all(is_fine) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + RESET.len());
    let (mut rest, mut style) = (text, "");
    while let Some(letter) = rest.chars().next() {
        let taken = match style_at(rest).filter(|_| styled) {
            Some(found) => {
                style = found;
                shown.push_str(found);
                found.len()
            }
            None => {
                shown.push(if is_fine(letter) { letter } else { TAKEN_OUT });
                letter.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    if !matches!(style, "" | RESET) {
        shown.push_str(RESET);
    }
    shown.into()
}

/// JSON that means the same, with such letters written as escapes. They stand in texts only.
pub(crate) fn escaped(json: &str) -> Cow<'_, str> {
    let is_fine = |letter: char| letter.is_ascii_whitespace() || !is_obeyed(letter);
    if json.chars().all(is_fine) {
        return json.into();
    }
    let mut escaped = String::with_capacity(json.len());
    for letter in json.chars() {
        match is_fine(letter) {
            true => escaped.push(letter),
            // None of them is beyond four digits.
            false => drop(write!(escaped, "\\u{:04x}", u32::from(letter))),
        }
    }
    escaped.into()
}

/// Control characters of both tables, and those that change the direction of writing or end a line unseen.
fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// The colour that a text begins with: `ESC [ 31 m`.
fn style_at(text: &str) -> Option<&str> {
    let codes = text.strip_prefix("\u{1b}[")?;
    let end = codes.find(|letter: char| !(letter.is_ascii_digit() || letter == ';'))?;
    codes[end..].starts_with('m').then(|| &text[..text.len() - codes.len() + end + 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: [&str; 9] = [
        "a\u{1b}]0;title\u{7}b",
        "a\u{1b}[2Jb",
        "a\u{1b}[6nb",
        "a\u{9b}2Jb",
        "a\u{202e}b",
        "a\u{2066}b",
        "a\u{85}b",
        "a\u{7f}b",
        "a\u{1b}",
    ];

    #[test]
    fn nothing_that_a_terminal_obeys_gets_through() {
        for text in HOSTILE {
            for shown in [plain(text), shown(text, false), shown(text, true)] {
                assert!(!shown.contains(is_obeyed), "{shown:?}");
                assert!(shown.starts_with("a\u{fffd}"), "{shown:?}");
            }
        }
        for text in ["", "plain", "größer 東京 👩‍👩‍👧", "tab\there"] {
            assert_eq!((plain(text), shown(text, true)), (text.into(), text.into()));
        }
    }

    #[test]
    fn colours_of_others_go_and_our_own_stay_within_their_text() {
        let red = "\u{1b}[1;31mred\u{1b}[0m and";
        assert_eq!(plain(red), "red and");
        assert_eq!(shown(red, true), red);
        assert_eq!(shown("\u{1b}[8mhidden", true), "\u{1b}[8mhidden\u{1b}[0m");
        assert_eq!(shown("\u{1b}[8mhidden", false), "\u{fffd}[8mhidden");
        assert_eq!(plain("two\r\nlines"), "two  lines");
        assert_eq!(shown("two\nlines\tof our own", false), "two\nlines\tof our own");
        assert_eq!(shown("over\rwritten", false), "over\u{fffd}written");
    }

    #[test]
    fn json_means_the_same() {
        for text in HOSTILE {
            let json = serde_json::to_string(&serde_json::json!({ text: [text] })).unwrap();
            let escaped = escaped(&json);
            assert!(!escaped.contains(is_obeyed), "{escaped}");
            let (before, after): (serde_json::Value, serde_json::Value) =
                (serde_json::from_str(&json).unwrap(), serde_json::from_str(&escaped).unwrap());
            assert_eq!(before, after);
        }
        assert_eq!(escaped("{\n\t\"a\": 1\r\n}"), "{\n\t\"a\": 1\r\n}");
    }
}
