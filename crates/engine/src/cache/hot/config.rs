//! Where Redis is, and how long things stay there.

use std::fmt;
use std::time::Duration;

use redis::IntoConnectionInfo as _;

/// A Redis in front of the database.
#[derive(Clone)]
pub struct RedisConfig {
    pub(super) client: redis::Client,
    /// Its address, without what is secret.
    pub(super) shown: String,
    pub(super) ttl: Duration,
    pub(super) patience: Duration,
}

/// The address of a Redis cannot be used. It is not quoted: it may have a password in it.
#[derive(Debug, thiserror::Error)]
#[error("the address of Redis cannot be used ({0}); write redis://HOST:PORT/DB, or rediss://… for TLS")]
pub struct BadRedisUrl(String);

impl RedisConfig {
    /// How long things stay there if it is not said.
    pub const TTL: Duration = Duration::from_secs(60 * 60);
    /// How long a commit waits for Redis if it is not said.
    pub const PATIENCE: Duration = Duration::from_millis(20);

    /// # Errors
    /// The address cannot be used. Whether somebody answers there is another matter.
    pub fn new(url: &str, ttl: Duration) -> Result<RedisConfig, BadRedisUrl> {
        let bad = |error: redis::RedisError| {
            BadRedisUrl(
                error.detail().map_or_else(|| "it cannot be read".to_owned(), |detail| detail.replace(url, "…")),
            )
        };
        let info = url.into_connection_info().map_err(bad)?;
        if matches!(info.addr(), redis::ConnectionAddr::TcpTls { insecure: true, .. }) {
            return Err(BadRedisUrl(
                "a certificate that is not checked is worth nothing: leave out #insecure".to_owned(),
            ));
        }
        let shown = info.addr().to_string();
        let client = redis::Client::open(info).map_err(bad)?;
        Ok(RedisConfig { client, shown, ttl: ttl.max(Duration::from_secs(1)), patience: RedisConfig::PATIENCE })
    }

    /// A commit waits so long for Redis, over all its questions.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> RedisConfig {
        RedisConfig { patience, ..self }
    }

    /// Whether somebody answers there; if not, why.
    ///
    /// # Errors
    /// Nobody answers there.
    pub async fn check(&self) -> Result<(), String> {
        super::link::connect(&self.client).await.map(drop).map_err(|error| format!("{}: {error}", self.shown))
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig").field("address", &self.shown).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_checked_and_its_password_never_shown() {
        let read = |url: &str| RedisConfig::new(url, RedisConfig::TTL).map(|config| format!("{config:?}"));
        for url in ["redis://h", "redis://:hunter2@h:7000/3", "rediss://u:hunter2@h/1", "redis+unix:///run/redis.sock"]
        {
            let shown = read(url).unwrap();
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert!(read("redis://:hunter2@h:7000/3").unwrap().contains("h:7000"));
        for wrong in ["", "h:6379", "http://:hunter2@h", "redis://:hunter2@h/x", "redis://", "rediss://h/#insecure"] {
            let said = read(wrong).unwrap_err().to_string();
            assert!(!said.contains("hunter2") && said.contains("write redis://"), "{said}");
        }
    }
}
