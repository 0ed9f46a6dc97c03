//! `milepost serve`: a server that is kept.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use milepost_api::KnownToken;
use milepost_engine::secrets::AllowedVariables;

use crate::config::values::{KindRetention, Listen, MostBytes, RedisUrl, Retention};
use crate::config::{Layer, Layers, ServerConfig, environment, file, shown};
use crate::context::{Context, LimitFlags};
use crate::logging;
use crate::output::print_json;
use crate::server::{Access, Server, Signals, listen};

/// Serve the HTTP API, and run steps.
///
/// Settings come from a file (TOML), the environment and flags; each later one wins, setting by setting. The file is the
/// one that --config or MILEPOST_CONFIG names, else ./milepost.toml if it is there. Several servers may share one Postgres
/// database: start the command again, anywhere.
///
/// Without tokens (`milepost token`) it listens on loopback addresses only. SIGTERM, SIGINT and SIGHUP end it in good
/// order: it is no longer ready, requests under way end, steps under way are left to another server or to the next start.
/// A second signal ends it at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost serve
  milepost serve --listen 0.0.0.0:7400 --config /etc/milepost.toml
  MILEPOST_DB=postgres://localhost/milepost milepost serve --allow-shell
  milepost serve --print-config")]
pub(crate) struct Serve {
    /// The configuration file [env: MILEPOST_CONFIG] [default: ./milepost.toml, if it is there]
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// The address to listen on [env: MILEPOST_LISTEN] [default: 127.0.0.1:7400]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<Listen>,
    /// The folder for the SQLite database and server.json [env: MILEPOST_DATA] [default: ./.milepost]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Where files, and what is large, are kept: a folder, s3://bucket/prefix, gs://…, az://…, or `off` [env: MILEPOST_BLOBS]
    #[arg(long, value_name = "DIR|URL")]
    blobs: Option<String>,
    /// A Redis that spares reading large results of steps from the database: redis://…, rediss://…, or `off` [env: MILEPOST_REDIS]
    #[arg(long, value_name = "URL")]
    redis: Option<RedisUrl>,
    /// Steps carried out at once [env: MILEPOST_INLINE_CONCURRENCY] [default: 256]
    #[arg(long, value_name = "N")]
    concurrency: Option<NonZeroUsize>,
    /// Let `shell` steps run programs of this machine [env: MILEPOST_ALLOW_SHELL]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_shell: Option<bool>,
    /// Let `http` steps call loopback and private addresses [env: MILEPOST_ALLOW_PRIVATE_HTTP]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allow_private_http: Option<bool>,
    /// Let steps have this variable of the environment, or those that begin so (`APP_*`); may be repeated [env: MILEPOST_ENV_ALLOWED]
    #[arg(long, value_name = "NAME")]
    allow_env: Vec<AllowedVariables>,
    /// Let in whoever has the token of this hash, under this name; may be repeated [env: MILEPOST_TOKEN_HASHES]
    #[arg(long = "token-hash", value_name = "[NAME=]sha256:HASH")]
    token_hashes: Vec<KnownToken>,
    /// Let in everybody who reaches the address, from other machines, too [env: MILEPOST_INSECURE_NO_AUTH]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    insecure_no_auth: Option<bool>,
    /// How long runs are kept after their end, such as 30d; or `off` [env: MILEPOST_RETENTION] [default: 90d]
    #[arg(long, value_name = "SPAN")]
    retention: Option<Retention>,
    /// How long results of steps are kept that nobody takes, such as 7d; or `off` [env: MILEPOST_CACHE_TTL] [default: 30d]
    #[arg(long, value_name = "SPAN")]
    cache_ttl: Option<Retention>,
    /// Bytes of results that are kept at most, such as 10GB; or `off` [env: MILEPOST_CACHE_BYTES] [default: off]
    #[arg(long, value_name = "SIZE")]
    cache_bytes: Option<MostBytes>,
    /// How long artifacts of a kind are kept, such as checkpoint=30d; may be repeated [env: MILEPOST_ARTIFACT_RETENTION]
    #[arg(long, value_name = "KIND=SPAN")]
    artifact_retention: Vec<KindRetention>,
    /// The certificate of this server, with those between it and its root (PEM): it speaks HTTPS then [env: MILEPOST_TLS_CERT]
    #[arg(long, value_name = "PATH")]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM), for its owner alone to read [env: MILEPOST_TLS_KEY]
    #[arg(long, value_name = "PATH")]
    tls_key: Option<PathBuf>,
    /// A proxy stands in front and speaks TLS: do not warn of clear text [env: MILEPOST_BEHIND_PROXY]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    behind_proxy: Option<bool>,
    /// How long requests under way may take when the server ends [env: MILEPOST_DRAIN_SECONDS] [default: 10]
    #[arg(long, value_name = "N")]
    drain_seconds: Option<u64>,
    /// Print the settings, with where each came from, and end
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    limits: LimitFlags,
}

impl Serve {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        context.refuse_callers_flags("serve")?;
        let layers = self.layers(&context)?;
        let config = ServerConfig::new(&layers)?;
        if self.print_config {
            match context.is_json() {
                true => print_json(&config.as_json())?,
                false => crate::print_line(config.as_toml().trim_end()),
            }
            return Ok(ExitCode::SUCCESS);
        }
        logging::set_format(config.log_format.value);
        if let Some((path, layer)) = &layers.file {
            file::check_who_may_use(path, layer)?;
        }
        config.check_auth()?;
        let mut signals = Signals::new()?;
        let listener = listen::on(config.listen.value).await?;
        let server = tokio::select! {
            server = Server::open(&config, listener, &Access::Configured) => server?,
            // Nothing is under way yet.
            () = signals.next() => return Ok(ExitCode::SUCCESS),
        };
        announce(&server, &config, &context)?;
        server.run(&mut signals, || tracing::info!("asked to end: requests under way end, new ones are refused")).await
    }

    /// What the file, the environment and the flags say.
    fn layers(&self, context: &Context) -> anyhow::Result<Layers> {
        let variable = |name: &str| std::env::var(name).ok();
        let named = self
            .config
            .clone()
            .or_else(|| variable("MILEPOST_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from));
        Ok(Layers {
            file: file::read(named.as_deref())?,
            environment: environment::read(variable)?,
            flags: Layer {
                log_format: context.log_format,
                ..self.flags(context.db_flag(), context.limit_flags(&self.limits))
            },
        })
    }

    fn flags(&self, db: Option<&str>, limits: BTreeMap<String, u64>) -> Layer {
        Layer {
            listen: self.listen,
            db: db.map(ToOwned::to_owned),
            data: self.data.clone(),
            blobs: self.blobs.clone(),
            redis: self.redis.clone(),
            inline_concurrency: self.concurrency,
            allow_shell: self.allow_shell,
            allow_private_http: self.allow_private_http,
            env_allowed: self.allow_env.iter().cloned().reduce(AllowedVariables::and),
            drain_seconds: self.drain_seconds,
            tls_cert: self.tls_cert.clone(),
            tls_key: self.tls_key.clone(),
            behind_proxy: self.behind_proxy,
            tokens: Some(self.token_hashes.clone()).filter(|hashes| !hashes.is_empty()),
            insecure_no_auth: self.insecure_no_auth,
            retention: self.retention,
            cache_ttl: self.cache_ttl,
            cache_bytes: self.cache_bytes,
            artifact_retention: self.artifact_retention.iter().cloned().reduce(KindRetention::and),
            limits,
            ..Layer::default()
        }
    }
}

/// Says that the server answers: in the log for people, on standard output for programs.
fn announce(server: &Server, config: &ServerConfig, context: &Context) -> anyhow::Result<()> {
    if config.is_open() && !config.listen.value.is_loopback() {
        tracing::warn!(
            "NO AUTHENTICATION: whoever reaches {} can start runs{} (--insecure-no-auth)",
            config.listen.value,
            if config.allow_shell.value { " and run programs on this machine" } else { "" },
        );
    }
    if config.is_in_clear_text() {
        tracing::warn!(
            "CLEAR TEXT: whoever is between {} and its callers can read tokens, payloads and secrets; \
             set tls.cert and tls.key, or pass --behind-proxy if a proxy in front speaks TLS",
            config.listen.value,
        );
    }
    tracing::info!(
        address = server.url,
        store = shown(&config.db.value),
        node = %server.engine.node(),
        version = env!("CARGO_PKG_VERSION"),
        "ready"
    );
    match context.is_json() {
        true => print_json(&server.ready(config)),
        false => {
            crate::print_line(&format!("listening on {}", server.url));
            Ok(())
        }
    }
}
