//! An authority, and what it certifies.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// What a member of this machine's loopback address is called.
pub(crate) const HERE: [&str; 2] = ["127.0.0.1", "localhost"];

/// Files in PEM with which both the members and their clients prove themselves.
#[derive(Clone, Debug)]
pub struct Papers {
    /// For the members' addresses and names.
    pub certificate: PathBuf,
    /// The certificate's key.
    pub key: PathBuf,
    /// Who certified it.
    pub authority: PathBuf,
}

impl Papers {
    pub(crate) fn make(folder: &Path, name: &str, names: &[String]) -> Self {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let root = authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().unwrap();
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
