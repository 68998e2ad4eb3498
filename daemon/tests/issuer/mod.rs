//! An authority of a site, and the files that it writes for daemons.
#![allow(clippy::unwrap_used)]
use robust_identity::{DaemonName, Term};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// As `robustctl ca init` makes one.
pub struct SiteAuthority(robust_identity::SiteAuthority);

impl SiteAuthority {
    pub fn new() -> Self {
        Self(
            robust_identity::SiteAuthority::new(Term::unbounded())
                .unwrap()
                .0,
        )
    }

    /// A certificate for this URI, and its key.
    pub fn issue(&self, uri: &str) -> (String, String) {
        let name = DaemonName::of(uri).unwrap();
        self.0.issue(&name, Term::unbounded()).unwrap()
    }

    /// Writes a daemon's three files into this folder; the certificate.
    pub fn write(&self, folder: &Path, uri: &str) -> String {
        fs::create_dir_all(folder).unwrap();
        let (certificate, key) = self.issue(uri);
        let [at_certificate, at_key, at_authority] = files(folder);
        fs::write(at_certificate, &certificate).unwrap();
        fs::write(&at_key, key).unwrap();
        fs::set_permissions(at_key, fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(at_authority, self.0.certificate()).unwrap();
        certificate
    }
}

/// Certificate, key and authority, as cert-manager calls them.
pub fn files(folder: &Path) -> [PathBuf; 3] {
    ["tls.crt", "tls.key", "ca.crt"].map(|name| folder.join(name))
}
