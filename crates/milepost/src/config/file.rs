//! The configuration file. What is wrong with it is told with its line and with the keys that are known.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use milepost_api::KnownToken;
use milepost_core::limits::Limits;
use milepost_engine::secrets::{AllowedVariables, Keyring};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::layer::Layer;
use super::values::{
    BlobGrace, ChainDepth, Grace, Headers, KindRetention, Lasting, Listen, LogFormat, MostBytes, ProxyUrl, PushSecrets,
    RedisUrl, Retention,
};
use crate::keyfile;
use crate::output::error::Refusal;

/// The file that is read when none is named, if it is there.
pub(crate) const DEFAULT: &str = "milepost.toml";

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    #[serde(deserialize_with = "text")]
    listen: Option<Listen>,
    db: Option<String>,
    data: Option<PathBuf>,
    blobs: Option<String>,
    #[serde(deserialize_with = "text")]
    redis: Option<RedisUrl>,
    inline_concurrency: Option<NonZeroUsize>,
    allow_shell: Option<bool>,
    allow_private_http: Option<bool>,
    behind_proxy: Option<bool>,
    drain_seconds: Option<u64>,
    auth: Auth,
    tls: Tls,
    connections: Connections,
    http: Http,
    env: Env,
    secrets: Secrets,
    push: Push,
    outbox: Outbox,
    supervision: Supervision,
    retention: Kept,
    cache: Cache,
    definitions: Definitions,
    traces: Traces,
    log: Log,
    /// Read for its errors; which of them were written is seen in the table.
    limits: Limits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Auth {
    tokens: Option<Vec<Hash>>,
    insecure_no_auth: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Http {
    #[serde(deserialize_with = "text")]
    proxy: Option<ProxyUrl>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Env {
    #[serde(deserialize_with = "names")]
    allowed: Option<AllowedVariables>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Tls {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Connections {
    max: Option<NonZeroUsize>,
    head_seconds: Option<NonZeroU64>,
    idle_seconds: Option<NonZeroU64>,
    body_seconds: Option<NonZeroU64>,
    write_seconds: Option<NonZeroU64>,
    streams: Option<NonZeroUsize>,
    body_mib: Option<NonZeroUsize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Secrets {
    #[serde(deserialize_with = "text")]
    key: Option<Keyring>,
    key_file: Option<PathBuf>,
    folder: Option<PathBuf>,
    env_prefix: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Push {
    #[serde(deserialize_with = "text")]
    signing_secret: Option<PushSecrets>,
    per_host: Option<NonZeroUsize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Outbox {
    max_tries: Option<NonZeroU32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Supervision {
    #[serde(deserialize_with = "text")]
    unready_after: Option<Lasting>,
    #[serde(deserialize_with = "text")]
    end_after: Option<Retention>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Kept {
    #[serde(deserialize_with = "text")]
    completed_runs: Option<Retention>,
    /// By kind.
    artifacts: Option<KindRetention>,
    #[serde(deserialize_with = "text")]
    blob_grace: Option<BlobGrace>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Cache {
    #[serde(deserialize_with = "text")]
    ttl: Option<Retention>,
    #[serde(deserialize_with = "text")]
    bytes: Option<MostBytes>,
    #[serde(deserialize_with = "text")]
    redis_ttl: Option<Lasting>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Definitions {
    chain_depth: Option<ChainDepth>,
    #[serde(deserialize_with = "text")]
    gc_grace: Option<Grace>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Traces {
    endpoint: Option<String>,
    headers: Option<BTreeMap<String, String>>,
    service_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Log {
    #[serde(deserialize_with = "text")]
    format: Option<LogFormat>,
}

#[derive(Debug)]
struct Hash(KnownToken);

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
        String::deserialize(from)?.parse().map(Hash).map_err(D::Error::custom)
    }
}

/// A value that is written as text.
fn text<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(from: D) -> Result<Option<T>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(D::Error::custom)
}

/// A list of names of variables.
fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Option<AllowedVariables>, D::Error> {
    Vec::<String>::deserialize(from)?.join(",").parse().map(Some).map_err(D::Error::custom)
}

/// Reads the file that is named, or the one in this folder if there is one.
pub(crate) fn read(named: Option<&Path>) -> Result<Option<(PathBuf, Layer)>, Refusal> {
    let path = named.unwrap_or(Path::new(DEFAULT));
    if named.is_none() && !path.exists() {
        return Ok(None);
    }
    let shown = path.display();
    let source = std::fs::read_to_string(path).map_err(|error| {
        Refusal::new("bad_config", format!("the configuration {shown} cannot be read: {error}; check its path"))
    })?;
    let layer =
        parse(&source).map_err(|error| Refusal::new("bad_config", format!("{shown}{}", in_words(&source, &error))))?;
    Ok(Some((path.to_owned(), layer)))
}

/// Whoever writes the file decides what the server does, and whoever reads it has the secrets in it.
///
/// # Errors
/// Others may do what they should not.
pub(crate) fn check_who_may_use(path: &Path, layer: &Layer) -> Result<(), Refusal> {
    let shown = path.display();
    let bad = |why: String| Refusal::new("bad_config", format!("the configuration {shown} {why}"));
    if layer.has_secrets() {
        return keyfile::check_who_may_use(path).map_err(bad);
    }
    let mode = std::fs::metadata(path).map_or(0, |file| file.mode());
    match mode & 0o002 {
        0 => Ok(()),
        _ => Err(bad(format!("may be written by every user of this machine; chmod 644 {shown}"))),
    }
}

fn parse(source: &str) -> Result<Layer, toml::de::Error> {
    let file: File = toml::from_str(source)?;
    let written: toml::Table = toml::from_str(source)?;
    Ok(Layer {
        listen: file.listen,
        db: file.db,
        data: file.data,
        blobs: file.blobs,
        redis: file.redis,
        inline_concurrency: file.inline_concurrency,
        allow_shell: file.allow_shell,
        allow_private_http: file.allow_private_http,
        http_proxy: file.http.proxy,
        env_allowed: file.env.allowed,
        drain_seconds: file.drain_seconds,
        behind_proxy: file.behind_proxy,
        tls_cert: file.tls.cert,
        tls_key: file.tls.key,
        connections: file.connections.max,
        head_seconds: file.connections.head_seconds,
        idle_seconds: file.connections.idle_seconds,
        body_seconds: file.connections.body_seconds,
        write_seconds: file.connections.write_seconds,
        streams: file.connections.streams,
        body_mib: file.connections.body_mib,
        tokens: file.auth.tokens.map(|hashes| hashes.into_iter().map(|hash| hash.0).collect()),
        insecure_no_auth: file.auth.insecure_no_auth,
        secrets_key: file.secrets.key,
        secrets_key_file: file.secrets.key_file,
        secrets_folder: file.secrets.folder,
        secrets_env_prefix: file.secrets.env_prefix,
        push_secrets: file.push.signing_secret,
        push_per_host: file.push.per_host,
        outbox_max_tries: file.outbox.max_tries,
        unready_after: file.supervision.unready_after,
        end_after: file.supervision.end_after,
        retention: file.retention.completed_runs,
        cache_ttl: file.cache.ttl,
        cache_bytes: file.cache.bytes,
        cache_redis_ttl: file.cache.redis_ttl,
        artifact_retention: file.retention.artifacts,
        blob_grace: file.retention.blob_grace,
        chain_depth: file.definitions.chain_depth,
        gc_grace: file.definitions.gc_grace,
        traces_endpoint: file.traces.endpoint,
        traces_headers: file.traces.headers.map(Headers),
        service_name: file.traces.service_name,
        log_format: file.log.format,
        limits: limits(&written),
    })
}

/// The limits that the file names. Their names and values were checked before.
fn limits(written: &toml::Table) -> BTreeMap<String, u64> {
    let table = written.get("limits").and_then(toml::Value::as_table).into_iter().flatten();
    table.filter_map(|(name, value)| Some((name.clone(), u64::try_from(value.as_integer()?).ok()?))).collect()
}

/// `:3:1: what is wrong`, on one line.
fn in_words(source: &str, error: &toml::de::Error) -> String {
    let place = error.span().map(|span| {
        let before = source.get(..span.start).unwrap_or(source);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let (line, column) = (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1);
        format!(":{line}:{column}")
    });
    let message = without_value(&error.message().replace('\n', ", "));
    let message = match message.strip_prefix("unknown field") {
        Some(rest) => format!("unknown key{}", rest.replacen(", expected", "; known here:", 1)),
        None => message,
    };
    format!("{}: {message}", place.unwrap_or_default())
}

/// A value may be a secret: of texts only their type is told, and where they stand.
fn without_value(message: &str) -> String {
    let quoted = message.split_once("invalid type: string \"").and_then(|(_, rest)| rest.rsplit_once("\", expected"));
    match quoted {
        Some((_, expected)) => format!("invalid type: string, expected{expected}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use milepost_api::TokenHash;

    use super::*;

    fn wrong(source: &str) -> String {
        in_words(source, &parse(source).unwrap_err())
    }

    #[test]
    fn all_settings_can_be_written() {
        let hash = TokenHash::of("secret");
        let named = KnownToken { name: Some("ci".to_owned()), hash };
        let layer = parse(&format!(
            "listen = '0.0.0.0:80'\ndb = 'a.db'\ndata = 'd'\nblobs = 's3://b'\nredis = 'redis://h'\ninline_concurrency = 3\nallow_shell = true\n\
             allow_private_http = false\ndrain_seconds = 5\nbehind_proxy = true\n[tls]\ncert = 'c'\nkey = 'k'\n[connections]\nmax = 100\nhead_seconds = 1\nidle_seconds = 2\nbody_seconds = 3\nwrite_seconds = 4\nstreams = 5\nbody_mib = 6\n[auth]\ntokens = ['{hash}', 'ci={hash}']\ninsecure_no_auth = true\n\
             [http]\nproxy = 'http://p:3128'\n[env]\nallowed = ['REGION', 'APP_*']\n[secrets]\nkey = '{}'\nkey_file = 'k'\nfolder = '/run/secrets'\nenv_prefix = ''\n\
             [retention]\ncompleted_runs = '30d'\nblob_grace = '2d'\nartifacts = {{ checkpoint = '30d', replay = '7d' }}\n[cache]\nttl = 'off'\nbytes = '10GB'\nredis_ttl = '5m'\n[supervision]\nunready_after = '5s'\nend_after = 'off'\n[definitions]\nchain_depth = 20\ngc_grace = 'never'\n[traces]\nendpoint = 'http://c:4318'\nheaders = {{ a = 'b' }}\n\
             service_name = 's'\n[log]\nformat = 'json'\n[limits]\nsteps = 10\n",
            "0a".repeat(32)
        ))
        .unwrap();
        assert_eq!(layer.listen.unwrap().to_string(), "0.0.0.0:80");
        assert_eq!((layer.tokens, layer.blobs.as_deref()), (Some(vec![hash.into(), named]), Some("s3://b")));
        assert_eq!(layer.env_allowed.unwrap().to_string(), "REGION,APP_*");
        assert_eq!(layer.http_proxy.unwrap().to_string(), "http://p:3128");
        let tls = (layer.behind_proxy, layer.tls_cert, layer.tls_key);
        assert_eq!(tls, (Some(true), Some("c".into()), Some("k".into())));
        let seconds = [layer.head_seconds, layer.idle_seconds, layer.body_seconds, layer.write_seconds];
        assert_eq!(seconds.map(|seconds| seconds.unwrap().get()), [1, 2, 3, 4]);
        let counts = [layer.connections, layer.streams, layer.body_mib];
        assert_eq!(counts.map(|count| count.unwrap().get()), [100, 5, 6]);
        assert_eq!(layer.retention.unwrap().to_string(), "30d");
        assert_eq!((layer.cache_ttl.unwrap().0, layer.cache_bytes.unwrap().0), (None, Some(10_000_000_000)));
        assert_eq!((layer.redis.unwrap().0.as_deref(), layer.cache_redis_ttl.unwrap().0), (Some("redis://h"), 300));
        assert_eq!((layer.unready_after.unwrap().0, layer.end_after.unwrap().0), (5, None));
        let kinds = layer.artifact_retention.unwrap();
        assert_eq!((kinds.to_string().as_str(), layer.blob_grace.unwrap().0), ("checkpoint=30d,replay=7d", 172_800));
        assert_eq!((layer.chain_depth.unwrap().0, layer.gc_grace.unwrap().0), (20, None));
        assert!(layer.secrets_key.is_some_and(|keys| !keys.is_empty()));
        assert_eq!(layer.secrets_env_prefix.as_deref(), Some(""));
        assert_eq!(layer.traces_headers.unwrap().0["a"], "b");
        assert_eq!(layer.limits.into_iter().collect::<Vec<_>>(), [("steps".to_owned(), 10)]);
        assert_eq!(parse("").unwrap().limits.len(), 0);
    }

    #[test]
    fn an_unknown_key_is_told_with_its_line_and_those_that_are_known() {
        let said = wrong("listen = '127.0.0.1:1'\n\nlisten_on = 3\n");
        assert!(said.starts_with(":3:1: unknown key `listen_on`; known here: one of `listen`, `db`, `data`"), "{said}");
        let said = wrong("[auth]\n  token = []\n");
        assert!(said.starts_with(":2:3: unknown key `token`; known here: `tokens` or `insecure_no_auth`"), "{said}");
        let said = wrong("[limits]\nstep = 3\n");
        assert!(said.starts_with(":2:1: unknown key `step`; known here: one of `document_bytes`"), "{said}");
    }

    #[test]
    fn a_wrong_value_is_told_with_its_line() {
        for (source, said) in [
            ("\nallow_shell = 'yes'", ":2:15: invalid type: string, expected a boolean"),
            ("[auth]\ntokens = 'hunter2'", ":2:10: invalid type: string, expected a sequence"),
            ("[traces]\nheaders = 'a=\"hunter2\", expected'", ":2:11: invalid type: string, expected a map"),
            ("listen = 'here'", ":1:10: `here` is not an address"),
            ("listen = 7400", ":1:10: invalid type: integer `7400`"),
            ("inline_concurrency = 0", ":1:22: invalid value: integer `0`"),
            ("[retention]\ncompleted_runs = '9y'", ":2:18: `9y` is not a time span"),
            ("[env]\nallowed = ['A-B']", ":2:11: `A-B` cannot be an environment variable"),
            ("[http]\nproxy = 'h:3128'", ":2:9: a proxy is"),
            ("redis = 'h:6379'", ":1:9: the address of Redis cannot be used"),
            ("[cache]\nredis_ttl = 'off'", ":2:13: `off` is not a time span"),
            ("[cache]\nbytes = '10'", ":2:9: `10` is not a size"),
            ("[definitions]\nchain_depth = 51", ":2:15: a chain has 1 to 50 patches"),
            ("[definitions]\ngc_grace = 'off'", ":2:12: `off` is not a time span"),
            ("[auth]\ntokens = ['secret']", ":2:10: a token hash is"),
            ("[log]\nformat = 'xml'", ":2:10: "),
            ("[secrets]\nkey = 'secret'", ":2:7: a key is 32 bytes"),
            ("[limits]\nsteps = -1", ":2:9: invalid value: integer `-1`"),
            ("listen = ", ":1:10: "),
        ] {
            let found = wrong(source);
            assert!(found.starts_with(said), "{found}");
            assert!(!found.contains('\n') && !found.contains("hunter2"), "{found}");
        }
    }

    #[test]
    fn a_file_with_secrets_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("milepost.toml");
        let key = "0a".repeat(32);
        for (source, has_secrets) in [
            ("listen = '127.0.0.1:1'\ndb = 'postgres://ada@h/d'\nredis = 'redis://h'".to_owned(), false),
            (format!("[auth]\ntokens = ['{}']", TokenHash::of("a")), false),
            ("db = 'postgres://ada:hunter2@h/d'".to_owned(), true),
            ("db = 'postgres://h/d?password=hunter2'".to_owned(), true),
            ("redis = 'redis://:hunter2@h'".to_owned(), true),
            ("[http]\nproxy = 'http://ada:hunter2@p:3128'".to_owned(), true),
            (format!("[secrets]\nkey = '{key}'"), true),
            ("[push]\nsigning_secret = '0123456789abcdef'".to_owned(), true),
            ("[traces]\nheaders = { authorization = 'x' }".to_owned(), true),
            ("[traces]\nendpoint = 'https://ada:hunter2@h'".to_owned(), true),
        ] {
            std::fs::write(&path, &source).unwrap();
            let (_, layer) = read(Some(&path)).unwrap().unwrap();
            for (mode, is_refused) in [(0o600, false), (0o640, false), (0o644, has_secrets), (0o646, true)] {
                std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
                let refused = check_who_may_use(&path, &layer);
                assert_eq!(refused.is_err(), is_refused, "{mode:o} {source}");
                assert!(refused.is_ok() || refused.unwrap_err().to_string().contains("; chmod 6"), "{source}");
            }
        }
    }
}
