//! Whose certificate is good enough.
//!
//! **Invariant:** whatever is left unchecked, that the server has the certificate's key is always checked; binding a
//! login to the connection (SCRAM's channel binding) rests on it.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The system's verifier looks at the chain before the name here, so an error about the name says that the chain is good.
/// Elsewhere the operating system decides the order, and such an error stays one.
const SYSTEM_CHECKS_CHAIN_FIRST: bool = cfg!(all(unix, not(target_vendor = "apple"), not(target_os = "android")));

/// Who may have signed.
#[derive(Debug)]
pub(super) enum Roots {
    /// Anybody.
    None,
    File {
        anchors: RootCertStore,
        certificates: Vec<CertificateDer<'static>>,
    },
    System(rustls_platform_verifier::Verifier),
}

impl Roots {
    pub(super) fn system(provider: &Arc<CryptoProvider>) -> Result<Roots, Error> {
        Ok(Roots::System(rustls_platform_verifier::Verifier::new(Arc::clone(provider))?))
    }

    pub(super) fn file(certificates: Vec<CertificateDer<'static>>) -> Result<Roots, Error> {
        let mut anchors = RootCertStore::empty();
        for certificate in &certificates {
            anchors.add(certificate.clone())?;
        }
        Ok(Roots::File { anchors, certificates })
    }
}

#[derive(Debug)]
pub(super) struct Verifier {
    roots: Roots,
    /// Must the certificate name the host?
    names: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    pub(super) fn new(roots: Roots, names: bool, provider: &CryptoProvider) -> Verifier {
        Verifier { roots, names, algorithms: provider.signature_verification_algorithms }
    }

    fn check_file(
        &self,
        (anchors, certificates): (&RootCertStore, &[CertificateDer<'static>]),
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let parsed = ParsedCertificate::try_from(server)?;
        let chain =
            verify_server_cert_signed_by_trust_anchor(&parsed, anchors, intermediates, now, self.algorithms.all);
        match chain {
            Err(error) if is_authority(&error) && certificates.iter().any(|root| **root == **server) => {}
            other => other?,
        }
        if self.names { verify_server_name(&parsed, name) } else { Ok(()) }
    }
}

/// `openssl req -x509` makes certificates that a server shows and that call themselves an authority. Where the very same
/// one is in the file, it is trusted; its dates have been looked at before this is.
fn is_authority(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(other)) if format!("{other:?}").contains("CaUsedAsEndEntity"))
}

pub(super) fn is_about_the_name(error: &Error) -> bool {
    use CertificateError::{NotValidForName, NotValidForNameContext};
    matches!(error, Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.roots {
            Roots::None => {}
            Roots::File { anchors, certificates } => {
                self.check_file((anchors, certificates), end_entity, intermediates, server_name, now)?;
            }
            Roots::System(system) => {
                match system.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
                    Err(error) if !self.names && SYSTEM_CHECKS_CHAIN_FIRST && is_about_the_name(&error) => {}
                    other => return other,
                }
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use rustls::crypto::aws_lc_rs;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    /// A certificate that signs itself and calls itself an authority, as the manual of Postgres has it made.
    fn own() -> CertificateDer<'static> {
        let folder = tempfile::tempdir().expect("a folder");
        let config = "[req]\ndistinguished_name = dn\nx509_extensions = v3\n[dn]\n[v3]\nbasicConstraints = CA:true\n\
                      subjectAltName = DNS:db.example\n";
        std::fs::write(folder.path().join("cnf"), config).expect("written");
        let made = Command::new("openssl")
            .current_dir(folder.path())
            .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2".split(' '))
            .args("-config cnf -subj /CN=db.example -keyout key -out cert".split(' '))
            .output()
            .expect("openssl is there");
        assert!(made.status.success(), "{made:?}");
        CertificateDer::from_pem_file(folder.path().join("cert")).expect("a certificate")
    }

    fn verify(root: &CertificateDer<'static>, server: &CertificateDer<'_>, name: &str, now: UnixTime) -> Option<Error> {
        let roots = Roots::file(vec![root.clone()]).expect("roots");
        let verifier = Verifier::new(roots, true, &aws_lc_rs::default_provider());
        let name = ServerName::try_from(name).expect("a name");
        verifier.verify_server_cert(server, &[], &name, &[], now).err()
    }

    #[test]
    fn a_certificate_that_signs_itself_is_trusted_where_it_is_the_root() {
        let (server, other) = (own(), own());
        let now = UnixTime::now();
        assert_eq!(verify(&server, &server, "db.example", now), None);
        assert!(verify(&server, &server, "elsewhere.example", now).is_some_and(|error| is_about_the_name(&error)));
        assert!(verify(&other, &server, "db.example", now).is_some());
        let later = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs() + 3 * 86_400));
        let expired = verify(&server, &server, "db.example", later);
        let is_expired = |error| matches!(error, Error::InvalidCertificate(CertificateError::ExpiredContext { .. }));
        assert!(expired.is_some_and(is_expired));
    }
}
