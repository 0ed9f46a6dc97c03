//! Settings that a step has of its own or takes from the document's `defaults`: retry, timeouts, cache, where it runs.

use std::sync::Arc;

use super::problem::Problems;
use super::push::{self, PushSettings};
use super::section::Section;
use crate::canonical::MAX_SAFE_INTEGER;
use crate::limits::Limits;
use crate::plan::{CachePolicy, CacheScope, Push, RetryPolicy, Runtime};
use crate::secret::{BadReference, SecretRef, variable_fault};

/// The keys read here, for `defaults`.
pub(super) const KEYS: [&str; 9] =
    ["retry", "timeout_ms", "heartbeat_timeout_ms", "cache", "runtime", "queue", "push", "secrets", "env"];

/// What was said; `None` where nothing was.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) retry: Option<RetryPolicy>,
    pub(super) timeout_ms: Option<u64>,
    pub(super) heartbeat_timeout_ms: Option<u64>,
    pub(super) cache: Option<CachePolicy>,
    pub(super) runtime: Option<Runtime>,
    pub(super) queue: Option<Arc<str>>,
    pub(super) push: Option<PushSettings>,
    pub(super) secrets: Option<Vec<(Arc<str>, Arc<str>)>>,
    pub(super) env: Option<Vec<Arc<str>>>,
}

impl Settings {
    /// Reads a section on top of what is said above it. `retry`, `cache` and `push` merge key by key.
    pub(super) fn read(
        section: &Section<'_, '_>,
        above: &Settings,
        limits: &Limits,
        problems: &mut Problems,
    ) -> Settings {
        let time = |key, problems: &mut Problems| section.integer(key, 1, MAX_SAFE_INTEGER, problems);
        let runtimes = [("inline", Runtime::Inline), ("queue", Runtime::Queue), ("push", Runtime::Push)];
        Settings {
            retry: retry(section, above.retry.as_ref(), limits, problems),
            timeout_ms: time("timeout_ms", problems).or(above.timeout_ms),
            heartbeat_timeout_ms: time("heartbeat_timeout_ms", problems).or(above.heartbeat_timeout_ms),
            cache: cache(section, above.cache, problems),
            runtime: section.choice("runtime", &runtimes, problems).or(above.runtime),
            queue: queue(section, limits, problems).or_else(|| above.queue.clone()),
            push: push::read(section, above.push.as_ref(), limits, problems),
            secrets: secrets(section, limits, problems).or_else(|| above.secrets.clone()),
            env: env(section, limits, problems).or_else(|| above.env.clone()),
        }
    }
}

/// Queues for what is pushed are made by themselves, one for each host.
fn queue(section: &Section<'_, '_>, limits: &Limits, problems: &mut Problems) -> Option<Arc<str>> {
    let name = section.name("queue", limits.name_chars, problems)?;
    if name.starts_with(Push::QUEUE) {
        let at = section.get("queue").map_or(section.at, |entry| entry.node.at);
        let message = format!("the queue may not begin with `{}`, which is for steps that are pushed", Push::QUEUE);
        problems.add("bad_name", at, &section.trail.key("queue"), message);
    }
    Some(name.into())
}

fn retry(
    section: &Section<'_, '_>,
    above: Option<&RetryPolicy>,
    limits: &Limits,
    problems: &mut Problems,
) -> Option<RetryPolicy> {
    let Some(entry) = section.get("retry") else { return above.cloned() };
    let trail = section.trail.key("retry");
    let inner = Section::of(&entry.node, &trail, problems)?;
    inner.only(&["max_attempts", "backoff_ms", "max_backoff_ms", "non_retryable"], problems);
    let mut policy = above.cloned().unwrap_or_default();
    if let Some(attempts) = inner.integer("max_attempts", 1, u64::from(limits.attempts), problems) {
        policy.max_attempts = u32::try_from(attempts).unwrap_or(limits.attempts);
    }
    let time = |key, problems: &mut Problems| inner.integer(key, 0, MAX_SAFE_INTEGER, problems);
    policy.backoff_ms = time("backoff_ms", problems).unwrap_or(policy.backoff_ms);
    policy.max_backoff_ms = time("max_backoff_ms", problems).unwrap_or(policy.max_backoff_ms);
    if let Some(codes) = inner.texts("non_retryable", problems) {
        policy.non_retryable = codes.into_iter().map(Arc::from).collect();
    }
    Some(policy)
}

fn cache(section: &Section<'_, '_>, above: Option<CachePolicy>, problems: &mut Problems) -> Option<CachePolicy> {
    let Some(entry) = section.get("cache") else { return above };
    let trail = section.trail.key("cache");
    let inner = Section::of(&entry.node, &trail, problems)?;
    inner.only(&["enabled", "scope"], problems);
    let above = above.unwrap_or_default();
    let scopes = [("global", CacheScope::Global), ("run_only", CacheScope::RunOnly)];
    Some(CachePolicy {
        enabled: inner.flag("enabled", problems).unwrap_or(above.enabled),
        scope: inner.choice("scope", &scopes, problems).unwrap_or(above.scope),
    })
}

/// Sorted by name. What stands there in place of a reference may be a secret: it is not quoted.
fn secrets(section: &Section<'_, '_>, limits: &Limits, problems: &mut Problems) -> Option<Vec<(Arc<str>, Arc<str>)>> {
    let trail = section.trail.key("secrets");
    let inner = Section::of(&section.get("secrets")?.node, &trail, problems)?;
    let mut all: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    for entry in inner.entries {
        let trail = inner.trail.key(&entry.key);
        if let Some(fault) = variable_fault(&entry.key, limits.name_chars) {
            problems.add("bad_name", entry.at, &trail, format!("`{}` {fault}", entry.key));
        }
        let Some(reference) = inner.text(&entry.key, problems) else { continue };
        if let Err(fault) = SecretRef::parse(reference, limits.name_chars) {
            let code = if fault == BadReference::NoScheme { "bad_value" } else { "bad_name" };
            let suggestion = "keep it with `milepost secrets set NAME`, and write `secret://NAME` here";
            problems.add_with(
                code,
                entry.node.at,
                &trail,
                format!("`{}`: {fault}", entry.key),
                Some(suggestion.into()),
            );
        }
        all.push((entry.key.as_str().into(), reference.into()));
    }
    all.sort();
    Some(all)
}

/// Sorted, without repeats.
fn env(section: &Section<'_, '_>, limits: &Limits, problems: &mut Problems) -> Option<Vec<Arc<str>>> {
    let names = section.texts("env", problems)?;
    let at = section.get("env").map_or(section.at, |entry| entry.node.at);
    for name in &names {
        if let Some(fault) = variable_fault(name, limits.name_chars) {
            problems.add("bad_name", at, &section.trail.key("env"), format!("`{name}` {fault}"));
        }
    }
    let mut names: Vec<Arc<str>> = names.into_iter().map(Arc::from).collect();
    names.sort();
    names.dedup();
    Some(names)
}
