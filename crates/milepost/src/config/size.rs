//! How much is kept: a number of bytes and a unit, as in `10GB`.

use std::fmt;
use std::str::FromStr;

/// Bytes at most; without it there is no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MostBytes(pub(crate) Option<u64>);

impl MostBytes {
    pub(crate) const OFF: MostBytes = MostBytes(None);
}

// What ends another comes after it.
const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl FromStr for MostBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<MostBytes, String> {
        if text == "off" {
            return Ok(MostBytes::OFF);
        }
        let read = |(unit, bytes): &(&str, u64)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*bytes);
        UNITS.iter().find_map(read).filter(|bytes| *bytes > 0).map(|bytes| MostBytes(Some(bytes))).ok_or_else(|| {
            format!("`{text}` is not a size; write a number and one of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB, as in \"10GB\", or \"off\"")
        })
    }
}

impl fmt::Display for MostBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(bytes) = self.0 else { return f.write_str("off") };
        // The unit that leaves the smallest number.
        let whole = UNITS.iter().filter(|(_, unit)| bytes.is_multiple_of(*unit));
        whole.max_by_key(|(_, unit)| *unit).map_or(Ok(()), |(name, unit)| write!(f, "{}{name}", bytes / unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_number_and_a_unit() {
        let shown = |text: &str| text.parse::<MostBytes>().map(|size| (size.0, size.to_string()));
        assert_eq!(shown("10GB"), Ok((Some(10_000_000_000), "10GB".to_owned())));
        assert_eq!(shown("512MiB"), Ok((Some(536_870_912), "512MiB".to_owned())));
        assert_eq!(shown("1500KB"), Ok((Some(1_500_000), "1500KB".to_owned())));
        assert_eq!(shown("7B"), Ok((Some(7), "7B".to_owned())));
        assert_eq!(shown("off"), Ok((None, "off".to_owned())));
        for wrong in ["", "10", "GB", "0GB", "-1GB", "1.5GB", "10 GB", "10gb", "99999999999999TB"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }
}
