//! Certificates for one test, from an authority of its own.

use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// An authority, and a folder for what it issues.
#[derive(Debug)]
pub struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM files. They go with their authority.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Authority {
    /// A fresh authority, trusted by nobody yet.
    ///
    /// # Panics
    /// When files cannot be written.
    pub fn new() -> Authority {
        let folder = tempfile::tempdir().expect("a folder");
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "an authority for tests");
        let certificate = params.self_signed(&key).expect("a certificate");
        fs::write(folder.path().join("ca.pem"), certificate.pem()).expect("writes");
        Authority {
            folder,
            issuer: Issuer::new(params, key),
        }
    }

    /// Its own certificate, for those who are to trust it.
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Issues a certificate for these host names and addresses.
    pub fn issue(&self, file: &str, subjects: &[&str]) -> Identity {
        self.issue_until(file, subjects, 2200)
    }

    /// Issues a certificate that is valid until the start of a year.
    ///
    /// # Panics
    /// When files cannot be written.
    pub fn issue_until(&self, file: &str, subjects: &[&str], year: i32) -> Identity {
        let subjects: Vec<String> = subjects.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(subjects).expect("names");
        params.not_after = date_time_ymd(year, 1, 1);
        params.distinguished_name.push(DnType::CommonName, file);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("issued");
        let identity = Identity {
            cert: self.folder.path().join(format!("{file}.pem")),
            key: self.folder.path().join(format!("{file}.key")),
        };
        fs::write(&identity.cert, certificate.pem()).expect("writes");
        fs::write(&identity.key, key.serialize_pem()).expect("writes");
        identity
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}
