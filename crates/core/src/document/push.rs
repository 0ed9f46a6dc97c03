//! `push`: where a step with `runtime: push` is sent to.

use std::sync::Arc;

use super::problem::Problems;
use super::section::Section;
use crate::limits::Limits;
use crate::plan::{Action, Push, Runtime};
use crate::secret::SecretRef;

const KEYS: [&str; 3] = ["url", "signing_secret", "timeout_ms"];
/// Longer addresses are refused by half of the world.
const MAX_URL: usize = 2048;
/// How long one request may take, if nothing is said, and at most.
const TIMEOUT_MS: u64 = 60_000;
const MAX_TIMEOUT_MS: u64 = 600_000;

/// What was said; `None` where nothing was.
#[derive(Clone, Debug, Default)]
pub(super) struct PushSettings {
    url: Option<Arc<str>>,
    signing_secrets: Option<Vec<Arc<str>>>,
    timeout_ms: Option<u64>,
}

/// Reads the key on top of what is said above it, key by key.
pub(super) fn read(
    section: &Section<'_, '_>,
    above: Option<&PushSettings>,
    limits: &Limits,
    problems: &mut Problems,
) -> Option<PushSettings> {
    let Some(entry) = section.get("push") else { return above.cloned() };
    let trail = section.trail.key("push");
    let inner = Section::of(&entry.node, &trail, problems)?;
    inner.only(&KEYS, problems);
    let mut push = above.cloned().unwrap_or_default();
    if let Some(url) = inner.text("url", problems) {
        if let Some(fault) = url_fault(url) {
            let at = inner.get("url").map_or(inner.at, |entry| entry.node.at);
            problems.add("bad_value", at, &trail.key("url"), format!("the url {fault}"));
        }
        push.url = Some(url.into());
    }
    push.signing_secrets = signing_secrets(&inner, limits, problems).or(push.signing_secrets);
    push.timeout_ms = inner.integer("timeout_ms", 1, MAX_TIMEOUT_MS, problems).or(push.timeout_ms);
    Some(push)
}

/// One reference, or several while a key is changed.
fn signing_secrets(section: &Section<'_, '_>, limits: &Limits, problems: &mut Problems) -> Option<Vec<Arc<str>>> {
    let entry = section.get("signing_secret")?;
    let references = match entry.node.as_list() {
        Some(_) => section.texts("signing_secret", problems)?,
        None => vec![section.text("signing_secret", problems)?],
    };
    for reference in &references {
        if let Err(error) = SecretRef::parse(reference, limits.name_chars) {
            problems.add("bad_value", entry.node.at, &section.trail.key("signing_secret"), error.to_string());
        }
    }
    Some(references.into_iter().map(Arc::from).collect())
}

/// Where a step is pushed to; `None` for one that is not pushed.
pub(super) fn of_step(
    section: &Section<'_, '_>,
    said: Option<&PushSettings>,
    runtime: Option<Runtime>,
    action: Action,
    problems: &mut Problems,
) -> Option<Push> {
    if runtime != Some(Runtime::Push) || action != Action::Task {
        if let Some(entry) = section.get("push") {
            let message = match action {
                Action::Task => "`push` says where a step with `runtime: push` is sent to, and this step has another",
                _ => "`push` says where a step is sent to, and this one is carried out by nobody",
            };
            let suggestion = (action == Action::Task).then(|| "add `runtime: push`, or remove `push`".to_owned());
            problems.add_with("bad_value", entry.at, &section.trail.key("push"), message, suggestion);
        }
        return None;
    }
    if let Some(entry) = section.get("queue") {
        let message = "`queue` is for steps that workers take, and this one is pushed";
        problems.add("bad_value", entry.at, &section.trail.key("queue"), message);
    }
    let Some(url) = said.and_then(|said| said.url.clone()) else {
        // What is no map, or has a url that is no text, was told.
        let own = section.get("push").and_then(|entry| Some((entry.at, entry.node.as_map()?)));
        let told = section.get("push").is_some() && own.is_none_or(|(_, map)| map.iter().any(|e| e.key == "url"));
        if !told {
            let at = own.map_or(section.at, |(at, _)| at);
            let message = "`runtime: push` needs to know where to: `push: {url: https://…}`";
            problems.add("missing_key", at, section.trail, message);
        }
        return None;
    };
    let host = host_of(&url).unwrap_or_default().to_ascii_lowercase().into();
    let timeout_ms = said.and_then(|said| said.timeout_ms).unwrap_or(TIMEOUT_MS);
    let signing_secrets = said.and_then(|said| said.signing_secrets.clone()).unwrap_or_default();
    Some(Push { url, host, signing_secrets, timeout_ms })
}

/// Host and port, as they are written.
fn host_of(url: &str) -> Option<&str> {
    let rest = after_scheme(url)?;
    Some(rest.split(['/', '?', '#']).next().unwrap_or(rest))
}

fn after_scheme(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    ["https", "http"].iter().any(|known| scheme.eq_ignore_ascii_case(known)).then_some(rest)
}

/// What is wrong with an address. What stands before an `@` is never repeated.
fn url_fault(url: &str) -> Option<String> {
    if url.contains("${{") {
        return Some("is a plain text: expressions are not evaluated in it".to_owned());
    }
    if url.chars().count() > MAX_URL {
        return Some(format!("has more than {MAX_URL} characters"));
    }
    if let Some(odd) = url.chars().find(|c| c.is_whitespace() || c.is_control() || "\"<>\\^`{|}".contains(*c)) {
        return Some(format!("may not have {odd:?} in it"));
    }
    let Some(host) = host_of(url) else {
        return Some("begins with https:// or http://".to_owned());
    };
    if host.contains('@') {
        return Some("has credentials in it; name them under `secrets`, and the receiver is given them".to_owned());
    }
    if url.contains('#') {
        return Some("has a fragment (#…), which no server is ever sent; leave it out".to_owned());
    }
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err() || port == "0") {
        return Some("has a port that is none; a port is a number from 1 to 65535".to_owned());
    }
    let is_v6 = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).map(|name| name.parse());
    let fits = match is_v6 {
        Some(parsed) => parsed.is_ok_and(|_: std::net::Ipv6Addr| true),
        None => !name.is_empty() && !name.contains(['[', ']', ':', '%', ',', ';', '!', '$', '&', '\'', '(', ')', '*']),
    };
    (!fits).then(|| "has no host that could be one".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_plain_one_of_http() {
        for url in [
            "https://abc.lambda-url.eu-central-1.on.aws/",
            "http://localhost:9000",
            "HTTPS://Example.com/a/b?x=1&y=%20",
            "http://[::1]:8080/hook",
            "http://10.0.0.1/@me",
        ] {
            assert_eq!(url_fault(url), None, "{url}");
        }
        for (url, word) in [
            ("", "begins with"),
            ("example.com/x", "begins with"),
            ("ftp://example.com", "begins with"),
            ("https://", "no host"),
            ("https:///x", "no host"),
            ("https://user:hunter2@example.com/", "credentials"),
            ("https://token@example.com/", "credentials"),
            ("https://example.com/${{ payload.x }}", "plain text"),
            ("https://example.com/a b", "may not have ' '"),
            ("https://example.com:0/", "port"),
            ("https://example.com:99999/", "port"),
            ("https://[::g]/", "no host"),
            ("https://exa%6dple.com/", "no host"),
            ("https://example.com/#top", "fragment"),
        ] {
            let fault = url_fault(url).unwrap_or_else(|| panic!("{url} is taken"));
            assert!(fault.contains(word) && !fault.contains("hunter2"), "{url}: {fault}");
        }
        assert!(url_fault(&format!("https://e.com/{}", "x".repeat(MAX_URL))).is_some());
    }

    #[test]
    fn the_host_is_what_stands_between_the_slashes() {
        assert_eq!(host_of("https://Example.com:8443/a?b"), Some("Example.com:8443"));
        assert_eq!(host_of("http://[::1]:80?x"), Some("[::1]:80"));
    }
}
