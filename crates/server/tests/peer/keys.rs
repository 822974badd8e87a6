//! TLS keys derived from a seed, so that a run over TLS repeats byte for byte.
//! In: a seed. Out: a self-signed certificate and its key, which is Ed25519 and signs without randomness.
//! Never: used outside tests.

use tidegate_base::Prng;
use tidegate_wire::tls::CertificateFiles;

/// The bytes before the seed in a PKCS #8 Ed25519 key (RFC 8410 section 7).
const PKCS8_BEGIN: [u8; 16] =
    [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// A certificate for `name`. `edit` may change its parameters before it is signed.
pub fn certificate(
    seed: u64,
    name: &str,
    edit: impl FnOnce(&mut rcgen::CertificateParams),
) -> CertificateFiles {
    let mut prng = Prng::new(seed ^ 0x6b_6579);
    let mut pkcs8 = PKCS8_BEGIN.to_vec();
    (0..4).for_each(|_| pkcs8.extend(prng.next_u64().to_le_bytes()));
    let key = rcgen::KeyPair::try_from(pkcs8).expect("any 32 bytes are a key");
    let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
    edit(&mut params);
    let certificate = params.self_signed(&key).expect("a certificate");
    CertificateFiles {
        chain_pem: certificate.pem().into_bytes(),
        key_pem: key.serialize_pem().into_bytes(),
        ocsp: None,
    }
}
