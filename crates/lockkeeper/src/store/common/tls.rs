//! TLS to a server: the configuration of rustls that a [`Trust`] stands for, the handshake, and what went wrong, in words.
//!
//! The crypto provider is named here and nowhere else: a process that has two cannot choose, and panics.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
/// What [`config`] and [`handshake`] give types of.
pub use tokio_rustls;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsConnector, rustls};

use super::{Address, StoreKind, Trust};
use crate::Error;

/// The configuration that a [`Trust`] stands for. It reads files.
///
/// # Errors
/// [`Error::Refused`] says which file is wrong, and how.
pub fn config(trust: &Trust, kind: &StoreKind) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| kind.refused(error.to_string()))?;
    let builder = if trust.insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
    } else {
        builder.with_root_certificates(roots(trust, kind)?)
    };
    let Some((cert, key)) = &trust.identity else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(cert, kind)?;
    let secret = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| unreadable("private key", key, &error, kind))?;
    builder
        .with_client_auth_cert(chain, secret)
        .map_err(|error| {
            kind.refused(format!(
                "the certificate {cert:?} and the key {key:?} do not go together: {error}"
            ))
        })
}

/// The system's authorities, rather than a list compiled in: it has a company's own, and is kept up to date.
fn roots(trust: &Trust, kind: &StoreKind) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    match &trust.ca {
        Some(path) => {
            for certificate in certificates(path, kind)? {
                let added = roots.add(certificate);
                added.map_err(|error| unreadable("certificate", path, &error, kind))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(kind.refused(
                    "this system has no certificates of authorities; install `ca-certificates`, or name the server's \
                     authority with ca=PATH",
                ));
            }
        }
    }
    Ok(roots)
}

fn certificates(path: &Path, kind: &StoreKind) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match found {
        Ok(certificates) if certificates.is_empty() => Err(kind.refused(format!(
            "the file {path:?} has no certificate; it has to be PEM"
        ))),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unreadable("certificate", path, &error, kind)),
    }
}

fn unreadable(what: &str, path: &Path, error: &dyn Display, kind: &StoreKind) -> Error {
    kind.refused(format!("the {what} {path:?} cannot be read: {error}"))
}

/// Agrees on TLS with the server at the other end. Its certificate has to be for `host`.
///
/// It has no time-out: a server without TLS may wait for more of what it takes for a request.
///
/// # Errors
/// [`Error::Refused`] when the certificate is not good, or the server has no TLS; [`Error::Unavailable`] when the
/// connection ends.
pub async fn handshake<S>(
    stream: S,
    host: &str,
    trust: &Trust,
    kind: &StoreKind,
) -> Result<TlsStream<S>, Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Ok(name) = ServerName::try_from(host.to_owned()) else {
        return Err(kind.refused(format!("no certificate can be for {host:?}")));
    };
    let (trust, of) = (trust.clone(), *kind);
    // It reads files.
    let config = tokio::task::spawn_blocking(move || config(&trust, &of));
    let config = config
        .await
        .map_err(|error| kind.unavailable(error.to_string()))??;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, stream).await;
    stream.map_err(|error| explain(host, &error, kind))
}

/// Whether a server at this address begins with TLS. It is told no secret.
pub async fn speaks_tls(address: &Address, kind: &StoreKind) -> bool {
    let anyone = Trust {
        insecure: true,
        ..Trust::default()
    };
    let (Ok(stream), Ok(config)) = (dial(address).await, config(&anyone, kind)) else {
        return false;
    };
    let Ok(name) = ServerName::try_from("localhost") else {
        return false;
    };
    match TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
    {
        Ok(_) => true,
        Err(error) => cause(&error).is_some_and(|cause| !is_noise(cause)),
    }
}

async fn dial(address: &Address) -> io::Result<TcpStream> {
    match address {
        Address::Tcp(host, port) => TcpStream::connect((host.as_str(), *port)).await,
        Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn is_noise(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidMessage(_))
}

/// Why there is no TLS with the server.
fn explain(host: &str, error: &io::Error, kind: &StoreKind) -> Error {
    match cause(error) {
        Some(rustls::Error::InvalidCertificate(why)) => kind.refused(format!(
            "the certificate of {host} {}",
            judgement(host, why)
        )),
        Some(noise) if is_noise(noise) => kind.refused(no_tls(&host, kind)),
        Some(other) => kind.refused(format!("TLS with {host} fails: {other}")),
        None => kind.unavailable(format!("{host} ended the TLS handshake: {error}")),
    }
}

/// A server that only speaks without TLS, in words.
pub fn no_tls(server: &dyn Display, kind: &StoreKind) -> String {
    format!(
        "{server} does not speak TLS on this port; name its TLS port, or {}",
        kind.use_no_tls
    )
}

fn judgement(host: &str, why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired; renew it".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet; check the clocks".into()
        }
        // A signature is bad when the authority has the right name and another key.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "is from an authority that is not trusted here; name the authority's certificate with ca=PATH".into()
        }
        CertificateError::NotValidForName => format!("is not for {host}"),
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "is not for {host} but for {}; connect by a name that it has",
            presented.join(", ")
        ),
        other => format!("is not accepted: {other}"),
    }
}

/// What a server that wants to see our certificate says when it breaks off, in words; `None` if this text of an error has
/// no alert of TLS.
pub fn explain_alert(said: &str) -> Option<String> {
    let alert = said.split("fatal alert: ").nth(1)?;
    Some(match alert.trim_end_matches(')') {
        alert if alert.starts_with("CertificateRequired") => {
            "the server asks for our certificate; name one with cert=PATH&key=PATH".into()
        }
        alert => format!("the server refuses our certificate, or TLS with us ({alert})"),
    })
}

/// Accepts every certificate, if only its key signs.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
