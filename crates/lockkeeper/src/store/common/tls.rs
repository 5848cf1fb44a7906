//! TLS to a server: makes a configuration of rustls from a [`Trust`], does the handshake, and explains its errors.
//!
//! The crypto provider is named here and nowhere else: rustls panics in a process that has two and names none.

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
/// The crate that the types of [`config`] and [`handshake`] are of.
pub use tokio_rustls;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsConnector, rustls};

use super::{Address, StoreKind, Trust};
use crate::Error;

/// Makes a configuration from a [`Trust`]. It reads files.
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
            .with_custom_certificate_verifier(Arc::new(AcceptAny(provider)))
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

/// The authorities to trust: those of the file, else those of the system. A list that is compiled in would not have a company's
/// own, and would not be kept up to date.
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

/// Does the TLS handshake with the server at the other end, whose certificate has to be for `host`.
///
/// It has no time-out of its own, and needs one: a server without TLS may take the handshake for the beginning of a request,
/// and wait for the rest.
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
    handshake_for(stream, host, trust, kind, &[]).await
}

/// The same, for one of these protocols (ALPN), such as `h2`.
///
/// # Errors
/// Those of [`handshake`].
pub async fn handshake_for<S>(
    stream: S,
    host: &str,
    trust: &Trust,
    kind: &StoreKind,
    protocols: &[&[u8]],
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
    let mut config = config
        .await
        .map_err(|error| kind.unavailable(error.to_string()))??;
    config.alpn_protocols = protocols.iter().map(|one| one.to_vec()).collect();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, stream).await;
    stream.map_err(|error| explain(host, &error, kind))
}

/// Whether a server at this address speaks TLS. The server is sent no secret.
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
        Err(error) => cause(&error).is_some_and(|cause| !is_no_tls(cause)),
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

/// Whether the server's answer was not TLS at all.
fn is_no_tls(error: &rustls::Error) -> bool {
    matches!(error, rustls::Error::InvalidMessage(_))
}

/// The error for a handshake that failed.
fn explain(host: &str, error: &io::Error, kind: &StoreKind) -> Error {
    match cause(error) {
        Some(rustls::Error::InvalidCertificate(why)) => kind.refused(format!(
            "the certificate of {host} {}",
            explain_certificate(host, why)
        )),
        Some(other) if is_no_tls(other) => kind.refused(no_tls(&host, kind)),
        Some(other) => kind.refused(format!("TLS with {host} fails: {other}")),
        None => kind.unavailable(format!("{host} ended the TLS handshake: {error}")),
    }
}

/// The text of an error for a server that does not speak TLS.
pub fn no_tls(server: &dyn Display, kind: &StoreKind) -> String {
    format!(
        "{server} does not speak TLS on this port; name its TLS port, or {}",
        kind.use_no_tls
    )
}

/// What is wrong with the certificate of a host, as the end of a sentence about it.
fn explain_certificate(host: &str, why: &CertificateError) -> String {
    match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "has expired; renew it".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "is not valid yet; check the clocks".into()
        }
        // The signature is bad if the authority has the right name and another key.
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

/// Explains the text of an error with a TLS alert of the server in it, as when the server asks for a certificate of the
/// client. Returns `None` if the text has no alert.
pub fn explain_alert(error: &str) -> Option<String> {
    let alert = error.split("fatal alert: ").nth(1)?;
    Some(match alert.trim_end_matches(')') {
        alert if alert.starts_with("CertificateRequired") => {
            "the server asks for our certificate; name one with cert=PATH&key=PATH".into()
        }
        alert => format!("the server refuses our certificate, or TLS with us ({alert})"),
    })
}

/// Accepts every certificate whose key signs the handshake.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
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
