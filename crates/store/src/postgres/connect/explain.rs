//! Why there is no connection, in words that help.

use std::error::Error as _;
use std::io;

use rustls::CertificateError;
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;

use super::Target;
use super::tls::{Mode, Tls};
use crate::StoreError;
use crate::postgres::error::describe;

pub(super) fn explain(target: &Target, error: &tokio_postgres::Error) -> StoreError {
    let config = &target.config;
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    let text = describe(error);
    let server = server(config);
    if is_tls(error) {
        return StoreError::Unusable(format!("the Postgres server at {server} {}", explain_tls(&target.tls, error)));
    }
    match error.code() {
        Some(state) if *state == SqlState::INVALID_CATALOG_NAME => StoreError::Unusable(format!(
            "the Postgres server at {server} has no database `{database}`; make it: createdb{} {database}",
            flags(config)
        )),
        Some(state) if state.code().starts_with("28") => StoreError::Unusable(format!(
            "the Postgres server at {server} does not let us in: {text}; check user and password in the URL"
        )),
        Some(state) if *state == SqlState::TOO_MANY_CONNECTIONS || state.code().starts_with("57P") => {
            StoreError::Unavailable(text)
        }
        Some(_) => StoreError::Unusable(format!("the Postgres server at {server} refused the connection: {text}")),
        None => StoreError::Unusable(format!(
            "no Postgres server can be reached at {server}: {text}; is it running, and are host and port right?"
        )),
    }
}

/// The driver says of its errors what they are about only in their text.
pub(super) fn is_tls(error: &tokio_postgres::Error) -> bool {
    error.to_string() == "error performing TLS handshake"
}

fn explain_tls(tls: &Tls, error: &tokio_postgres::Error) -> String {
    if let Some(rustls::Error::InvalidCertificate(error)) = cause(error) {
        return explain_certificate(tls, error);
    }
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    if why == "server does not support TLS" {
        let who = match tls.named {
            true => format!("`sslmode={}` asks for it", tls.mode.name()),
            false => "it is on another machine".to_owned(),
        };
        return format!(
            "does not offer TLS, and {who}: turn it on there (`ssl = on`), or add `sslmode=disable` to the URL where \
             the network is safe without it"
        );
    }
    format!("and we found no way to speak TLS: {why}; is it a Postgres server, and does it know TLS 1.2 or newer?")
}

fn cause(error: &tokio_postgres::Error) -> Option<&rustls::Error> {
    error.source()?.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

fn explain_certificate(tls: &Tls, error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => untrusted(tls),
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "has a certificate for other host names than `{}` ({}): use one of them in the URL, or `sslmode=verify-ca` \
             if the name does not matter",
            expected.to_str(),
            names(presented)
        ),
        CertificateError::Other(other) if format!("{other:?}").contains("UnsupportedCertVersion") => format!(
            "has a certificate of X.509 version 1, which cannot be checked{}: make one of version 3, with the host in \
             subjectAltName",
            if tls.mode == Mode::Require { " (not even who holds its key)" } else { "" }
        ),
        other => format!("has a certificate that is refused: {other}; give the server a good one"),
    }
}

fn untrusted(tls: &Tls) -> String {
    match &tls.root {
        Some(path) => format!(
            "has a certificate that is not trusted: no authority in `{path}` signed it; let `sslrootcert` in the URL \
             name the file with the certificate of the authority that did"
        ),
        None => {
            "has a certificate that is not trusted: no authority that this system knows signed it; name the file with \
                 the certificate of the one that did: `sslrootcert=/path/to/ca.pem` in the URL"
                .to_owned()
        }
    }
}

/// They come as `DnsName("a.example")` and `IpAddress(10.0.0.1)`.
fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        return "it has no subjectAltName at all".to_owned();
    }
    let bare = |name: &String| match name.split_once('(') {
        Some(("DnsName" | "IpAddress", inner)) => inner.trim_matches(['"', ')']).to_owned(),
        _ => name.clone(),
    };
    presented.iter().map(bare).collect::<Vec<_>>().join(", ")
}

fn address(config: &Config) -> (String, u16) {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => config.get_hostaddrs().first().map_or_else(|| "localhost".to_owned(), ToString::to_string),
    };
    (host, config.get_ports().first().copied().unwrap_or(5432))
}

pub(super) fn server(config: &Config) -> String {
    let (host, port) = address(config);
    format!("{host}:{port}")
}

fn flags(config: &Config) -> String {
    let (host, port) = address(config);
    let user = config.get_user().map(|user| format!(" -U {user}")).unwrap_or_default();
    format!(" -h {host} -p {port}{user}")
}
