//! Forwards the signature checks of a verifier that wraps another one.
//! In: a wrapper with the field `verifier`. Out: the methods that rustls' two verifier traits share.
//! Never: changes a result.

/// The methods for handshake signatures of `ClientCertVerifier` and `ServerCertVerifier`, forwarded to
/// `self.verifier`.
macro_rules! forward_signature_checks {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            self.verifier.verify_tls12_signature(message, certificate, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &rustls::pki_types::CertificateDer<'_>,
            signed: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            self.verifier.verify_tls13_signature(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            self.verifier.supported_verify_schemes()
        }
    };
}
pub(super) use forward_signature_checks;
