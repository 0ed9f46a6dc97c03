//! How long to wait before the next try.

/// After the first try; twice as long after each further one, up to the longest.
const FIRST_MS: u64 = 500;
const LONGEST_MS: u64 = 60_000;

/// Between half of the delay and all of it, so that what failed together does not come back together.
pub(super) fn backoff_ms(tries: u32, random: u64) -> u64 {
    let delay = FIRST_MS.saturating_mul(1 << tries.saturating_sub(1).min(32)).min(LONGEST_MS);
    delay / 2 + random % (delay / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_scatter() {
        for (tries, delay) in [(1, 500), (2, 1000), (3, 2000), (7, 32_000), (8, 60_000), (u32::MAX, 60_000)] {
            for random in (0..1000).map(|n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)) {
                let ms = backoff_ms(tries, random);
                assert!((delay / 2..=delay).contains(&ms), "{tries}: {ms}");
            }
        }
        let scattered: std::collections::HashSet<u64> = (0..100).map(|n| backoff_ms(8, n * 7919)).collect();
        assert!(scattered.len() > 50);
    }
}
