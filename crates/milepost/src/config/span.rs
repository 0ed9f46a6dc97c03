//! How long things are kept: a number and a unit, as in `90d`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use milepost_engine::SupervisionConfig;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// How many seconds runs are kept after their end; for ever without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retention(pub(crate) Option<u64>);

const UNITS: [(&str, u64); 5] = [("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];
/// A century: longer is `off`.
const LONGEST_S: u64 = 100 * 366 * 86_400;

impl Retention {
    pub(crate) const DEFAULT: Retention = Retention(Some(90 * 86_400));
    /// Of the silence of a part of the engine, until the server ends.
    pub(crate) const END_AFTER: Retention = Retention(Some(SupervisionConfig::END_AFTER.as_secs()));
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
    /// Of the silence of a part of the engine, until the server is not ready.
    pub(crate) const UNREADY_AFTER: Lasting = Lasting(SupervisionConfig::UNREADY_AFTER.as_secs());
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

/// How many seconds content is kept that nobody names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlobGrace(pub(crate) u64);

impl BlobGrace {
    pub(crate) const DEFAULT: BlobGrace = BlobGrace(86_400);
    /// Who has uploaded something is about to name it.
    const SHORTEST_S: u64 = 3600;
}

impl FromStr for BlobGrace {
    type Err = String;

    fn from_str(text: &str) -> Result<BlobGrace, String> {
        match seconds(text) {
            Some(seconds) if seconds >= BlobGrace::SHORTEST_S => Ok(BlobGrace(seconds)),
            Some(_) => Err(format!("`{text}` is too short: somebody may be about to name it; write 1h or more")),
            None => Err(format!("`{text}` is not a time span; write a number and one of h, d, w, as in \"24h\"")),
        }
    }
}

impl fmt::Display for BlobGrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        span(f, self.0)
    }
}

/// By kind of artifact: how long it is kept. `off`, like no word at all, is as long as its run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KindRetention(pub(crate) BTreeMap<String, Retention>);

impl KindRetention {
    /// Both; of what both have, the other's.
    pub(crate) fn and(mut self, other: KindRetention) -> KindRetention {
        self.0.extend(other.0);
        self
    }

    /// For the engine: those that have an end.
    pub(crate) fn spans(&self) -> BTreeMap<String, Duration> {
        let kept = self.0.iter().filter_map(|(kind, keep)| Some((kind.clone(), Duration::from_secs(keep.0?))));
        kept.collect()
    }
}

impl FromStr for KindRetention {
    type Err = String;

    fn from_str(text: &str) -> Result<KindRetention, String> {
        let one = |pair: &str| {
            let (kind, keep) = pair.split_once('=').filter(|(kind, _)| !kind.trim().is_empty()).ok_or_else(|| {
                format!("`{pair}` is not a kind and a time span; write KIND=SPAN, as in checkpoint=30d")
            })?;
            Ok((kind.trim().to_owned(), keep.trim().parse()?))
        };
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        pairs.map(one).collect::<Result<_, String>>().map(KindRetention)
    }
}

impl<'de> Deserialize<'de> for KindRetention {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<KindRetention, D::Error> {
        let written = BTreeMap::<String, String>::deserialize(from)?;
        let kinds = written.into_iter().map(|(kind, keep)| Ok((kind, keep.parse().map_err(D::Error::custom)?)));
        kinds.collect::<Result<_, D::Error>>().map(KindRetention)
    }
}

impl fmt::Display for KindRetention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<String> = self.0.iter().map(|(kind, keep)| format!("{kind}={keep}")).collect();
        f.write_str(&kinds.join(","))
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

    #[test]
    fn artifacts_are_kept_by_their_kind() {
        let shown = |text: &str| text.parse::<KindRetention>().map(|kinds| kinds.to_string());
        assert_eq!(
            shown("replay=2w, checkpoint=30d,policy=off"),
            Ok("checkpoint=30d,policy=off,replay=14d".to_owned())
        );
        assert_eq!("policy=off,replay=1h".parse::<KindRetention>().unwrap().spans().len(), 1);
        for wrong in ["30d", "=30d", "checkpoint=", "checkpoint=9y"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
        assert_eq!("24h".parse::<BlobGrace>().map(|grace| grace.to_string()), Ok("1d".to_owned()));
        assert!("59m".parse::<BlobGrace>().is_err() && "never".parse::<BlobGrace>().is_err());
    }
}
