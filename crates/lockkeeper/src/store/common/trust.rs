//! What a URL says of TLS: which servers to trust, and the certificate of this client.

use std::fmt;
use std::path::PathBuf;

use super::url::refuse;
use super::{Options, StoreKind};
use crate::{Error, SETUP_TARGET};

/// Which servers to trust, and the certificate of this client.
///
/// The files are read for every connection, so that renewed certificates are used.
///
/// ```
/// use lockkeeper::store::common::{ServerUrl, StoreKind, Trust};
/// use lockkeeper::url::StoreUrl;
///
/// const TOY: StoreKind = StoreKind::new("toy", "toy://localhost")
///     .with_tls("write toys: instead of toy:", "write toy: instead of toys:");
///
/// let url = StoreUrl::parse("toy://localhost?ca=/etc/ca.pem")?;
/// let mut options = ServerUrl::parse(&url, TOY)?.options()?;
/// let refused = Trust::read(&mut options, false, &TOY).unwrap_err();
/// assert!(refused.to_string().contains("write toys: instead of toy:"));
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Trust {
    /// The authorities to trust instead of the system's.
    pub ca: Option<PathBuf>,
    /// The certificate of this client, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Trust any server.
    pub insecure: bool,
}

impl Trust {
    /// Takes the options `ca`, `cert`, `key` and `insecure`. `tls` is whether TLS is used.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] when they do not go together, TLS is not used, or this build has none.
    pub fn read(options: &mut Options, tls: bool, kind: &StoreKind) -> Result<Trust, Error> {
        #[cfg(not(feature = "tls"))]
        if tls {
            return refuse(super::tls::MISSING);
        }
        let ca = options.pem_file("ca")?;
        let cert = options.pem_file("cert")?;
        let key = options.pem_file("key")?;
        let trusts_anyone = "insecure=yes trusts every server; leave it out otherwise";
        let insecure = options.flag("insecure", "yes", trusts_anyone)?;
        if let Some(option) = options.first_of(&["ca", "cert", "key", "insecure"])
            && !tls
        {
            return refuse(format!("{option} is for TLS; {}", kind.use_tls));
        }
        if cert.is_some() != key.is_some() {
            return refuse("cert=PATH and key=PATH belong together: a certificate and its key");
        }
        if ca.is_some() && insecure {
            return refuse(
                "ca=PATH says whom to trust, insecure=yes to trust anyone; leave one out",
            );
        }
        Ok(Trust {
            ca,
            identity: cert.zip(key),
            insecure,
        })
    }

    /// Warns if any server is trusted.
    pub fn warn(&self, server: &dyn fmt::Display) {
        if self.insecure {
            tracing::warn!(
                target: SETUP_TARGET,
                %server,
                "insecure=yes: the server's certificate is not checked, so anyone on the way can pose as the server"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::common::ServerUrl;
    use crate::url::StoreUrl;

    const TOY: StoreKind = StoreKind {
        store: "toy",
        example: "toy://localhost",
        use_tls: "write toys: instead of toy:",
        use_no_tls: "write toy: instead of toys:",
    };

    fn read(query: &str, tls: bool) -> Result<Trust, Error> {
        let url = StoreUrl::parse(&format!("toy://h?{query}"))?;
        let mut options = ServerUrl::parse(&url, TOY)?.options()?;
        let trust = Trust::read(&mut options, tls, &TOY)?;
        options.finish()?;
        Ok(trust)
    }

    #[test]
    #[cfg(not(feature = "tls"))]
    fn a_build_without_tls_names_the_feature() {
        let error = read("", true).expect_err("no TLS").to_string();
        assert!(error.contains("feature `tls`"), "{error}");
        assert_eq!(read("", false).expect("valid"), Trust::default());
    }

    #[test]
    #[cfg(feature = "tls")]
    fn files_are_read() {
        let trust = read("ca=/a%20b.pem&key=/k&cert=/c", true).expect("valid");
        assert_eq!(trust.ca, Some("/a b.pem".into()));
        assert_eq!(trust.identity, Some(("/c".into(), "/k".into())));
        assert!(!trust.insecure);
        assert!(read("insecure=yes", true).expect("valid").insecure);
        assert_eq!(read("", false).expect("valid"), Trust::default());
    }

    #[test]
    #[cfg(feature = "tls")]
    fn each_mistake_has_an_error() {
        for (query, tls, word) in [
            ("ca=/x.pem", false, "ca is for TLS; write toys:"),
            ("insecure=yes", false, "toys:"),
            ("cert=/x.pem", true, "belong together"),
            ("key=/x.pem", true, "belong together"),
            ("ca=", true, "a file"),
            ("insecure=no", true, "insecure=yes"),
            ("insecure=yes&ca=/x.pem", true, "leave one out"),
        ] {
            let error = read(query, tls).expect_err(query).to_string();
            assert!(error.contains(word), "{query}: {error}");
        }
    }
}
