//! How many connections the system lets a server have: descriptors are also needed for the database, for files and for what
//! steps do.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{Source, Sourced};

/// For the database, the blob store, logs, and connections that are just being closed.
const RESERVE: u64 = 128;
/// For one step that is carried out here: a connection, or a program with its three pipes.
const PER_STEP: u64 = 4;

/// So many connections may there be. Raises the soft limit of descriptors as far as it is needed and allowed.
pub(super) fn for_connections(wanted: &Sourced<usize>, inline_concurrency: usize) -> usize {
    let most = u64::try_from(wanted.value).unwrap_or(u64::MAX);
    let steps = u64::try_from(inline_concurrency).unwrap_or(u64::MAX).saturating_mul(PER_STEP);
    let reserve = steps.saturating_add(RESERVE);
    let room = within(raised(most.saturating_add(reserve)), reserve).min(most);
    if room < most && wanted.from != Source::Default {
        tracing::warn!(
            wanted = most,
            "open files allow {room} connections only; raise `ulimit -n` (LimitNOFILE) to {}",
            most.saturating_add(reserve)
        );
    }
    usize::try_from(room).unwrap_or(usize::MAX)
}

/// What a limit leaves beside the reserve: half of it, however small it is.
fn within(limit: u64, reserve: u64) -> u64 {
    limit.saturating_sub(reserve).max(limit / 2)
}

/// The limit of descriptors, raised to what is needed if that is allowed.
fn raised(needed: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let (Some(soft), hard) = (current, maximum.unwrap_or(u64::MAX)) else { return u64::MAX };
    let target = needed.min(hard);
    if target <= soft {
        return soft;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: Some(target), maximum }) {
        Ok(()) => target,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files cannot be raised");
            soft
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_other_things() {
        assert_eq!(within(1024, 128 + 1024), 512);
        assert_eq!(within(20_000, 1152), 18_848);
        let asked = Sourced { value: 100, from: Source::Flag("x") };
        assert_eq!(for_connections(&asked, 1), 100);
    }
}
