//! Every setting of a server: its key in the file, its variable, its flag, and what it means.

/// Where a setting is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// In the file; what stands before the dot is its table.
    pub(crate) key: &'static str,
    pub(crate) variable: &'static str,
    pub(crate) flag: Option<&'static str>,
}

macro_rules! settings {
    ($($name:ident: $key:literal, $variable:literal, $flag:expr;)+) => {
        $(pub(crate) const $name: Setting = Setting { key: $key, variable: $variable, flag: $flag };)+

        /// In the order in which they are shown.
        pub(crate) const ALL: &[Setting] = &[$($name),+];
    };
}

settings! {
    LISTEN: "listen", "MILEPOST_LISTEN", Some("--listen");
    DB: "db", "MILEPOST_DB", Some("--db");
    DATA: "data", "MILEPOST_DATA", Some("--data");
    BLOBS: "blobs", "MILEPOST_BLOBS", Some("--blobs");
    REDIS: "redis", "MILEPOST_REDIS", Some("--redis");
    INLINE_CONCURRENCY: "inline_concurrency", "MILEPOST_INLINE_CONCURRENCY", Some("--concurrency");
    ALLOW_SHELL: "allow_shell", "MILEPOST_ALLOW_SHELL", Some("--allow-shell");
    ALLOW_PRIVATE_HTTP: "allow_private_http", "MILEPOST_ALLOW_PRIVATE_HTTP", Some("--allow-private-http");
    BEHIND_PROXY: "behind_proxy", "MILEPOST_BEHIND_PROXY", Some("--behind-proxy");
    DRAIN_SECONDS: "drain_seconds", "MILEPOST_DRAIN_SECONDS", Some("--drain-seconds");
    TOKENS: "auth.tokens", "MILEPOST_TOKEN_HASHES", Some("--token-hash");
    INSECURE_NO_AUTH: "auth.insecure_no_auth", "MILEPOST_INSECURE_NO_AUTH", Some("--insecure-no-auth");
    HTTP_PROXY: "http.proxy", "MILEPOST_HTTP_PROXY", None;
    ENV_ALLOWED: "env.allowed", "MILEPOST_ENV_ALLOWED", Some("--allow-env");
    TLS_CERT: "tls.cert", "MILEPOST_TLS_CERT", Some("--tls-cert");
    TLS_KEY: "tls.key", "MILEPOST_TLS_KEY", Some("--tls-key");
    CONNECTIONS: "connections.max", "MILEPOST_CONNECTIONS", None;
    HEAD_SECONDS: "connections.head_seconds", "MILEPOST_HEAD_SECONDS", None;
    IDLE_SECONDS: "connections.idle_seconds", "MILEPOST_IDLE_SECONDS", None;
    BODY_SECONDS: "connections.body_seconds", "MILEPOST_BODY_SECONDS", None;
    WRITE_SECONDS: "connections.write_seconds", "MILEPOST_WRITE_SECONDS", None;
    STREAMS: "connections.streams", "MILEPOST_STREAMS", None;
    BODY_MIB: "connections.body_mib", "MILEPOST_BODY_MIB", None;
    SECRETS_KEY: "secrets.key", "MILEPOST_SECRETS_KEY", None;
    SECRETS_KEY_FILE: "secrets.key_file", "MILEPOST_SECRETS_KEY_FILE", None;
    SECRETS_FOLDER: "secrets.folder", "MILEPOST_SECRETS_FOLDER", None;
    SECRETS_ENV_PREFIX: "secrets.env_prefix", "MILEPOST_SECRETS_ENV_PREFIX", None;
    PUSH_SECRET: "push.signing_secret", "MILEPOST_PUSH_SECRET", None;
    PUSH_PER_HOST: "push.per_host", "MILEPOST_PUSH_PER_HOST", None;
    OUTBOX_MAX_TRIES: "outbox.max_tries", "MILEPOST_OUTBOX_MAX_TRIES", None;
    UNREADY_AFTER: "supervision.unready_after", "MILEPOST_UNREADY_AFTER", None;
    END_AFTER: "supervision.end_after", "MILEPOST_END_AFTER", None;
    RETENTION: "retention.completed_runs", "MILEPOST_RETENTION", Some("--retention");
    ARTIFACT_RETENTION: "retention.artifacts", "MILEPOST_ARTIFACT_RETENTION", Some("--artifact-retention");
    BLOB_GRACE: "retention.blob_grace", "MILEPOST_BLOB_GRACE", None;
    CACHE_TTL: "cache.ttl", "MILEPOST_CACHE_TTL", Some("--cache-ttl");
    CACHE_BYTES: "cache.bytes", "MILEPOST_CACHE_BYTES", Some("--cache-bytes");
    CACHE_REDIS_TTL: "cache.redis_ttl", "MILEPOST_CACHE_REDIS_TTL", None;
    CHAIN_DEPTH: "definitions.chain_depth", "MILEPOST_CHAIN_DEPTH", None;
    GC_GRACE: "definitions.gc_grace", "MILEPOST_GC_GRACE", None;
    TRACES_ENDPOINT: "traces.endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT", None;
    TRACES_HEADERS: "traces.headers", "OTEL_EXPORTER_OTLP_HEADERS", None;
    SERVICE_NAME: "traces.service_name", "OTEL_SERVICE_NAME", None;
    LOG_FORMAT: "log.format", "MILEPOST_LOG_FORMAT", Some("--log-format");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_documented() {
        let docs = include_str!("../../../../docs/operations.md");
        for setting in ALL {
            for name in [Some(setting.key), Some(setting.variable), setting.flag].into_iter().flatten() {
                assert!(docs.contains(&format!("`{name}")), "docs/operations.md says nothing of {name}");
            }
        }
    }
}
