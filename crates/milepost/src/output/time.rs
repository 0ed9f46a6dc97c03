//! Moments and spans as people say them.

use milepost_core::time::Timestamp;
use milepost_engine::{Clock as _, SystemClock};

pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// `12:00:01.123`, in UTC.
pub(crate) fn clock_time(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(11..23).map_or(text.clone(), ToOwned::to_owned)
}

/// `12 ms`, `1.2 s`, `3 min 5 s`, `2 h 10 min`.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{seconds}.{} s", ms % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// `3 min ago`.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.ms_since(at) / 1000;
    match seconds {
        0 => "just now".to_owned(),
        1..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_the_units_people_use() {
        let shown = [0, 999, 1234, 65_000, 7_800_000, 90_000_000].map(span);
        assert_eq!(shown, ["0 ms", "999 ms", "1.2 s", "1 min 5 s", "2 h 10 min", "1 d 1 h"]);
    }

    #[test]
    fn ages_are_rough() {
        let now = Timestamp(10_000_000_000);
        assert_eq!(age(now, now), "just now");
        assert_eq!(age(Timestamp(now.0 - 185_000_000), now), "3 min ago");
        assert_eq!(clock_time(Timestamp(1_123_456)), "00:00:01.123");
    }
}
