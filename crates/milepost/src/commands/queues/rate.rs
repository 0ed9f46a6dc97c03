//! How fast the tasks of a queue may begin: `100/1m`.

use std::fmt;
use std::str::FromStr;

use crate::wire::Rate;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let read = text.split_once('/').and_then(|(limit, per)| {
            let digits = per.find(|c: char| !c.is_ascii_digit())?;
            let (count, unit) = per.split_at(digits);
            let count: u64 = if count.is_empty() { 1 } else { count.parse().ok()? };
            let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit)?;
            Some(Rate { limit: limit.parse().ok()?, per_ms: count.checked_mul(*unit_ms)? })
        });
        read.ok_or_else(|| {
            "a rate is a number of tasks and a time in ms, s, m, h or d: 100/1m, 5/s, 1/500ms".to_owned()
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The time is never 0, and every time is a number of milliseconds.
        let unit = UNITS.iter().rev().find(|(_, unit)| self.per_ms.is_multiple_of(*unit));
        let (name, unit) = unit.copied().unwrap_or(UNITS[0]);
        write!(f, "{}/{}{name}", self.limit, self.per_ms / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_said_as_people_say_it() {
        for (text, limit, per_ms, shown) in [
            ("100/1m", 100, 60_000, "100/1m"),
            ("5/s", 5, 1000, "5/1s"),
            ("1/500ms", 1, 500, "1/500ms"),
            ("7/90s", 7, 90_000, "7/90s"),
            ("2/24h", 2, 86_400_000, "2/1d"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.limit, rate.per_ms, rate.to_string().as_str()), (limit, per_ms, shown), "{text}");
        }
        for wrong in ["", "5", "5/", "/s", "5/1", "5/1w", "-5/s", "5/1.5s", "5/99999999999999999999s"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }
}
