//! Where traces go. Read from the variables that OpenTelemetry has for it.

use std::fmt;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";

/// A collector that takes OTLP over HTTP.
#[derive(Clone)]
pub struct OtlpConfig {
    pub(super) traces_url: Url,
    pub(super) headers: HeaderMap,
    pub(super) service_name: String,
}

/// Traces cannot be sent as it was asked for; the text says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadOtlpConfig(String);

impl OtlpConfig {
    /// A collector's base address, such as `http://localhost:4318`; `/v1/traces` is added to it.
    ///
    /// # Errors
    /// It is no address of that kind.
    pub fn new(endpoint: &str) -> Result<OtlpConfig, BadOtlpConfig> {
        let bad = |why: String| {
            // A user and a password may stand before the host, a key behind the path.
            let shown = endpoint.rsplit_once('@').map_or(endpoint, |(_, host)| host).split(['?', '#']).next();
            BadOtlpConfig(format!(
                "`{}` is no address of a collector: {why}; write something like http://localhost:4318",
                shown.unwrap_or_default()
            ))
        };
        let mut url = Url::parse(endpoint.trim()).map_err(|error| bad(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(bad("it does not begin with http:// or https:// and a host".to_owned()));
        }
        let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(OtlpConfig { traces_url: url, headers: HeaderMap::new(), service_name: "milepost".to_owned() })
    }

    /// Sends this header along, such as a token that the collector asks for.
    ///
    /// # Errors
    /// The name or the value cannot be sent.
    pub fn header(mut self, name: &str, value: &str) -> Result<OtlpConfig, BadOtlpConfig> {
        // The value may be a secret and is not repeated.
        let bad = || BadOtlpConfig(format!("the header `{name}` cannot be sent; use visible ASCII characters"));
        let read = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        self.headers.insert(read, value);
        Ok(self)
    }

    /// What this service is called in traces; `milepost` if nothing else is said.
    #[must_use]
    pub fn service_name(mut self, name: &str) -> OtlpConfig {
        name.clone_into(&mut self.service_name);
        self
    }

    /// Where traces go, without what an address may have of a password.
    pub(super) fn shown_url(&self) -> String {
        let mut url = self.traces_url.clone();
        // Both can only fail for addresses without a host.
        let _ = url.set_username("").and_then(|()| url.set_password(None));
        url.to_string()
    }

    /// What `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_SERVICE_NAME` say; `None` without an
    /// endpoint.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn from_env() -> Result<Option<OtlpConfig>, BadOtlpConfig> {
        OtlpConfig::from_variables(|name| std::env::var(name).ok())
    }

    /// The same, from whatever has the variables.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Option<OtlpConfig>, BadOtlpConfig> {
        let get = |name| get(name).filter(|value| !value.trim().is_empty());
        let Some(endpoint) = get(ENDPOINT) else { return Ok(None) };
        let mut config = OtlpConfig::new(&endpoint).map_err(|BadOtlpConfig(text)| said_by(ENDPOINT, &text))?;
        for pair in get(HEADERS).iter().flat_map(|list| list.split(',')).filter(|pair| !pair.trim().is_empty()) {
            let parts = pair.split_once('=').and_then(|(name, value)| Some((name.trim(), decoded(value.trim())?)));
            let (name, value) = parts.ok_or_else(|| said_by(HEADERS, "write name=value,name=value"))?;
            config = config.header(name, &value).map_err(|BadOtlpConfig(text)| said_by(HEADERS, &text))?;
        }
        Ok(Some(match get(SERVICE_NAME) {
            Some(name) => config.service_name(name.trim()),
            None => config,
        }))
    }
}

impl fmt::Debug for OtlpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.shown_url();
        f.debug_struct("OtlpConfig")
            .field("traces_url", &url)
            .field("service_name", &self.service_name)
            .finish_non_exhaustive()
    }
}

fn said_by(variable: &str, text: &str) -> BadOtlpConfig {
    BadOtlpConfig(format!("{variable}: {text}"))
}

/// Values of headers are percent-encoded.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |digit: u8| (digit as char).to_digit(16);
                bytes.push(u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?);
                rest = after;
            }
            (byte, after) => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<OtlpConfig>, BadOtlpConfig> {
        let find = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        OtlpConfig::from_variables(find)
    }

    #[test]
    fn without_an_endpoint_nothing_is_traced() {
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[(ENDPOINT, " "), (SERVICE_NAME, "x")]).unwrap().is_none());
    }

    #[test]
    fn the_variables_of_opentelemetry_are_read() {
        let headers = "authorization=Basic%20YTpi, x-org=7%";
        let config = read(&[(ENDPOINT, "https://c.example/otel/"), (HEADERS, headers), (SERVICE_NAME, "flows")]);
        let config = config.unwrap().unwrap();
        assert_eq!(config.traces_url.as_str(), "https://c.example/otel/v1/traces");
        assert_eq!(config.headers["authorization"], "Basic YTpi");
        assert_eq!(config.headers["x-org"], "7%");
        assert_eq!(config.service_name, "flows");
        assert!(!format!("{config:?}").contains("Basic"));
        let with_password = OtlpConfig::new("http://me:hush@c.example").unwrap();
        assert_eq!(with_password.shown_url(), "http://c.example/v1/traces");
        let plain = OtlpConfig::new("http://localhost:4318").unwrap();
        assert_eq!((plain.traces_url.path(), plain.service_name.as_str()), ("/v1/traces", "milepost"));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_and_secrets_are_not_repeated() {
        for endpoint in ["localhost:4318", "grpc://x:4317", "http://", "x"] {
            let error = read(&[(ENDPOINT, endpoint)]).unwrap_err().to_string();
            assert!(error.starts_with(ENDPOINT) && error.contains("http://localhost:4318"), "{error}");
        }
        for headers in ["token", "token=\u{1}secret", "=secret", "a b=secret"] {
            let error = read(&[(ENDPOINT, "http://c"), (HEADERS, headers)]).unwrap_err().to_string();
            assert!(error.starts_with(HEADERS) && !error.contains("secret"), "{error}");
        }
    }
}
