//! An authority, and what it certifies.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Files in PEM with which both the members and their clients prove themselves.
#[derive(Clone, Debug)]
pub struct Papers {
    /// For 127.0.0.1 and localhost.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// Who certified it.
    pub authority: PathBuf,
}

impl Papers {
    pub(crate) fn make(folder: &Path, name: &str) -> Self {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let root = authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().unwrap();
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let own = CertificateParams::new(names).unwrap();
        let own = own.signed_by(&key, &issuer).unwrap();
        let write = |kind: &str, pem: String| {
            let path = folder.join(format!("{name}-{kind}.pem"));
            std::fs::write(&path, pem).unwrap();
            path
        };
        Self {
            certificate: write("certificate", own.pem()),
            key: write("key", key.serialize_pem()),
            authority: write("authority", root.pem()),
        }
    }
}
