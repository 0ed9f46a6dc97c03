//! How a connection is encrypted: the modes of libpq, and what each of them means to rustls and to the driver.
//!
//! Without a mode it is `prefer` for a server on this machine and `require` for one elsewhere: between two machines others
//! may listen, and whoever stands between them could turn `prefer` into `disable`.
//!
//! | mode | without `sslrootcert` | with `sslrootcert` |
//! |---|---|---|
//! | `disable` | no TLS | no TLS |
//! | `prefer` | TLS where the server has it, any certificate | the chain is checked; without TLS where that fails |
//! | `require` | TLS, any certificate | as `verify-ca` |
//! | `verify-ca` | the chain, up to the system's roots | the chain, up to the file's roots |
//! | `verify-full` | … and the host name | … and the host name |

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::Split;
use super::verify::{Roots, Verifier};
use crate::{Result, StoreError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl Mode {
    fn parse(text: &str) -> Result<Mode> {
        Ok(match text {
            "disable" => Mode::Disable,
            "prefer" => Mode::Prefer,
            "require" => Mode::Require,
            "verify-ca" => Mode::VerifyCa,
            "verify-full" => Mode::VerifyFull,
            _ => {
                return Err(StoreError::Unusable(
                    "`sslmode` in the URL must be disable, prefer, require, verify-ca or verify-full".to_owned(),
                ));
            }
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Disable => "disable",
            Mode::Prefer => "prefer",
            Mode::Require => "require",
            Mode::VerifyCa => "verify-ca",
            Mode::VerifyFull => "verify-full",
        }
    }

    /// What the driver has to know: whether to ask for TLS, and whether to go on without.
    pub(super) fn driver(self) -> SslMode {
        match self {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    fn verifies(self) -> bool {
        matches!(self, Mode::VerifyCa | Mode::VerifyFull)
    }
}

/// How to encrypt the connections to one server.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) mode: Mode,
    /// Whether the address says so.
    pub(super) named: bool,
    /// The file that `sslrootcert` names.
    pub(super) root: Option<String>,
    pub(super) connector: MakeRustlsConnect,
}

impl Tls {
    /// For a server on this machine, or for one elsewhere.
    pub(super) fn new(split: &Split, is_here: bool) -> Result<Tls> {
        let system = split.root.as_deref() == Some("system");
        let root = split.root.clone().filter(|_| !system);
        let mode = match (&split.mode, system) {
            (Some(mode), _) => Mode::parse(mode)?,
            (None, true) => Mode::VerifyFull,
            (None, false) if is_here => Mode::Prefer,
            (None, false) => Mode::Require,
        };
        if system && mode != Mode::VerifyFull {
            return Err(StoreError::Unusable(
                "with `sslrootcert=system` anybody's certificate from a public authority has a good chain: set \
                 `sslmode=verify-full`, or leave `sslrootcert` out"
                    .to_owned(),
            ));
        }
        let connector = connector(mode, root.as_deref())?;
        Ok(Tls { mode, named: split.mode.is_some() || system, root, connector })
    }
}

fn connector(mode: Mode, root: Option<&str>) -> Result<MakeRustlsConnect> {
    // Handed over by hand: a default for the whole process is the program's to choose, not ours.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let roots = roots(mode, root, &provider)?;
    let verifier = Verifier::new(roots, mode == Mode::VerifyFull, &provider);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows TLS 1.2 and 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    // Servers from version 17 on ask for it where TLS begins without a question first.
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(MakeRustlsConnect::new(config))
}

fn roots(mode: Mode, root: Option<&str>, provider: &Arc<CryptoProvider>) -> Result<Roots> {
    match root {
        Some(path) if mode != Mode::Disable => read(path),
        None if mode.verifies() => Roots::system(provider).map_err(|error| {
            StoreError::Unusable(format!(
                "`sslmode={}` needs root certificates, and the system's cannot be read: {error}; install them \
                 (ca-certificates), or name a file: `sslrootcert=/path/to/ca.pem` in the URL",
                mode.name()
            ))
        }),
        _ => Ok(Roots::None),
    }
}

fn read(path: &str) -> Result<Roots> {
    let unusable = |why: String| {
        StoreError::Unusable(format!(
            "the file `{path}` that `sslrootcert` names in the URL {why}; it must be a PEM file with the certificate of \
             the authority that signed the server's"
        ))
    };
    let pem = std::fs::read(path).map_err(|error| unusable(format!("cannot be read: {error}")))?;
    let certificates = CertificateDer::pem_slice_iter(&pem)
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(|error| unusable(format!("is no PEM file: {error}")))?;
    if certificates.is_empty() {
        return Err(unusable("has no certificate in it".to_owned()));
    }
    Roots::file(certificates).map_err(|error| unusable(format!("has a certificate that cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(mode: Option<&str>, root: Option<&str>) -> String {
        let split = Split { rest: String::new(), mode: mode.map(str::to_owned), root: root.map(str::to_owned) };
        match Tls::new(&split, true) {
            Err(StoreError::Unusable(text)) => text,
            Err(other) => panic!("{other}"),
            Ok(tls) => panic!("{:?}", tls.mode),
        }
    }

    #[test]
    fn a_mode_that_is_not_known_is_refused() {
        assert!(refused(Some("allow"), None).contains("disable, prefer, require, verify-ca or verify-full"));
    }

    #[test]
    fn a_root_file_that_cannot_be_used_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.pem");
        let path = file.to_str().expect("UTF-8");
        let refused = |mode| refused(mode, Some(path));
        assert!(
            refused(Some("verify-full")).contains(&format!("`{path}` that `sslrootcert` names in the URL cannot be"))
        );
        std::fs::write(&file, "hello").expect("written");
        assert!(refused(None).contains("has no certificate in it"));
        std::fs::write(&file, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").expect("written");
        assert!(refused(Some("require")).contains("has a certificate that cannot be read"));
    }

    #[test]
    fn the_systems_roots_by_name_go_with_verify_full_only() {
        assert!(refused(Some("verify-ca"), Some("system")).contains("sslmode=verify-full"));
        assert!(refused(Some("prefer"), Some("system")).contains("sslmode=verify-full"));
    }

    #[test]
    fn without_tls_no_root_is_read() {
        let split = Split { mode: Some("disable".to_owned()), root: Some("/nowhere".to_owned()), ..Split::default() };
        assert_eq!(Tls::new(&split, false).map(|tls| tls.mode).expect("usable"), Mode::Disable);
    }
}
