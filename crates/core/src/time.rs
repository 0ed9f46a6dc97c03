//! Moments, as microseconds since 1970 in UTC. The core never asks for the time: it is told.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment. Stored as an integer, shown as RFC 3339.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The end of time: 9999-12-30, the last day that can be written as text in every time zone.
    pub const MAX: Timestamp = Timestamp(253_402_207_200_000_000);

    /// The moment `ms` milliseconds later; stops at the end of time, so that the result can always be written and read.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Timestamp {
        let us = i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1000);
        Timestamp(self.0.saturating_add(us)).min(Timestamp::MAX)
    }

    /// Whole milliseconds from `earlier` to this moment; zero where the clock went backwards.
    #[must_use]
    pub fn ms_since(self, earlier: Timestamp) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0) / 1000).unwrap_or(0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(moment) => write!(f, "{moment:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Timestamp(text.parse::<jiff::Timestamp>()?.as_microsecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_that_is_reached_by_waiting_can_be_written_and_read() {
        for ms in [0, 1, 1000, u64::from(u32::MAX), 253_402_207_200_000, u64::MAX] {
            let moment = Timestamp(1_800_000_000_000_001).plus_ms(ms);
            assert_eq!(moment.to_string().parse::<Timestamp>().unwrap(), moment);
        }
        assert_eq!(Timestamp(0).plus_ms(u64::MAX), Timestamp::MAX);
    }

    #[test]
    fn a_clock_that_went_backwards_counts_nothing() {
        assert_eq!(Timestamp(0).ms_since(Timestamp(5_000_000)), 0);
        assert_eq!(Timestamp(5_000_999).ms_since(Timestamp(0)), 5000);
    }
}
