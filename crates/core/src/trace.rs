//! W3C trace context: which trace a run belongs to, and which spans it has.
//!
//! Ids of spans are derived from what they are spans of, so every node computes the same ones and none has to be stored.
//! A run that nobody gave a trace to is one of its own: its id has sixteen bytes, as a trace's has.

use std::fmt;
use std::str::FromStr;

use crate::hash::Digest;
use crate::id::RunId;

/// The trace is recorded by whoever passed it on.
const SAMPLED: u8 = 1;
/// Flags that have a meaning today; others are not passed on.
const KNOWN_FLAGS: u8 = 3;

/// Sixteen bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// Eight bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

/// What the header `traceparent` says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: TraceId,
    /// The span that what comes next is part of.
    pub parent_id: SpanId,
    pub flags: u8,
}

impl SpanId {
    #[must_use]
    pub fn of_run(run: RunId) -> SpanId {
        SpanId::derived([b"milepost.run".as_slice(), run.0.as_bytes()])
    }

    /// A run that had failed and goes on: from here to its next end is a span of its own.
    #[must_use]
    pub fn of_reopened(run: RunId, reopened_seq: u64) -> SpanId {
        SpanId::derived([b"milepost.reopened".as_slice(), run.0.as_bytes(), &reopened_seq.to_be_bytes()])
    }

    /// One attempt of a step, which is named as in the log: `shots`, `shots[3]`.
    #[must_use]
    pub fn of_attempt(run: RunId, step: &str, logical_attempt: u32, engine_attempt: u32) -> SpanId {
        let (logical, engine) = (logical_attempt.to_be_bytes(), engine_attempt.to_be_bytes());
        SpanId::derived([b"milepost.attempt".as_slice(), run.0.as_bytes(), step.as_bytes(), &logical, &engine])
    }

    fn derived<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> SpanId {
        let mut id = [0; 8];
        id.copy_from_slice(&Digest::of_parts(parts).0[..8]);
        if id == [0; 8] {
            id[7] = 1;
        }
        SpanId(id)
    }
}

impl TraceContext {
    /// What a span of a run passes on: the trace of whoever started the run, else the run's own.
    #[must_use]
    pub fn of_span(run: RunId, caller: Option<TraceContext>, span: SpanId) -> TraceContext {
        match caller {
            Some(caller) => TraceContext { parent_id: span, ..caller },
            None => TraceContext { trace_id: TraceId(run.0.into_bytes()), parent_id: span, flags: SAMPLED },
        }
    }

    /// Whoever passed it on may have recorded it.
    #[must_use]
    pub fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace_id, self.parent_id, self.flags)
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! hexadecimal {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

hexadecimal!(TraceId);
hexadecimal!(SpanId);

/// The text is no trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a traceparent looks like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, with lower case digits and ids that are not all zero"
)]
pub struct NotATraceContext;

impl FromStr for TraceContext {
    type Err = NotATraceContext;

    /// Of a later version only what this one knows is read, as the standard asks.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.as_bytes();
        let [version] = read(text.get(..2))?;
        let separated = [2, 35, 52].iter().all(|at| text.get(*at) == Some(&b'-'));
        let ends = match version {
            0 => text.len() == 55,
            0xff => false,
            _ => text.len() == 55 || text.get(55) == Some(&b'-'),
        };
        let (trace_id, parent_id) = (read(text.get(3..35))?, read(text.get(36..52))?);
        let [flags] = read(text.get(53..55))?;
        if !separated || !ends || trace_id == [0; 16] || parent_id == [0; 8] {
            return Err(NotATraceContext);
        }
        Ok(TraceContext { trace_id: TraceId(trace_id), parent_id: SpanId(parent_id), flags: flags & KNOWN_FLAGS })
    }
}

fn read<const N: usize>(digits: Option<&[u8]>) -> Result<[u8; N], NotATraceContext> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(NotATraceContext),
    };
    let digits = digits.filter(|digits| digits.len() == 2 * N).ok_or(NotATraceContext)?;
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? * 16 + value(pair[1])?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn run() -> RunId {
        "01900000-0000-7000-8000-000000000001".parse().unwrap()
    }

    #[test]
    fn a_context_is_read_and_written() {
        let context: TraceContext = CALLER.parse().unwrap();
        assert_eq!(context.to_string(), CALLER);
        assert!(context.is_sampled());
        let quiet: TraceContext = CALLER.replace("-01", "-00").parse().unwrap();
        assert!(!quiet.is_sampled());
    }

    #[test]
    fn what_is_no_context_is_refused() {
        let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let no_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let upper = CALLER.replace("4bf", "4BF");
        let longer = format!("{CALLER}-00");
        let never = CALLER.replacen("00", "ff", 1);
        let joined = CALLER.replace('-', "_");
        for text in ["", "00", "é", zeros, no_span, &upper, &longer, &never, &joined, &CALLER[..54]] {
            assert_eq!(text.parse::<TraceContext>(), Err(NotATraceContext), "{text}");
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = CALLER.replacen("00", "cc", 1).replace("-01", "-ff-what-comes-next");
        let context: TraceContext = later.parse().unwrap();
        assert_eq!(context.to_string(), CALLER.replace("-01", "-03"));
        assert!(CALLER.replacen("00", "cc", 1).parse::<TraceContext>().is_ok());
        assert!(format!("{}x", CALLER.replacen("00", "cc", 1)).parse::<TraceContext>().is_err());
    }

    #[test]
    fn a_run_without_a_caller_is_a_trace_of_its_own() {
        let span = SpanId::of_run(run());
        let own = TraceContext::of_span(run(), None, span);
        assert_eq!(own.to_string(), format!("00-01900000000070008000000000000001-{span}-01"));
        let caller: TraceContext = CALLER.parse().unwrap();
        let continued = TraceContext::of_span(run(), Some(caller), span);
        assert_eq!(continued.to_string(), CALLER.replace("00f067aa0ba902b7", &span.to_string()));
    }

    // Worked out by another program: the first eight bytes of a SHA-256 over the parts, each preceded by its length.
    #[test]
    fn spans_are_the_same_on_every_node_and_in_every_release() {
        assert_eq!(SpanId::of_run(run()).to_string(), "a5250eb184ea527a");
        assert_eq!(SpanId::of_reopened(run(), 7).to_string(), "eb9aa68dd068a02a");
        assert_eq!(SpanId::of_attempt(run(), "shots[3]", 2, 1).to_string(), "272f11fa38aceccd");
        assert_ne!(SpanId::of_attempt(run(), "a", 1, 2), SpanId::of_attempt(run(), "a", 2, 1));
    }
}
