//! Settings from the environment. A variable that is empty says nothing.

use std::fmt::Display;
use std::str::FromStr;

use milepost_api::KnownToken;

use super::layer::Layer;
use super::settings::{self, Setting};
use crate::output::error::Refusal;

/// Reads the variables; `variable` is the environment.
pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Layer, Refusal> {
    let given = |setting: Setting| variable(setting.variable).filter(|text| !text.trim().is_empty());
    Ok(Layer {
        listen: parsed(&given, settings::LISTEN)?,
        db: given(settings::DB),
        data: given(settings::DATA).map(Into::into),
        inline_concurrency: parsed(&given, settings::INLINE_CONCURRENCY)?,
        allow_shell: parsed::<Truth>(&given, settings::ALLOW_SHELL)?.map(|truth| truth.0),
        allow_private_http: parsed::<Truth>(&given, settings::ALLOW_PRIVATE_HTTP)?.map(|truth| truth.0),
        drain_seconds: parsed(&given, settings::DRAIN_SECONDS)?,
        behind_proxy: parsed::<Truth>(&given, settings::BEHIND_PROXY)?.map(|truth| truth.0),
        tls_cert: given(settings::TLS_CERT).map(Into::into),
        tls_key: given(settings::TLS_KEY).map(Into::into),
        connections: parsed(&given, settings::CONNECTIONS)?,
        head_seconds: parsed(&given, settings::HEAD_SECONDS)?,
        idle_seconds: parsed(&given, settings::IDLE_SECONDS)?,
        body_seconds: parsed(&given, settings::BODY_SECONDS)?,
        write_seconds: parsed(&given, settings::WRITE_SECONDS)?,
        streams: parsed(&given, settings::STREAMS)?,
        body_mib: parsed(&given, settings::BODY_MIB)?,
        tokens: parsed::<Hashes>(&given, settings::TOKENS)?.map(|hashes| hashes.0),
        insecure_no_auth: parsed::<Truth>(&given, settings::INSECURE_NO_AUTH)?.map(|truth| truth.0),
        push_per_host: parsed(&given, settings::PUSH_PER_HOST)?,
        outbox_max_tries: parsed(&given, settings::OUTBOX_MAX_TRIES)?,
        unready_after: parsed(&given, settings::UNREADY_AFTER)?,
        end_after: parsed(&given, settings::END_AFTER)?,
        retention: parsed(&given, settings::RETENTION)?,
        cache_ttl: parsed(&given, settings::CACHE_TTL)?,
        cache_bytes: parsed(&given, settings::CACHE_BYTES)?,
        artifact_retention: parsed(&given, settings::ARTIFACT_RETENTION)?,
        blob_grace: parsed(&given, settings::BLOB_GRACE)?,
        chain_depth: parsed(&given, settings::CHAIN_DEPTH)?,
        gc_grace: parsed(&given, settings::GC_GRACE)?,
        log_format: parsed(&given, settings::LOG_FORMAT)?,
        ..with_places(read_few(&variable)?, &variable)?
    })
}

/// Only where secrets are looked for, blobs are kept and Redis is, which way requests go, and which variables steps may have.
pub(crate) fn read_places(variable: impl Fn(&str) -> Option<String>) -> Result<Layer, Refusal> {
    let given = |setting: Setting| variable(setting.variable).filter(|text| !text.trim().is_empty());
    let env_allowed = parsed(&given, settings::ENV_ALLOWED)?;
    with_places(Layer { env_allowed, ..Layer::default() }, &variable)
}

fn with_places(layer: Layer, variable: impl Fn(&str) -> Option<String>) -> Result<Layer, Refusal> {
    let given = |setting: Setting| variable(setting.variable).filter(|text| !text.trim().is_empty());
    Ok(Layer {
        blobs: given(settings::BLOBS),
        redis: parsed(&given, settings::REDIS)?,
        cache_redis_ttl: parsed(&given, settings::CACHE_REDIS_TTL)?,
        http_proxy: parsed(&given, settings::HTTP_PROXY)?,
        secrets_key: parsed(&given, settings::SECRETS_KEY)?,
        secrets_key_file: given(settings::SECRETS_KEY_FILE).map(Into::into),
        secrets_folder: given(settings::SECRETS_FOLDER).map(Into::into),
        secrets_env_prefix: given(settings::SECRETS_ENV_PREFIX),
        ..layer
    })
}

/// Only the variables that OpenTelemetry gave their names, which mean the same to every program, what requests are signed
/// with, which belongs in no file, and which other variables steps may be given.
pub(crate) fn read_few(variable: impl Fn(&str) -> Option<String>) -> Result<Layer, Refusal> {
    let given = |setting: Setting| variable(setting.variable).filter(|text| !text.trim().is_empty());
    Ok(Layer {
        traces_endpoint: given(settings::TRACES_ENDPOINT),
        traces_headers: parsed(&given, settings::TRACES_HEADERS)?,
        service_name: given(settings::SERVICE_NAME),
        push_secrets: parsed(&given, settings::PUSH_SECRET)?,
        env_allowed: parsed(&given, settings::ENV_ALLOWED)?,
        ..Layer::default()
    })
}

fn parsed<T: FromStr<Err: Display>>(
    given: &impl Fn(Setting) -> Option<String>,
    setting: Setting,
) -> Result<Option<T>, Refusal> {
    let wrong = |error: T::Err| Refusal::new("bad_config", format!("{}: {error}", setting.variable));
    given(setting).map(|text| text.trim().parse().map_err(wrong)).transpose()
}

struct Truth(bool);

impl FromStr for Truth {
    type Err = String;

    fn from_str(text: &str) -> Result<Truth, String> {
        match text {
            "true" | "1" => Ok(Truth(true)),
            "false" | "0" => Ok(Truth(false)),
            _ => Err(format!("`{text}` is neither true nor false; write true or false")),
        }
    }
}

/// Token hashes, with names or without, separated by commas.
struct Hashes(Vec<KnownToken>);

impl FromStr for Hashes {
    type Err = String;

    fn from_str(text: &str) -> Result<Hashes, String> {
        let hashes = text.split(',').map(str::trim).filter(|hash| !hash.is_empty());
        hashes.map(str::parse).collect::<Result<_, _>>().map(Hashes)
    }
}

#[cfg(test)]
mod tests {
    use milepost_api::TokenHash;

    use super::*;

    fn read_one(name: &str, value: &str) -> Result<Layer, String> {
        read(|asked| (asked == name).then(|| value.to_owned())).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_are_read_and_empty_ones_say_nothing() {
        assert_eq!(read_one("MILEPOST_LISTEN", "127.0.0.1:1").unwrap().listen.unwrap().to_string(), "127.0.0.1:1");
        assert_eq!(read_one("MILEPOST_ALLOW_SHELL", "true").unwrap().allow_shell, Some(true));
        assert_eq!(read_one("MILEPOST_ALLOW_SHELL", "").unwrap().allow_shell, None);
        let (a, b) = (TokenHash::of("a"), TokenHash::of("b"));
        let named = KnownToken { name: Some("ci".to_owned()), hash: b };
        let read = read_one("MILEPOST_TOKEN_HASHES", &format!("{a}, ci={b},"));
        assert_eq!(read.unwrap().tokens, Some(vec![a.into(), named]));
        let traces = read_one("OTEL_EXPORTER_OTLP_HEADERS", "a=1").unwrap().traces_headers.unwrap();
        assert_eq!(traces.0["a"], "1");
    }

    #[test]
    fn a_wrong_value_is_told_with_its_variable() {
        for (name, value) in [
            ("MILEPOST_LISTEN", "here"),
            ("MILEPOST_ALLOW_SHELL", "yes"),
            ("MILEPOST_TOKEN_HASHES", "sha256:1"),
            ("MILEPOST_TOKEN_HASHES", "ci=sha256:1"),
            ("MILEPOST_RETENTION", "9y"),
            ("MILEPOST_REDIS", "http://:hunter2@h"),
            ("MILEPOST_CACHE_REDIS_TTL", "off"),
            ("MILEPOST_CACHE_TTL", "9y"),
            ("MILEPOST_CACHE_BYTES", "10"),
            ("MILEPOST_ARTIFACT_RETENTION", "checkpoint"),
            ("MILEPOST_BLOB_GRACE", "5m"),
            ("MILEPOST_CHAIN_DEPTH", "51"),
            ("MILEPOST_GC_GRACE", "off"),
            ("MILEPOST_INLINE_CONCURRENCY", "0"),
            ("MILEPOST_LOG_FORMAT", "xml"),
            ("MILEPOST_CONNECTIONS", "0"),
            ("MILEPOST_HEAD_SECONDS", "0"),
            ("MILEPOST_BEHIND_PROXY", "yes"),
            ("MILEPOST_SECRETS_KEY", "hunter2"),
            ("MILEPOST_PUSH_SECRET", "hunter2"),
            ("MILEPOST_HTTP_PROXY", "ftp://:hunter2@h"),
            ("MILEPOST_ENV_ALLOWED", "A-B"),
            ("MILEPOST_PUSH_PER_HOST", "0"),
            ("MILEPOST_OUTBOX_MAX_TRIES", "0"),
        ] {
            let error = read_one(name, value).map(drop).unwrap_err();
            assert!(error.starts_with(name) && !error.contains("hunter2"), "{error}");
        }
    }
}
