//! An authority of a site, and the files that it writes for daemons.
#![allow(clippy::unwrap_used)]
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Its certificate in PEM, and what it issues with.
pub struct SiteAuthority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl SiteAuthority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self {
            pem: params.self_signed(&key).unwrap().pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for this URI, and its key.
    pub fn issue(&self, uri: &str) -> (String, String) {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        let key = KeyPair::generate().unwrap();
        let own = params.signed_by(&key, &self.issuer).unwrap();
        (own.pem(), key.serialize_pem())
    }

    /// Writes a daemon's three files into this folder; the certificate.
    pub fn write(&self, folder: &Path, uri: &str) -> String {
        fs::create_dir_all(folder).unwrap();
        let (certificate, key) = self.issue(uri);
        let [at_certificate, at_key, at_authority] = files(folder);
        fs::write(at_certificate, &certificate).unwrap();
        fs::write(&at_key, key).unwrap();
        fs::set_permissions(at_key, fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(at_authority, &self.pem).unwrap();
        certificate
    }
}

/// Certificate, key and authority, as cert-manager calls them.
pub fn files(folder: &Path) -> [PathBuf; 3] {
    ["tls.crt", "tls.key", "ca.crt"].map(|name| folder.join(name))
}
