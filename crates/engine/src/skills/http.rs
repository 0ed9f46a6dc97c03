//! `http`: one request. Addresses of the own machine and of private networks are refused unless they are allowed.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::Deserialize;
use serde_json::{Value, json};

use super::placeholder::{fill, fill_url, fill_value};
use super::{SkillError, Skills};
use crate::secrets::Resolved;

/// More than this of an answer is not read.
const BODY_BYTES: usize = 1024 * 1024;
const TRACEPARENT: &str = "traceparent";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default = "get")]
    method: String,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Value>,
}

impl Input {
    /// The step's own header goes first, however it is spelled.
    fn pass_on(&mut self, traceparent: String) {
        if !self.headers.keys().any(|name| name.eq_ignore_ascii_case(TRACEPARENT)) {
            self.headers.insert(TRACEPARENT.to_owned(), traceparent);
        }
    }

    /// With the secrets that it names.
    fn filled(self, secrets: &Resolved) -> Result<Input, SkillError> {
        let headers = self.headers.into_iter().map(|(name, value)| Ok((name, fill(&value, secrets)?)));
        Ok(Input {
            url: fill_url(&self.url, secrets)?,
            headers: headers.collect::<Result<_, SkillError>>()?,
            body: self.body.map(|body| fill_value(body, secrets)).transpose()?,
            method: self.method,
        })
    }
}

fn get() -> String {
    "GET".to_owned()
}

pub(super) fn register(skills: &mut Skills, private_addresses: bool) {
    // Built once, at the first call: most programs never make one.
    let client = Arc::new(std::sync::OnceLock::new());
    skills.add("http", move |context, mut input: Input| {
        let client = client.clone();
        async move {
            input.pass_on(context.traceparent());
            let client = client.get_or_init(|| build_client(private_addresses)).as_ref().map_err(Clone::clone)?;
            call(client, input.filled(&context.secrets)?, private_addresses).await
        }
    });
}

fn build_client(private_addresses: bool) -> Result<reqwest::Client, SkillError> {
    client_builder(private_addresses)
        .build()
        .map_err(|error| SkillError::new("http_failed", format!("no HTTP client: {error}")))
}

/// A client that follows no redirects, and finds no private addresses unless they are allowed. An address that is written
/// into a URL is not looked up: `private_literal` tells.
pub(crate) fn client_builder(private_addresses: bool) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    if private_addresses { builder } else { builder.dns_resolver(Arc::new(PublicOnly)) }
}

async fn call(client: &reqwest::Client, input: Input, private_addresses: bool) -> Result<Value, SkillError> {
    let url = reqwest::Url::parse(&input.url)
        .map_err(|error| SkillError::fatal("bad_input", format!("`{}` is no URL: {error}", input.url)))?;
    if !private_addresses {
        refuse_private_literal(&url)?;
    }
    let method = reqwest::Method::from_bytes(input.method.to_uppercase().as_bytes())
        .map_err(|_| SkillError::fatal("bad_input", format!("`{}` is no HTTP method", input.method)))?;
    let mut request = client.request(method, url);
    for (name, value) in &input.headers {
        request = request.header(name, value);
    }
    request = match input.body {
        None => request,
        Some(Value::String(text)) => request.body(text),
        Some(value) => request.header("content-type", "application/json").body(value.to_string()),
    };
    let response = request.send().await.map_err(failed)?;
    let status = response.status();
    let headers: BTreeMap<String, String> = response
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let body = read_body(response).await?;
    if status.is_success() || status.is_redirection() {
        return Ok(json!({ "status": status.as_u16(), "headers": headers, "body": body }));
    }
    let message = format!("the server answered {status}");
    // The caller's fault stays the caller's fault, except where it was told to come again.
    let again = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
    Err(SkillError { code: format!("http_{}", status.as_u16()), message, retryable: again })
}

async fn read_body(mut response: reqwest::Response) -> Result<Value, SkillError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > BODY_BYTES {
            return Err(SkillError::fatal(
                "http_body_too_large",
                format!("the answer has more than {BODY_BYTES} bytes"),
            ));
        }
    }
    Ok(serde_json::from_slice(&bytes).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned())))
}

fn failed(error: reqwest::Error) -> SkillError {
    match explain(error) {
        message if names_private_address(&message) => SkillError::fatal("private_address", message),
        message => SkillError::new("http_failed", message),
    }
}

/// What went wrong, and why. Says nothing of the address: there may be secrets in it, and the step's input has it.
pub(crate) fn explain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    message
}

/// It went wrong because the address is private.
pub(crate) fn names_private_address(message: &str) -> bool {
    message.contains(PRIVATE)
}

const PRIVATE: &str = "is an address of this machine or of a private network; allow it with --allow-private-http";

/// An address written into the URL is never resolved, so it is looked at here.
fn refuse_private_literal(url: &reqwest::Url) -> Result<(), SkillError> {
    let Some(host) = url.host_str() else {
        return Err(SkillError::fatal("bad_input", "the URL has no host"));
    };
    match private_literal(host) {
        Some(message) => Err(SkillError::fatal("private_address", message)),
        None => Ok(()),
    }
}

/// What is wrong with a host that is a private address.
pub(crate) fn private_literal(host: &str) -> Option<String> {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>().ok()?;
    is_private(address).then(|| format!("{address} {PRIVATE}"))
}

/// Resolves names to public addresses only; checked where the connection is made, so a second answer cannot slip by.
#[derive(Debug)]
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            if let Some(private) = found.iter().find(|address| is_private(address.ip())) {
                return Err(format!("{} ({}) {PRIVATE}", name.as_str(), private.ip()).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            v4.is_private()
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_broadcast()
                || v4.is_multicast()
                || v4.is_documentation()
                || a == 0
                // Shared address space of carriers, and addresses kept for later.
                || (a == 100 && (64..128).contains(&b))
                || a >= 240
        }
        IpAddr::V6(v6) => is_private_v6(v6),
    }
}

fn is_private_v6(v6: Ipv6Addr) -> bool {
    match v6.to_ipv4() {
        Some(v4) => is_private(IpAddr::V4(v4)) || v6.is_loopback() || v6.is_unspecified(),
        None => v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_multicast(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_own_machine_and_of_private_networks_are_private() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.9.9",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_private(text.parse().unwrap()), "{text}");
        }
        for text in ["93.184.216.34", "2606:4700::1111"] {
            assert!(!is_private(text.parse().unwrap()), "{text}");
        }
    }
}
