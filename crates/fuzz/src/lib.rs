//! Fuzzing on stable Rust: a corpus that is kept, mutations that know texts with brackets, and a budget of time.
//!
//! A target is a test that calls [`run`]. In `make test` it takes a second; `MILEPOST_FUZZ_SECONDS=600` makes it ten minutes,
//! `MILEPOST_FUZZ_SEED=7` takes another way. Inputs whose outcome was not seen before are mutated further, and, with
//! `MILEPOST_FUZZ_KEEP=1`, become part of the corpus. An input that panics is written into the corpus, so that it is tried
//! first from then on.
//!
//! **Invariant:** the same seed, corpus and outcomes give the same inputs.

mod mutate;
mod random;

use std::collections::HashSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use mutate::Grammar;
use random::Random;

/// Inputs are not made longer than this.
const MAX_BYTES: usize = 256 * 1024;
/// Inputs of one run that become part of the corpus, and how large they may be: it is read by every test.
const MAX_KEPT: usize = 24;
const MAX_KEPT_BYTES: usize = 4 * 1024;
/// Inputs with outcomes of their own that are kept in memory.
const MAX_POOL: usize = 4096;

/// What was done, for whoever runs a target for long.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    pub inputs: u64,
    /// Inputs whose outcome was not seen before.
    pub outcomes: usize,
    pub slowest: Duration,
}

/// Tries every input of the corpus `folder/name`, then mutations of them until the time is up. `check` panics if something is
/// wrong, and answers what kind of outcome the input had: an error's code, the length of a result.
///
/// # Panics
/// The corpus cannot be read or has no input, or an input panicked: its file is named.
pub fn run<O: Hash>(name: &str, folder: &Path, grammar: &Grammar, mut check: impl FnMut(&[u8]) -> O) -> Report {
    let corpus = folder.join(name);
    let mut pool = read(&corpus);
    assert!(!pool.is_empty(), "there is no input in {}", corpus.display());
    let seconds = number("MILEPOST_FUZZ_SECONDS").unwrap_or(1);
    let seed = number("MILEPOST_FUZZ_SEED").unwrap_or(1);
    let (keep, seeds) = (number("MILEPOST_FUZZ_KEEP") == Some(1), pool.len());
    let (mut random, mut kept) = (Random::new(seed), 0);
    let mut outcomes = HashSet::new();
    let mut report = Report { inputs: 0, outcomes: 0, slowest: Duration::ZERO };
    // An input that ends the whole process is found here.
    let current = std::env::temp_dir().join(format!("milepost-fuzz-{name}-{}", std::process::id()));
    let deadline = Instant::now() + Duration::from_secs(seconds);
    for turn in 0.. {
        let known = turn < seeds;
        if !known && Instant::now() >= deadline {
            break;
        }
        let input = if known { pool[turn].clone() } else { grammar.mutate(&pool, &mut random, MAX_BYTES) };
        // What is small has never ended a process; writing it would cost more than trying it.
        if input.len() > 1024 {
            let _ = fs::write(&current, &input);
        }
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| check(&input))).unwrap_or_else(|panic| {
            let path = save(&corpus, "panics", &input);
            let shown = String::from_utf8_lossy(&input[..input.len().min(400)]).into_owned();
            eprintln!("fuzz target {name}, seed {seed}: this input panics, it is in {}: {shown}", path.display());
            resume_unwind(panic)
        });
        report.slowest = report.slowest.max(begun.elapsed());
        report.inputs += 1;
        if outcomes.insert(hash(&outcome)) && !known && pool.len() < MAX_POOL {
            if keep && input.len() <= MAX_KEPT_BYTES && kept < MAX_KEPT {
                save(&corpus, "kept", &input);
                kept += 1;
            }
            pool.push(input);
        }
    }
    let _ = fs::remove_file(&current);
    report.outcomes = outcomes.len();
    eprintln!("fuzz target {name}: {report:?}");
    report
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not `{text}`")))
}

/// The inputs of a corpus, in the order of their names.
fn read(corpus: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).collect()
}

fn save(corpus: &Path, kind: &str, input: &[u8]) -> PathBuf {
    let path = corpus.join(format!("{kind}-{:016x}", hash(&input)));
    fs::write(&path, input).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_corpus(inputs: &[&str]) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("milepost-fuzz-test-{}-{}", std::process::id(), inputs.len()));
        fs::create_dir_all(folder.join("target")).expect("a folder for a corpus");
        for (i, input) in inputs.iter().enumerate() {
            fs::write(folder.join("target").join(i.to_string()), input).expect("an input");
        }
        folder
    }

    #[test]
    fn inputs_that_panic_are_kept() {
        let folder = with_corpus(&["[1, 2]", "{\"a\": 1}"]);
        let found = catch_unwind(|| {
            run("target", &folder, &Grammar::JSON, |input| assert!(!input.windows(4).any(|four| four == b"[[[[")))
        });
        assert!(found.is_err(), "brackets are nested by mutations");
        let kept =
            read(&folder.join("target")).into_iter().filter(|input| input.windows(4).any(|four| four == b"[[[["));
        assert_eq!(kept.count(), 1);
        fs::remove_dir_all(folder).expect("the folder is ours");
    }

    #[test]
    fn new_outcomes_are_mutated_further() {
        let folder = with_corpus(&["a"]);
        let report = run("target", &folder, &Grammar::TEXT, |input| input.len().min(64));
        assert!(report.outcomes > 32 && report.inputs > 100, "{report:?}");
        fs::remove_dir_all(folder).expect("the folder is ours");
    }
}
