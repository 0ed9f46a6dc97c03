//! Settings that are written as text and are more than text.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use milepost_engine::cache::RedisConfig;
use serde::Deserialize;

pub(crate) use super::size::MostBytes;
pub(crate) use super::span::{BlobGrace, Grace, KindRetention, Lasting, Retention};

/// Where a server listens. `localhost` stands for 127.0.0.1, so that one address is meant and not two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl Listen {
    pub(crate) const DEFAULT: Listen = Listen(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 7400));

    /// Whether only programs on this machine reach it.
    pub(crate) fn is_loopback(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let address = match text.strip_prefix("localhost:") {
            Some(port) => port.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            None => text.parse().ok(),
        };
        address.map(Listen).ok_or_else(|| {
            format!("`{text}` is not an address with a port; write it as in 127.0.0.1:7400, 0.0.0.0:7400 or [::1]:7400")
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What requests to receivers are signed with: several while one is changed, separated by commas.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct PushSecrets(pub(crate) Vec<String>);

/// Shorter ones can be guessed.
const SHORTEST_SECRET: usize = 16;

impl FromStr for PushSecrets {
    type Err = String;

    fn from_str(text: &str) -> Result<PushSecrets, String> {
        let secrets = text.split(',').map(str::trim).filter(|secret| !secret.is_empty());
        let secrets: Vec<String> = secrets.map(ToOwned::to_owned).collect();
        match secrets.is_empty() || secrets.iter().any(|secret| secret.chars().count() < SHORTEST_SECRET) {
            true => Err(format!(
                "a signing secret has at least {SHORTEST_SECRET} characters and no comma; `openssl rand -hex 32` makes one"
            )),
            false => Ok(PushSecrets(secrets)),
        }
    }
}

impl fmt::Debug for PushSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// Where Redis is, if anywhere. Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisUrl(pub(crate) Option<String>);

impl RedisUrl {
    pub(crate) const OFF: RedisUrl = RedisUrl(None);
}

impl FromStr for RedisUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<RedisUrl, String> {
        if text == super::OFF {
            return Ok(RedisUrl::OFF);
        }
        RedisConfig::new(text, RedisConfig::TTL).map_err(|error| error.to_string())?;
        Ok(RedisUrl(Some(text.to_owned())))
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.as_deref().map_or_else(|| super::OFF.to_owned(), masked_url))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A proxy that requests of steps go through, if any. Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ProxyUrl(pub(crate) Option<String>);

impl ProxyUrl {
    pub(crate) const OFF: ProxyUrl = ProxyUrl(None);
}

impl FromStr for ProxyUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<ProxyUrl, String> {
        if text == super::OFF {
            return Ok(ProxyUrl::OFF);
        }
        let known =
            reqwest::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        match known {
            true => Ok(ProxyUrl(Some(text.to_owned()))),
            false => Err("a proxy is http://HOST:PORT or https://HOST:PORT, or `off`".to_owned()),
        }
    }
}

impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.as_deref().map_or_else(|| super::OFF.to_owned(), masked_url))
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How many patches a chain may have before it is made short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u32")]
pub(crate) struct ChainDepth(pub(crate) u32);

impl ChainDepth {
    pub(crate) const DEFAULT: ChainDepth = ChainDepth(10);
}

impl TryFrom<u32> for ChainDepth {
    type Error = String;

    fn try_from(depth: u32) -> Result<ChainDepth, String> {
        match depth {
            1..=50 => Ok(ChainDepth(depth)),
            _ => Err("a chain has 1 to 50 patches; choose a number between them".to_owned()),
        }
    }
}

impl FromStr for ChainDepth {
    type Err = String;

    fn from_str(text: &str) -> Result<ChainDepth, String> {
        text.parse::<u32>().unwrap_or_default().try_into()
    }
}

/// `name=value,name=value`, as OpenTelemetry writes headers in the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers(pub(crate) BTreeMap<String, String>);

impl FromStr for Headers {
    type Err = String;

    fn from_str(text: &str) -> Result<Headers, String> {
        let one = |pair: &str| {
            let (name, value) = pair.split_once('=').filter(|(name, _)| !name.trim().is_empty())?;
            Some((name.trim().to_owned(), decoded(value.trim())))
        };
        let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
        let headers: Option<BTreeMap<String, String>> = pairs.map(one).collect();
        // What was written may be a secret: it is not quoted.
        headers.map(Headers).ok_or_else(|| "headers are written as NAME=VALUE,NAME=VALUE".to_owned())
    }
}

/// Percent-encoded bytes as what they stand for; what is not well-formed stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = || std::str::from_utf8(after.get(..2)?).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (first, (*first == b'%').then(hex).flatten()) {
            (_, Some(byte)) => (rest, _) = (&after[2..], bytes.push(byte)),
            (byte, None) => (rest, _) = (after, bytes.push(*byte)),
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<LogFormat, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err(format!("`{text}` is not a format of logs; write text or json")),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == LogFormat::Json { "json" } else { "text" })
    }
}

/// A URL whose password, if it has one, cannot be read.
pub(crate) fn masked_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // A password may have an `@` of its own.
    let rest = match rest.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{user}:{MASK}@{host}"),
            None => format!("{user}@{host}"),
        },
        None => rest.to_owned(),
    };
    let Some((before, query)) = rest.split_once('?') else { return format!("{scheme}://{rest}") };
    let masked = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}={MASK}"),
        _ => pair.to_owned(),
    };
    let query: Vec<String> = query.split('&').map(masked).collect();
    format!("{scheme}://{before}?{}", query.join("&"))
}

/// Whether the value of such a parameter of an address is a secret. Those of TLS name files.
fn is_secret(parameter: &str) -> bool {
    let parameter = parameter.to_ascii_lowercase();
    let words = ["password", "key", "token", "secret", "auth", "signature"];
    !parameter.starts_with("ssl") && words.iter().any(|word| parameter.contains(word))
}

/// What stands for something secret.
pub(crate) const MASK: &str = "********";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_port() {
        let shown = |text: &str| text.parse::<Listen>().map(|listen| (listen.to_string(), listen.is_loopback()));
        assert_eq!(shown("127.0.0.1:7400"), Ok(("127.0.0.1:7400".to_owned(), true)));
        assert_eq!(shown("localhost:1"), Ok(("127.0.0.1:1".to_owned(), true)));
        assert_eq!(shown("[::1]:0"), Ok(("[::1]:0".to_owned(), true)));
        assert_eq!(shown("[::ffff:127.0.0.1]:1"), Ok(("[::ffff:127.0.0.1]:1".to_owned(), true)));
        assert_eq!(shown("0.0.0.0:80"), Ok(("0.0.0.0:80".to_owned(), false)));
        assert_eq!(shown("[::]:80"), Ok(("[::]:80".to_owned(), false)));
        for wrong in ["", "7400", "127.0.0.1", "localhost", "localhost:x", "example.com:80", "127.0.0.1:70000"] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_chain_is_neither_empty_nor_long() {
        let read = |text: &str| text.parse::<ChainDepth>().map(|depth| depth.0);
        assert_eq!((read("1"), read("50")), (Ok(1), Ok(50)));
        for wrong in ["", "0", "51", "-1", "x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn signing_secrets_are_long_and_never_shown() {
        let long = "0123456789abcdef";
        let read = |text: &str| text.parse::<PushSecrets>().map(|secrets| secrets.0.len());
        assert_eq!(read(long), Ok(1));
        assert_eq!(read(&format!("{long}, {long},")), Ok(2));
        for wrong in ["", ",", "hunter2", &format!("{long},hunter2")] {
            assert!(read(wrong).is_err_and(|error| !error.contains("hunter2")), "{wrong}");
        }
        assert!(!format!("{:?}", long.parse::<PushSecrets>()).contains(long));
    }

    #[test]
    fn headers_are_pairs_that_may_be_percent_encoded() {
        let read = |text: &str| text.parse::<Headers>().map(|headers| headers.0.into_iter().collect::<Vec<_>>());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read("a=1, b=x%20y=z"), Ok(vec![pair("a", "1"), pair("b", "x y=z")]));
        assert_eq!(read("a=100%,b=%zz"), Ok(vec![pair("a", "100%"), pair("b", "%zz")]));
        assert_eq!(read(""), Ok(vec![]));
        assert!(read("secret").is_err_and(|error| !error.contains("secret")));
    }

    #[test]
    fn a_password_is_masked_wherever_it_stands() {
        assert_eq!(masked_url("postgres://u:p@h:5432/d"), "postgres://u:********@h:5432/d");
        assert_eq!(
            masked_url("postgres://u:p/q@h/d?x=1&password=p"),
            "postgres://u:********@h/d?x=1&password=********"
        );
        assert_eq!(masked_url("postgres://u:p@q/r?s@h/d"), "postgres://u:********@h/d");
        assert_eq!(masked_url("postgres://h/d?password=p@q&x=1"), "postgres://h/d?password=********&x=1");
        assert_eq!(masked_url("https://c/v1?api-key=p&sslkey=/f"), "https://c/v1?api-key=********&sslkey=/f");
        assert_eq!(masked_url("postgres://u@h/d"), "postgres://u@h/d");
        assert_eq!(masked_url("postgres://h:5432/d"), "postgres://h:5432/d");
        assert_eq!(masked_url("runs.db"), "runs.db");
    }

    #[test]
    fn a_redis_is_somewhere_or_off() {
        let shown = |text: &str| text.parse::<RedisUrl>().map(|url| format!("{url} {url:?}"));
        let masked = "rediss://:********@h:6380/2";
        assert_eq!(shown("rediss://:hunter2@h:6380/2"), Ok(format!("{masked} {masked}")));
        assert_eq!(shown("off"), Ok("off off".to_owned()));
        for wrong in ["", "h", "http://:hunter2@h"] {
            assert!(shown(wrong).is_err_and(|error| !error.contains("hunter2")), "{wrong}");
        }
    }
}
