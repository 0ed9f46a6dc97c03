//! `--print-config`: the settings as they are in force, as TOML that could be a configuration file, each with where it
//! came from. Secrets are masked.

use std::fmt::Write as _;
use std::path::PathBuf;

use milepost_api::KnownToken;
use milepost_core::limits::Limits;
use serde_json::{Value as Json, json};
use toml::Value;

use super::values::{MASK, masked_url};
use super::{OFF, ServerConfig, Source, settings};
use crate::database::Database;

/// One line of what is shown. Without a value the setting is not set.
struct Line {
    key: String,
    value: Option<Value>,
    from: Source,
}

impl ServerConfig {
    /// A file that could be read again.
    pub(crate) fn as_toml(&self) -> String {
        let mut text = String::new();
        let mut table = "";
        let lines = self.lines();
        for line in &lines {
            let (of, name) = line.key.split_once('.').unwrap_or(("", &line.key));
            if of != table {
                table = of;
                let _ = writeln!(text, "\n[{table}]");
            }
            let _ = match &line.value {
                Some(value) => writeln!(text, "{name} = {value}  # {}", line.from),
                None => writeln!(text, "# {name} is not set"),
            };
        }
        text
    }

    /// The same for programs.
    pub(crate) fn as_json(&self) -> Json {
        let item = |line: &Line| json!({ "key": line.key, "value": line.value, "from": line.from.to_string() });
        json!({ "items": self.lines().iter().map(item).collect::<Vec<_>>() })
    }

    fn lines(&self) -> Vec<Line> {
        let mut lines: Vec<Line> = settings::ALL.iter().map(|setting| self.line(setting.key)).collect();
        let limits = Value::try_from(&self.limits).unwrap_or(Value::Boolean(false));
        lines.extend(Limits::TABLE.iter().map(|(name, ..)| Line {
            key: format!("limits.{name}"),
            value: limits.get(name).cloned(),
            from: self.limit_sources.get(*name).cloned().unwrap_or(Source::Default),
        }));
        lines
    }

    fn line(&self, key: &str) -> Line {
        let text = |text: String| Some(Value::String(text));
        let (value, from) = match key {
            "listen" => (text(self.listen.value.to_string()), &self.listen.from),
            "db" => (text(shown(&self.db.value)), &self.db.from),
            "data" => (text(self.data.value.display().to_string()), &self.data.from),
            "blobs" => (text(self.blobs.value.clone().unwrap_or_else(|| OFF.to_owned())), &self.blobs.from),
            "redis" => (text(self.redis.value.to_string()), &self.redis.from),
            "inline_concurrency" => (number(self.inline_concurrency.value), &self.inline_concurrency.from),
            "allow_shell" => (Some(self.allow_shell.value.into()), &self.allow_shell.from),
            "allow_private_http" => (Some(self.allow_private_http.value.into()), &self.allow_private_http.from),
            "http.proxy" => (text(self.http_proxy.value.to_string()), &self.http_proxy.from),
            "env.allowed" => (Some(self.allowed_variables()), &self.env_allowed.from),
            "drain_seconds" => (number(self.drain_seconds.value), &self.drain_seconds.from),
            "behind_proxy" => (Some(self.behind_proxy.value.into()), &self.behind_proxy.from),
            "tls.cert" => (path(self.tls_cert.value.as_ref()), &self.tls_cert.from),
            "tls.key" => (path(self.tls_key.value.as_ref()), &self.tls_key.from),
            "connections.max" => (number(self.connections.value), &self.connections.from),
            "connections.head_seconds" => (number(self.head_seconds.value), &self.head_seconds.from),
            "connections.idle_seconds" => (number(self.idle_seconds.value), &self.idle_seconds.from),
            "connections.body_seconds" => (number(self.body_seconds.value), &self.body_seconds.from),
            "connections.write_seconds" => (number(self.write_seconds.value), &self.write_seconds.from),
            "connections.streams" => (number(self.streams.value), &self.streams.from),
            "connections.body_mib" => (number(self.body_mib.value), &self.body_mib.from),
            "auth.tokens" => (Some(self.masked_tokens()), &self.tokens.from),
            "auth.insecure_no_auth" => (Some(self.insecure_no_auth.value.into()), &self.insecure_no_auth.from),
            "secrets.key" => {
                (Some(MASK).filter(|_| !self.secrets_key.value.is_empty()).map(Value::from), &self.secrets_key.from)
            }
            "secrets.key_file" => {
                (text(self.secrets_key_file.value.display().to_string()), &self.secrets_key_file.from)
            }
            "secrets.folder" => (
                self.secrets_folder.value.as_ref().and_then(|folder| text(folder.display().to_string())),
                &self.secrets_folder.from,
            ),
            "secrets.env_prefix" => (text(self.secrets_env_prefix.value.clone()), &self.secrets_env_prefix.from),
            "push.signing_secret" => {
                (Some(MASK).filter(|_| !self.push_secrets.value.0.is_empty()).map(Value::from), &self.push_secrets.from)
            }
            "push.per_host" => (number(self.push_per_host.value), &self.push_per_host.from),
            "outbox.max_tries" => (number(self.outbox_max_tries.value), &self.outbox_max_tries.from),
            "supervision.unready_after" => (text(self.unready_after.value.to_string()), &self.unready_after.from),
            "supervision.end_after" => (text(self.end_after.value.to_string()), &self.end_after.from),
            "retention.completed_runs" => (text(self.retention.value.to_string()), &self.retention.from),
            "cache.ttl" => (text(self.cache_ttl.value.to_string()), &self.cache_ttl.from),
            "cache.bytes" => (text(self.cache_bytes.value.to_string()), &self.cache_bytes.from),
            "cache.redis_ttl" => (text(self.cache_redis_ttl.value.to_string()), &self.cache_redis_ttl.from),
            "retention.artifacts" => (Some(self.kept_kinds()), &self.artifact_retention.from),
            "retention.blob_grace" => (text(self.blob_grace.value.to_string()), &self.blob_grace.from),
            "definitions.chain_depth" => (number(self.chain_depth.value.0), &self.chain_depth.from),
            "definitions.gc_grace" => (text(self.gc_grace.value.to_string()), &self.gc_grace.from),
            "traces.endpoint" => {
                (self.traces_endpoint.value.as_deref().map(masked_url).and_then(text), &self.traces_endpoint.from)
            }
            "traces.headers" => (Some(self.masked_headers()), &self.traces_headers.from),
            "traces.service_name" => (text(self.service_name.value.clone()), &self.service_name.from),
            "log.format" => (text(self.log_format.value.to_string()), &self.log_format.from),
            _ => (None, &Source::Default),
        };
        Line { key: key.to_owned(), value, from: from.clone() }
    }

    fn masked_tokens(&self) -> Value {
        let name = |token: &KnownToken| token.name.as_ref().map(|name| format!("{name}=")).unwrap_or_default();
        self.tokens.value.iter().map(|token| format!("{}sha256:{MASK}", name(token))).collect::<Vec<_>>().into()
    }

    fn allowed_variables(&self) -> Value {
        self.env_allowed.value.iter().map(str::to_owned).collect::<Vec<_>>().into()
    }

    fn kept_kinds(&self) -> Value {
        let kinds = self.artifact_retention.value.0.iter();
        Value::Table(kinds.map(|(kind, keep)| (kind.clone(), keep.to_string().into())).collect())
    }

    /// What is sent to a collector is mostly a key.
    fn masked_headers(&self) -> Value {
        let masked = self.traces_headers.value.0.keys().map(|name| (name.clone(), MASK.into()));
        Value::Table(masked.collect())
    }
}

fn path(value: Option<&PathBuf>) -> Option<Value> {
    value.map(|path| path.display().to_string().into())
}

fn number(value: impl TryInto<i64>) -> Option<Value> {
    value.try_into().ok().map(Value::Integer)
}

/// A database as it may be seen by everybody.
pub(crate) fn shown(database: &Database) -> String {
    match database {
        Database::Sqlite(path) => path.display().to_string(),
        Database::Postgres(url) => masked_url(url),
    }
}
