//! Certificates and keys out of texts in PEM.

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// What a text has; it says why it has none.
type Read<T> = Result<T, String>;

/// All certificates of a text, of which there is one at least.
pub(crate) fn certificates(text: &str) -> Read<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, Error> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let all = all.map_err(|error| error.to_string())?;
    match all.is_empty() {
        true => Err("no certificate".to_owned()),
        false => Ok(all),
    }
}

/// The first private key of a text.
pub(crate) fn key(text: &str) -> Read<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Authority, Term};

    #[test]
    fn a_text_has_its_certificates_in_their_order_and_its_key_or_says_why_not() {
        let authority = Authority::of(b"a", "demo").unwrap();
        let issued = authority.issue("role/1", Term::unbounded()).unwrap();
        let all = certificates(&issued).unwrap();
        assert_eq!(all[1..], certificates(authority.certificate()).unwrap());
        assert!(key(&issued).is_ok() && key(authority.certificate()).is_err());
        assert_eq!(certificates("nothing"), Err("no certificate".to_owned()));
        let torn = issued.replacen("-----END", "", 1);
        assert!(certificates(&torn).is_err());
    }
}
