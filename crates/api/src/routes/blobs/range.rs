//! `Range: bytes=…`: which bytes of something are asked for.

use std::ops::Range;

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Whole,
    Part(Range<u64>),
    /// There are no such bytes.
    Unsatisfiable,
}

/// One range, as in `bytes=0-99`, `bytes=100-` or `bytes=-5`. What cannot be read, and several at once, is as if nothing had
/// been asked for, as RFC 9110 has it.
pub(super) fn parse(header: Option<&str>, size: u64) -> Asked {
    let Some(range) = header.and_then(|text| text.trim().strip_prefix("bytes=")) else { return Asked::Whole };
    let Some((first, last)) = range.split_once('-') else { return Asked::Whole };
    let number =
        |text: &str| text.trim().parse::<u64>().ok().filter(|_| text.trim().bytes().all(|c| c.is_ascii_digit()));
    match (first.trim(), last.trim()) {
        ("", last) => match number(last) {
            None => Asked::Whole,
            Some(0) => Asked::Unsatisfiable,
            Some(_) if size == 0 => Asked::Unsatisfiable,
            Some(count) => Asked::Part(size.saturating_sub(count)..size),
        },
        (first, last) => match (number(first), number(last)) {
            (None, _) => Asked::Whole,
            (Some(_), None) if !last.is_empty() => Asked::Whole,
            (Some(first), Some(last)) if last < first => Asked::Whole,
            (Some(first), _) if first >= size => Asked::Unsatisfiable,
            (Some(first), last) => Asked::Part(first..last.map_or(size, |last| last.saturating_add(1).min(size))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_some_of_the_bytes() {
        for (header, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=2-5", 2..6),
            ("bytes=2-", 2..10),
            ("bytes=2-999", 2..10),
            ("bytes=-3", 7..10),
            ("bytes=-99", 0..10),
            (" bytes= 2 - 5 ", 2..6),
        ] {
            assert_eq!(parse(Some(header), 10), Asked::Part(expected), "{header}");
        }
    }

    #[test]
    fn what_is_beyond_the_end_cannot_be_had() {
        for header in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
            assert_eq!(parse(Some(header), 10), Asked::Unsatisfiable, "{header}");
        }
        for header in ["bytes=0-", "bytes=-1"] {
            assert_eq!(parse(Some(header), 0), Asked::Unsatisfiable, "{header}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_as_if_it_were_not_there() {
        for header in
            ["", "lines=1-2", "bytes=", "bytes=-", "bytes=a-b", "bytes=5-2", "bytes=0-1,3-4", "bytes=1-x", "bytes=+1-2"]
        {
            assert_eq!(parse(Some(header), 10), Asked::Whole, "{header}");
        }
        assert_eq!(parse(None, 10), Asked::Whole);
    }

    #[test]
    fn whatever_is_asked_for_is_within_the_content() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
        milepost_fuzz::run("ranges", &corpus, &milepost_fuzz::Grammar::TEXT, |input| {
            let text = String::from_utf8_lossy(input);
            [0, 1, 10, u64::MAX].map(|size| match parse(Some(&text), size) {
                Asked::Whole => "whole",
                Asked::Unsatisfiable => "none",
                Asked::Part(range) => {
                    assert!(range.start < range.end && range.end <= size, "{text}: {range:?} of {size}");
                    "part"
                }
            })
        });
    }
}
