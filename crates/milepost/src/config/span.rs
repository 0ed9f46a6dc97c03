//! How long things are kept: a number and a unit, as in `90d`.

use std::fmt;
use std::str::FromStr;

/// How many seconds runs are kept after their end; for ever without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retention(pub(crate) Option<u64>);

const UNITS: [(&str, u64); 5] = [("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
/// A century: longer is `off`.
const LONGEST_S: u64 = 100 * 366 * 86_400;

impl Retention {
    pub(crate) const DEFAULT: Retention = Retention(Some(90 * 86_400));
    /// Of results of steps that nobody takes.
    pub(crate) const OF_RESULTS: Retention = Retention(Some(30 * 86_400));
}

impl FromStr for Retention {
    type Err = String;

    fn from_str(text: &str) -> Result<Retention, String> {
        if text == "off" {
            return Ok(Retention(None));
        }
        seconds(text).map(|seconds| Retention(Some(seconds))).ok_or_else(|| {
            format!("`{text}` is not a time span; write a number and one of s, m, h, d, w, as in \"90d\", or \"off\"")
        })
    }
}

fn seconds(text: &str) -> Option<u64> {
    UNITS.iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(*seconds).filter(|seconds| (1..=LONGEST_S).contains(seconds))
    })
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(seconds) => span(f, seconds),
            None => f.write_str("off"),
        }
    }
}

/// Weeks are understood, but ninety days are said as days.
fn span(f: &mut fmt::Formatter<'_>, seconds: u64) -> fmt::Result {
    let unit = UNITS[1..].iter().find(|(_, unit)| seconds.is_multiple_of(*unit));
    unit.map_or(Ok(()), |(name, unit)| write!(f, "{}{name}", seconds / unit))
}

/// So many seconds; there is no end of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lasting(pub(crate) u64);

impl Lasting {
    /// Of what is in Redis.
    pub(crate) const IN_REDIS: Lasting = Lasting(3600);
}

impl FromStr for Lasting {
    type Err = String;

    fn from_str(text: &str) -> Result<Lasting, String> {
        seconds(text).map(Lasting).ok_or_else(|| {
            format!("`{text}` is not a time span; write a number and one of s, m, h, d, w, as in \"1h\"")
        })
    }
}

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        span(f, self.0)
    }
}

/// How many seconds definitions that nothing leads to are kept; without it none is removed unless somebody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grace(pub(crate) Option<u64>);

impl Grace {
    pub(crate) const DEFAULT: Grace = Grace(Some(7 * 86_400));
    /// Somebody who has just asked for a definition is about to use it.
    const SHORTEST_S: u64 = 2 * 3600;
}

impl FromStr for Grace {
    type Err = String;

    fn from_str(text: &str) -> Result<Grace, String> {
        if text == "never" {
            return Ok(Grace(None));
        }
        match seconds(text) {
            Some(seconds) if seconds >= Grace::SHORTEST_S => Ok(Grace(Some(seconds))),
            Some(_) => Err(format!("`{text}` is too short: somebody may be about to use it; write 2h or more")),
            None => Err(format!(
                "`{text}` is not a time span; write a number and one of h, d, w, as in \"7d\", or \"never\""
            )),
        }
    }
}

impl fmt::Display for Grace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(seconds) => span(f, seconds),
            None => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_span_is_a_number_and_a_unit() {
        let shown = |text: &str| text.parse::<Retention>().map(|span| (span.0, span.to_string()));
        assert_eq!(shown("90d"), Ok((Some(7_776_000), "90d".to_owned())));
        assert_eq!(shown("2w"), Ok((Some(1_209_600), "14d".to_owned())));
        assert_eq!(shown("36h"), Ok((Some(129_600), "36h".to_owned())));
        assert_eq!(shown("90s"), Ok((Some(90), "90s".to_owned())));
        assert_eq!(shown("5m"), Ok((Some(300), "5m".to_owned())));
        assert_eq!(shown("off"), Ok((None, "off".to_owned())));
        for wrong in ["", "d", "90", "-1d", "0d", "1.5d", "90 d", "9y", "99999999999999999999d", "40000d"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn grace_is_a_time_span_of_some_hours() {
        let shown = |text: &str| text.parse::<Grace>().map(|span| (span.0, span.to_string()));
        assert_eq!(shown("7d"), Ok((Some(604_800), "7d".to_owned())));
        assert_eq!(shown("120m"), Ok((Some(7200), "2h".to_owned())));
        assert_eq!(shown("never"), Ok((None, "never".to_owned())));
        for wrong in ["", "off", "7", "1h", "9y"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }
}
