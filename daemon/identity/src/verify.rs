//! Whom a calling side believes.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

/// What a verifier of callers or callees has besides whom it takes: signatures are looked at by another verifier.
macro_rules! signatures_by {
    ($own:ident => $verifier:expr) => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let $own = self;
            $verifier.verify_tls12_signature(message, certificate, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            let $own = self;
            $verifier.verify_tls13_signature(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            let $own = self;
            $verifier.supported_verify_schemes()
        }
    };
}
pub(crate) use signatures_by;

/// Takes whoever is certified and has this name, at whatever address or by whatever name it was called.
#[derive(Debug)]
pub(crate) struct Named {
    pub verifier: Arc<WebPkiServerVerifier>,
    pub name: ServerName<'static>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _called: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verifier = &self.verifier;
        verifier.verify_server_cert(own, between, &self.name, ocsp, now)
    }

    signatures_by!(own => own.verifier);
}
