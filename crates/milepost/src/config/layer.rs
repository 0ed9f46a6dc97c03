//! What one place says of the settings, and which of the places has the last word.

use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use milepost_api::KnownToken;
use milepost_engine::secrets::{AllowedVariables, Keyring};

use super::settings::Setting;
use super::values::{
    BlobGrace, ChainDepth, Grace, Headers, KindRetention, Lasting, Listen, LogFormat, MostBytes, ProxyUrl, PushSecrets,
    RedisUrl, Retention, masked_url,
};

/// What one place says; what it leaves out is left to the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layer {
    pub(crate) listen: Option<Listen>,
    pub(crate) db: Option<String>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) blobs: Option<String>,
    pub(crate) redis: Option<RedisUrl>,
    pub(crate) inline_concurrency: Option<NonZeroUsize>,
    pub(crate) allow_shell: Option<bool>,
    pub(crate) allow_private_http: Option<bool>,
    pub(crate) http_proxy: Option<ProxyUrl>,
    pub(crate) env_allowed: Option<AllowedVariables>,
    pub(crate) drain_seconds: Option<u64>,
    pub(crate) behind_proxy: Option<bool>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) connections: Option<NonZeroUsize>,
    pub(crate) head_seconds: Option<NonZeroU64>,
    pub(crate) idle_seconds: Option<NonZeroU64>,
    pub(crate) body_seconds: Option<NonZeroU64>,
    pub(crate) write_seconds: Option<NonZeroU64>,
    pub(crate) streams: Option<NonZeroUsize>,
    pub(crate) body_mib: Option<NonZeroUsize>,
    pub(crate) tokens: Option<Vec<KnownToken>>,
    pub(crate) insecure_no_auth: Option<bool>,
    pub(crate) secrets_key: Option<Keyring>,
    pub(crate) secrets_key_file: Option<PathBuf>,
    pub(crate) secrets_folder: Option<PathBuf>,
    pub(crate) secrets_env_prefix: Option<String>,
    pub(crate) push_secrets: Option<PushSecrets>,
    pub(crate) push_per_host: Option<NonZeroUsize>,
    pub(crate) outbox_max_tries: Option<NonZeroU32>,
    pub(crate) unready_after: Option<Lasting>,
    pub(crate) end_after: Option<Retention>,
    pub(crate) retention: Option<Retention>,
    pub(crate) cache_ttl: Option<Retention>,
    pub(crate) cache_bytes: Option<MostBytes>,
    pub(crate) cache_redis_ttl: Option<Lasting>,
    pub(crate) artifact_retention: Option<KindRetention>,
    pub(crate) blob_grace: Option<BlobGrace>,
    pub(crate) chain_depth: Option<ChainDepth>,
    pub(crate) gc_grace: Option<Grace>,
    pub(crate) traces_endpoint: Option<String>,
    pub(crate) traces_headers: Option<Headers>,
    pub(crate) service_name: Option<String>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) limits: BTreeMap<String, u64>,
}

impl Layer {
    /// Hashes of tokens are none: nobody can find the token of one.
    pub(crate) fn has_secrets(&self) -> bool {
        let is_masked = |url: &String| masked_url(url) != *url;
        let redis = self.redis.as_ref().and_then(|redis| redis.0.as_ref());
        let proxy = self.http_proxy.as_ref().and_then(|proxy| proxy.0.as_ref());
        self.secrets_key.is_some()
            || self.push_secrets.is_some()
            || self.traces_headers.as_ref().is_some_and(|headers| !headers.0.is_empty())
            || [self.db.as_ref(), redis, proxy, self.traces_endpoint.as_ref()].into_iter().flatten().any(is_masked)
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Default,
    File(PathBuf),
    Variable(&'static str),
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(path) => path.display().fmt(f),
            Source::Variable(name) | Source::Flag(name) => f.write_str(name),
        }
    }
}

/// A value, and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) from: Source,
}

impl<T> Sourced<T> {
    pub(crate) fn default(value: T) -> Sourced<T> {
        Sourced { value, from: Source::Default }
    }

    /// The same setting with another value, which follows from where it came from.
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Sourced<U> {
        Sourced { value: change(self.value), from: self.from }
    }
}

/// All places. Each later one wins, setting by setting: the file, the environment, the flags.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub(crate) file: Option<(PathBuf, Layer)>,
    pub(crate) environment: Layer,
    pub(crate) flags: Layer,
}

impl Layers {
    /// What the last place that says anything says.
    pub(crate) fn pick<T>(&self, setting: Setting, of: impl Fn(&Layer) -> Option<T>) -> Option<Sourced<T>> {
        let flag = || Some((of(&self.flags)?, Source::Flag(setting.flag.unwrap_or("a flag"))));
        let variable = || Some((of(&self.environment)?, Source::Variable(setting.variable)));
        let file = || self.file.as_ref().and_then(|(path, layer)| Some((of(layer)?, Source::File(path.clone()))));
        flag().or_else(variable).or_else(file).map(|(value, from)| Sourced { value, from })
    }

    /// Limits that somebody changed.
    pub(crate) fn limits(&self) -> BTreeMap<&str, Sourced<u64>> {
        let file = self.file.iter().flat_map(|(path, layer)| {
            layer.limits.iter().map(|(name, value)| (name, *value, Source::File(path.clone())))
        });
        let flags = self.flags.limits.iter().map(|(name, value)| (name, *value, Source::Flag("--limit")));
        file.chain(flags).map(|(name, value, from)| (name.as_str(), Sourced { value, from })).collect()
    }
}
