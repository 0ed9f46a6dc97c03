//! TLS of the server itself: a certificate and its key in two PEM files, read again when they change.
//!
//! **Invariant:** a pair that cannot be used never takes the place of one that can: connections go on with the old one.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use tokio_rustls::TlsAcceptor;

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// Others may not read or change a key. Its group may read it, as the groups of certificate services do.
const NOT_FOR_KEYS: u32 = 0o027;
/// No certificate and no key is larger.
const MOST_BYTES: u64 = 1024 * 1024;

/// Why a certificate cannot be used.
#[derive(Debug)]
pub struct BadTls(String);

impl fmt::Display for BadTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTls {}

/// A certificate with its key, as they are now. Clones share them.
#[derive(Clone)]
pub struct Tls {
    files: Arc<Files>,
    current: Arc<RwLock<Pair>>,
}

struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

struct Pair {
    config: Arc<ServerConfig>,
    /// Of both files.
    digest: [u8; 32],
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS by {}", self.files.certificate.display())
    }
}

impl Tls {
    /// Reads a certificate, with those between it and its root, and its key.
    ///
    /// # Errors
    /// One of the files cannot be read or is not what it should be, others may read the key, or the two do not belong
    /// together.
    pub fn open(certificate: &Path, key: &Path) -> Result<Tls, BadTls> {
        let files = Files { certificate: certificate.to_owned(), key: key.to_owned() };
        let (certificates, keys) = files.read()?;
        let pair = Pair { config: files.config(&certificates, &keys)?, digest: digest(&certificates, &keys) };
        Ok(Tls { files: Arc::new(files), current: Arc::new(RwLock::new(pair)) })
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current.read().unwrap_or_else(PoisonError::into_inner).config.clone().into()
    }

    /// Reads the files again. Says whether they changed.
    fn read_again(&self) -> Result<bool, BadTls> {
        let (certificates, keys) = self.files.read()?;
        let digest = digest(&certificates, &keys);
        if self.current.read().unwrap_or_else(PoisonError::into_inner).digest == digest {
            return Ok(false);
        }
        let config = self.files.config(&certificates, &keys)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Pair { config, digest };
        Ok(true)
    }

    /// Looks at the files for ever. New connections have the new pair; those that are open keep the one they have.
    pub(crate) async fn keep_current(self) {
        let mut told = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let tls = self.clone();
            let Ok(read) = tokio::task::spawn_blocking(move || tls.read_again()).await else { continue };
            match read {
                Ok(true) => {
                    told.clear();
                    tracing::info!(certificate = %self.files.certificate.display(), "a new TLS certificate is in use");
                }
                Ok(false) => told.clear(),
                Err(error) => {
                    let error = error.to_string();
                    // Once, not every other second.
                    if error != told {
                        tracing::error!(%error, "the new TLS certificate cannot be used; the old one stays in use");
                        told = error;
                    }
                }
            }
        }
    }
}

impl Files {
    fn read(&self) -> Result<(Vec<u8>, Vec<u8>), BadTls> {
        let certificates = read(&self.certificate, |_| Ok(()))?;
        let keys = read(&self.key, |mode| match mode & NOT_FOR_KEYS {
            0 => Ok(()),
            _ => Err("can be read or changed by others on this machine; use chmod 600".to_owned()),
        })?;
        Ok((certificates, keys))
    }

    fn config(&self, certificates: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, BadTls> {
        let chain = CertificateDer::pem_slice_iter(certificates).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| bad(&self.certificate, format!("is not PEM: {error}")))?;
        if chain.is_empty() {
            return Err(bad(&self.certificate, "has no certificate in PEM"));
        }
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|_| bad(&self.key, "has no private key in PEM, or one with a passphrase"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let pair = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map(|builder| builder.with_no_client_auth())
            .and_then(|builder| builder.with_single_cert(chain, key));
        let mut config = pair.map_err(|error| {
            let key = self.key.display();
            bad(&self.certificate, format!("cannot be used with the key {key}: {error}"))
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Reads a file if its mode is right.
fn read(path: &Path, check: impl Fn(u32) -> Result<(), String>) -> Result<Vec<u8>, BadTls> {
    let cannot = |error: io::Error| bad(path, format!("cannot be read: {error}"));
    let file = File::open(path).map_err(cannot)?;
    // Of the file that is read, whatever its path means a moment later.
    check(file.metadata().map_err(cannot)?.permissions().mode()).map_err(|why| bad(path, why))?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(cannot)?;
    Ok(bytes)
}

fn bad(path: &Path, why: impl fmt::Display) -> BadTls {
    BadTls(format!("{} {why}", path.display()))
}

fn digest(certificates: &[u8], keys: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(certificates).chain_update([0]).chain_update(keys).finalize().into()
}
