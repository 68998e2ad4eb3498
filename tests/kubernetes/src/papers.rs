//! What the control plane and those who speak with it prove themselves by.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Files in PEM, and the word that opens everything.
#[derive(Clone, Debug)]
pub(crate) struct Papers {
    /// Who certified the API server.
    pub authority: PathBuf,
    /// The API server's certificate, for 127.0.0.1.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// What service accounts' tokens are signed with.
    pub signing: PathBuf,
    /// What their signatures are checked with.
    pub checking: PathBuf,
    /// Who may do what: `TOKEN,USER,ID,"GROUP"`.
    pub users: PathBuf,
    /// The token of one who may do everything.
    pub token: String,
}

impl Papers {
    pub fn make(folder: &Path) -> Self {
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().unwrap();
        let root = authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().unwrap();
        let names = ["127.0.0.1", "localhost"].map(str::to_owned);
        let own = CertificateParams::new(names).unwrap();
        let own = own.signed_by(&key, &issuer).unwrap();
        let accounts = KeyPair::generate().unwrap();
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        // Who has it may do everything, as root: other users of this machine must not guess it.
        let mut random = [0; 32];
        let mut source = fs::File::open("/dev/urandom").unwrap();
        source.read_exact(&mut random).unwrap();
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            authority: write("authority.pem", root.pem()),
            certificate: write("certificate.pem", own.pem()),
            key: write("key.pem", key.serialize_pem()),
            signing: write("accounts-key.pem", accounts.serialize_pem()),
            checking: write("accounts.pem", accounts.public_key_pem()),
            users: write(
                "users.csv",
                format!("{token},test,test,\"system:masters\"\n"),
            ),
            token,
        }
    }
}
