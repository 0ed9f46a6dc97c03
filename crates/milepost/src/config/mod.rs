//! How a server is set up: a TOML file, the environment and flags, each later one with the last word, setting by setting.
//!
//! ```text
//!   milepost.toml ─► file.rs ─────────┐
//!   MILEPOST_…    ─► environment.rs ──┼─► layers ─► ServerConfig ─► engine, API, logs
//!   --flags       ─► the verb ────────┘                        └─► print.rs (--print-config)
//! ```
//!
//! **Invariant:** every value knows where it came from, and no secret is ever shown.

pub(crate) mod environment;
pub(crate) mod file;
mod layer;
pub(crate) mod places;
mod print;
pub(crate) mod settings;
mod size;
mod span;
pub(crate) mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use milepost_api::{KnownToken, Tls};
use milepost_core::limits::Limits;
use milepost_engine::secrets::{AllowedVariables, Keyring, SecretsConfig};
use milepost_engine::telemetry::{BadOtlpConfig, OtlpConfig};
use milepost_engine::{OutboxConfig, PushConfig};

use crate::database::Database;
use crate::keyfile;
use crate::output::error::Refusal;
pub(crate) use layer::{Layer, Layers, Source, Sourced};
pub(crate) use print::shown;
use values::{
    BlobGrace, ChainDepth, Grace, Headers, KindRetention, Lasting, Listen, LogFormat, MostBytes, ProxyUrl, PushSecrets,
    RedisUrl, Retention,
};

/// Where `dev` and `serve` keep what they keep.
const DATA: &str = "./.milepost";
/// The database in that folder.
const DATABASE: &str = "milepost.db";
/// The folder for blobs beside it, and the word for none.
const BLOBS: &str = "blobs";
const OFF: &str = "off";
const INLINE_CONCURRENCY: usize = 256;
const DRAIN_SECONDS: u64 = 10;
/// Longer than this nobody waits for a server to stop.
const LONGEST_DRAIN_SECONDS: u64 = 3600;
/// Longer than this nobody waits for bytes.
const LONGEST_WAIT_SECONDS: u64 = 86_400;
const SERVICE_NAME: &str = "milepost";

/// The settings of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerConfig {
    pub(crate) listen: Sourced<Listen>,
    pub(crate) db: Sourced<Database>,
    pub(crate) data: Sourced<PathBuf>,
    pub(crate) inline_concurrency: Sourced<usize>,
    pub(crate) allow_shell: Sourced<bool>,
    pub(crate) allow_private_http: Sourced<bool>,
    pub(crate) http_proxy: Sourced<ProxyUrl>,
    /// Variables of the environment that steps may be given.
    pub(crate) env_allowed: Sourced<AllowedVariables>,
    pub(crate) drain_seconds: Sourced<u64>,
    pub(crate) behind_proxy: Sourced<bool>,
    pub(crate) tls_cert: Sourced<Option<PathBuf>>,
    pub(crate) tls_key: Sourced<Option<PathBuf>>,
    pub(crate) connections: Sourced<usize>,
    pub(crate) head_seconds: Sourced<u64>,
    pub(crate) idle_seconds: Sourced<u64>,
    pub(crate) body_seconds: Sourced<u64>,
    pub(crate) write_seconds: Sourced<u64>,
    pub(crate) streams: Sourced<usize>,
    pub(crate) body_mib: Sourced<usize>,
    pub(crate) tokens: Sourced<Vec<KnownToken>>,
    pub(crate) insecure_no_auth: Sourced<bool>,
    /// An address or a folder. By default beside an SQLite file; on Postgres nowhere.
    pub(crate) blobs: Sourced<Option<String>>,
    pub(crate) redis: Sourced<RedisUrl>,
    pub(crate) secrets_key: Sourced<Keyring>,
    /// By default beside an SQLite file, else in the data folder, if it is there.
    pub(crate) secrets_key_file: Sourced<PathBuf>,
    pub(crate) secrets_folder: Sourced<Option<PathBuf>>,
    pub(crate) secrets_env_prefix: Sourced<String>,
    pub(crate) push_secrets: Sourced<PushSecrets>,
    pub(crate) push_per_host: Sourced<usize>,
    pub(crate) outbox_max_tries: Sourced<u32>,
    pub(crate) unready_after: Sourced<Lasting>,
    pub(crate) end_after: Sourced<Retention>,
    pub(crate) retention: Sourced<Retention>,
    pub(crate) cache_ttl: Sourced<Retention>,
    pub(crate) cache_bytes: Sourced<MostBytes>,
    pub(crate) cache_redis_ttl: Sourced<Lasting>,
    pub(crate) artifact_retention: Sourced<KindRetention>,
    pub(crate) blob_grace: Sourced<BlobGrace>,
    pub(crate) chain_depth: Sourced<ChainDepth>,
    pub(crate) gc_grace: Sourced<Grace>,
    pub(crate) traces_endpoint: Sourced<Option<String>>,
    pub(crate) traces_headers: Sourced<Headers>,
    pub(crate) service_name: Sourced<String>,
    pub(crate) log_format: Sourced<LogFormat>,
    /// What the settings for traces come to.
    pub(crate) traces: Option<OtlpConfig>,
    pub(crate) limits: Limits,
    /// Those that somebody changed.
    limit_sources: BTreeMap<String, Source>,
}

impl ServerConfig {
    /// What all places together say.
    ///
    /// # Errors
    /// A value that can be written, but not used.
    pub(crate) fn new(layers: &Layers) -> Result<ServerConfig, Refusal> {
        let data = layers.pick(settings::DATA, |layer| layer.data.clone());
        let data = data.unwrap_or_else(|| Sourced::default(DATA.into()));
        let (limits, limit_sources) = limits(layers)?;
        let db = match layers.pick(settings::DB, |layer| layer.db.clone()) {
            Some(named) => named.map(|text| Database::parse(&text)),
            // It goes with the folder, wherever that was named.
            None => data.clone().map(|folder| Database::Sqlite(folder.join(DATABASE))),
        };
        let beside = match &db.value {
            Database::Sqlite(path) => Some(path.parent().unwrap_or(Path::new("")).to_owned()),
            Database::Postgres(_) => None,
        };
        let http = milepost_api::Settings::default();
        let config = ServerConfig {
            listen: or(layers.pick(settings::LISTEN, |layer| layer.listen), Listen::DEFAULT),
            db,
            blobs: match layers.pick(settings::BLOBS, |layer| layer.blobs.clone()) {
                Some(named) => named.map(|text| Some(text).filter(|text| text != OFF)),
                None => Sourced::default(beside.as_ref().map(|folder| folder.join(BLOBS).display().to_string())),
            },
            redis: or(layers.pick(settings::REDIS, |layer| layer.redis.clone()), RedisUrl::OFF),
            secrets_key: or(layers.pick(settings::SECRETS_KEY, |layer| layer.secrets_key.clone()), Keyring::default()),
            secrets_key_file: or(
                layers.pick(settings::SECRETS_KEY_FILE, |layer| layer.secrets_key_file.clone()),
                beside.as_ref().unwrap_or(&data.value).join(keyfile::NAME),
            ),
            secrets_folder: layers
                .pick(settings::SECRETS_FOLDER, |layer| layer.secrets_folder.clone())
                .map_or(Sourced::default(None), |given| given.map(Some)),
            secrets_env_prefix: or(
                layers.pick(settings::SECRETS_ENV_PREFIX, |layer| layer.secrets_env_prefix.clone()),
                SecretsConfig::ENV_PREFIX.to_owned(),
            ),
            data,
            inline_concurrency: layers
                .pick(settings::INLINE_CONCURRENCY, |layer| layer.inline_concurrency)
                .map_or(Sourced::default(INLINE_CONCURRENCY), |given| given.map(Into::into)),
            allow_shell: or(layers.pick(settings::ALLOW_SHELL, |layer| layer.allow_shell), false),
            allow_private_http: or(layers.pick(settings::ALLOW_PRIVATE_HTTP, |layer| layer.allow_private_http), false),
            http_proxy: or(layers.pick(settings::HTTP_PROXY, |layer| layer.http_proxy.clone()), ProxyUrl::OFF),
            env_allowed: or(
                layers.pick(settings::ENV_ALLOWED, |layer| layer.env_allowed.clone()),
                AllowedVariables::default(),
            ),
            behind_proxy: or(layers.pick(settings::BEHIND_PROXY, |layer| layer.behind_proxy), false),
            tls_cert: layers
                .pick(settings::TLS_CERT, |layer| layer.tls_cert.clone())
                .map_or(Sourced::default(None), |given| given.map(Some)),
            tls_key: layers
                .pick(settings::TLS_KEY, |layer| layer.tls_key.clone())
                .map_or(Sourced::default(None), |given| given.map(Some)),
            connections: count(layers.pick(settings::CONNECTIONS, |layer| layer.connections), http.connections),
            head_seconds: count(layers.pick(settings::HEAD_SECONDS, |layer| layer.head_seconds), http.header_ms / 1000),
            idle_seconds: count(layers.pick(settings::IDLE_SECONDS, |layer| layer.idle_seconds), http.idle_ms / 1000),
            body_seconds: count(layers.pick(settings::BODY_SECONDS, |layer| layer.body_seconds), http.body_ms / 1000),
            write_seconds: count(
                layers.pick(settings::WRITE_SECONDS, |layer| layer.write_seconds),
                http.write_ms / 1000,
            ),
            streams: count(layers.pick(settings::STREAMS, |layer| layer.streams), http.streams),
            body_mib: count(layers.pick(settings::BODY_MIB, |layer| layer.body_mib), http.body_bytes >> 20),
            drain_seconds: or(layers.pick(settings::DRAIN_SECONDS, |layer| layer.drain_seconds), DRAIN_SECONDS),
            tokens: or(layers.pick(settings::TOKENS, |layer| layer.tokens.clone()), Vec::new()),
            insecure_no_auth: or(layers.pick(settings::INSECURE_NO_AUTH, |layer| layer.insecure_no_auth), false),
            push_secrets: or(
                layers.pick(settings::PUSH_SECRET, |layer| layer.push_secrets.clone()),
                PushSecrets::default(),
            ),
            push_per_host: layers
                .pick(settings::PUSH_PER_HOST, |layer| layer.push_per_host)
                .map_or_else(|| Sourced::default(PushConfig::default().per_host), |given| given.map(Into::into)),
            outbox_max_tries: layers
                .pick(settings::OUTBOX_MAX_TRIES, |layer| layer.outbox_max_tries)
                .map_or_else(|| Sourced::default(OutboxConfig::default().max_tries), |given| given.map(Into::into)),
            unready_after: or(
                layers.pick(settings::UNREADY_AFTER, |layer| layer.unready_after),
                Lasting::UNREADY_AFTER,
            ),
            end_after: or(layers.pick(settings::END_AFTER, |layer| layer.end_after), Retention::END_AFTER),
            retention: or(layers.pick(settings::RETENTION, |layer| layer.retention), Retention::DEFAULT),
            cache_ttl: or(layers.pick(settings::CACHE_TTL, |layer| layer.cache_ttl), Retention::OF_RESULTS),
            cache_bytes: or(layers.pick(settings::CACHE_BYTES, |layer| layer.cache_bytes), MostBytes::OFF),
            cache_redis_ttl: or(
                layers.pick(settings::CACHE_REDIS_TTL, |layer| layer.cache_redis_ttl),
                Lasting::IN_REDIS,
            ),
            artifact_retention: or(
                layers.pick(settings::ARTIFACT_RETENTION, |layer| layer.artifact_retention.clone()),
                KindRetention::default(),
            ),
            blob_grace: or(layers.pick(settings::BLOB_GRACE, |layer| layer.blob_grace), BlobGrace::DEFAULT),
            chain_depth: or(layers.pick(settings::CHAIN_DEPTH, |layer| layer.chain_depth), ChainDepth::DEFAULT),
            gc_grace: or(layers.pick(settings::GC_GRACE, |layer| layer.gc_grace), Grace::DEFAULT),
            traces_endpoint: layers
                .pick(settings::TRACES_ENDPOINT, |layer| layer.traces_endpoint.clone())
                .map_or(Sourced::default(None), |given| given.map(Some)),
            traces_headers: or(
                layers.pick(settings::TRACES_HEADERS, |layer| layer.traces_headers.clone()),
                Headers::default(),
            ),
            service_name: or(
                layers.pick(settings::SERVICE_NAME, |layer| layer.service_name.clone()),
                SERVICE_NAME.to_owned(),
            ),
            log_format: or(layers.pick(settings::LOG_FORMAT, |layer| layer.log_format), LogFormat::Text),
            traces: None,
            limits,
            limit_sources,
        };
        let traces = config.traces()?;
        ServerConfig { traces, ..config }.checked()
    }

    fn traces(&self) -> Result<Option<OtlpConfig>, Refusal> {
        let Some(endpoint) = &self.traces_endpoint.value else { return Ok(None) };
        let bad = |from: &Source, error: BadOtlpConfig| Refusal::new("bad_config", format!("{from}: {error}"));
        let collector = OtlpConfig::new(endpoint).map_err(|error| bad(&self.traces_endpoint.from, error))?;
        let mut collector = collector.service_name(&self.service_name.value);
        for (name, value) in &self.traces_headers.value.0 {
            collector = collector.header(name, value).map_err(|error| bad(&self.traces_headers.from, error))?;
        }
        Ok(Some(collector))
    }

    fn checked(self) -> Result<ServerConfig, Refusal> {
        let Sourced { value, from } = &self.drain_seconds;
        if *value > LONGEST_DRAIN_SECONDS {
            let message =
                format!("{from}: {value} seconds are too long to stop; at most {LONGEST_DRAIN_SECONDS} are allowed");
            return Err(Refusal::new("bad_config", message));
        }
        let (unready_after, end_after) = (self.unready_after.value, self.end_after.value);
        if end_after.0.is_some_and(|end_after| end_after < unready_after.0) {
            let from =
                if self.end_after.from == Source::Default { &self.unready_after.from } else { &self.end_after.from };
            let message = format!(
                "{from}: a server would end after {end_after} of silence before it is not ready after {unready_after}; \
                 make supervision.end_after at least as long as supervision.unready_after"
            );
            return Err(Refusal::new("bad_config", message));
        }
        let seconds = [&self.head_seconds, &self.idle_seconds, &self.body_seconds, &self.write_seconds];
        if let Some(Sourced { value, from }) = seconds.into_iter().find(|seconds| seconds.value > LONGEST_WAIT_SECONDS)
        {
            let message =
                format!("{from}: {value} seconds are too long to wait; at most {LONGEST_WAIT_SECONDS} are allowed");
            return Err(Refusal::new("bad_config", message));
        }
        Ok(self)
    }

    /// The certificate of the server, if it has one.
    ///
    /// # Errors
    /// There is half of the pair, or it cannot be used.
    pub(crate) fn tls(&self) -> Result<Option<Tls>, Refusal> {
        match (&self.tls_cert.value, &self.tls_key.value) {
            (None, None) => Ok(None),
            (Some(cert), Some(key)) => {
                Tls::open(cert, key).map(Some).map_err(|error| Refusal::new("bad_tls", error.to_string()))
            }
            _ => {
                let message = "there is only one of tls.cert and tls.key; TLS needs both, name the other";
                Err(Refusal::new("bad_config", message.to_owned()))
            }
        }
    }

    /// What is sent to it can be read on its way.
    pub(crate) fn is_in_clear_text(&self) -> bool {
        self.tls_cert.value.is_none() && !self.listen.value.is_loopback() && !self.behind_proxy.value
    }

    /// For whoever runs documents of his own on his own machine: steps may have harmless variables, too.
    pub(crate) fn with_harmless_variables(mut self) -> ServerConfig {
        self.env_allowed = self.env_allowed.map(|allowed| AllowedVariables::harmless().and(allowed));
        self
    }

    /// Everybody who reaches the address may do everything.
    pub(crate) fn is_open(&self) -> bool {
        self.tokens.value.is_empty()
    }

    /// Without tokens, a server is for this machine alone unless its keeper says otherwise by name.
    ///
    /// # Errors
    /// Others reach the address, and nothing keeps them out.
    pub(crate) fn check_auth(&self) -> Result<(), Refusal> {
        let listen = self.listen.value;
        if !self.is_open() || listen.is_loopback() || self.insecure_no_auth.value {
            return Ok(());
        }
        let message = format!(
            "{listen} can be reached from other machines, and no tokens are set: anybody could start runs; \
             make a token with `milepost token` and put its hash into auth.tokens, or listen on 127.0.0.1, \
             or pass --insecure-no-auth if something else keeps others out"
        );
        Err(Refusal::new("no_auth", message))
    }
}

/// A number that is not 0.
fn count<N: Into<T>, T>(given: Option<Sourced<N>>, default: T) -> Sourced<T> {
    given.map_or_else(|| Sourced::default(default), |given| given.map(Into::into))
}

fn or<T>(given: Option<Sourced<T>>, default: T) -> Sourced<T> {
    given.unwrap_or_else(|| Sourced::default(default))
}

fn limits(layers: &Layers) -> Result<(Limits, BTreeMap<String, Source>), Refusal> {
    let mut limits = Limits::default();
    let mut sources = BTreeMap::new();
    for (name, Sourced { value, from }) in layers.limits() {
        limits.set(name, value).map_err(|error| Refusal::new("unknown_limit", error.to_string()))?;
        sources.insert(name.to_owned(), from);
    }
    Ok((limits, sources))
}

#[cfg(test)]
mod tests;
