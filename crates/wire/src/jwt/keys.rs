//! The keys that verify tokens: secrets (RFC 7518 section 3.2), public keys in PEM, sets in JSON (RFC 7517).
//! In: the content of a file. Out: keys with the algorithms that each is meant for.
//! Never: lets a public key serve as a secret.
//! Limits: `KEYS_MAX` keys in a set.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519,
    ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384,
    RSA_PSS_2048_8192_SHA512, VerificationAlgorithm,
};
use serde::Deserialize;

use crate::base64;

/// Maximum number of keys of a set.
pub const KEYS_MAX: usize = 64;
/// The shortest modulus of RSA in bytes.
const MODULUS_BYTES_MIN: usize = 256;
/// The shortest secret of a set in bytes: a shorter one could be found by trying (RFC 7518 section 3.2).
const SECRET_BYTES_MIN: usize = 32;

/// An algorithm of public keys: its name in tokens (RFC 7518, RFC 8037), and its verification.
type PublicAlgorithm = (&'static str, &'static dyn VerificationAlgorithm);

const OF_RSA: [PublicAlgorithm; 6] = [
    ("RS256", &RSA_PKCS1_2048_8192_SHA256),
    ("RS384", &RSA_PKCS1_2048_8192_SHA384),
    ("RS512", &RSA_PKCS1_2048_8192_SHA512),
    ("PS256", &RSA_PSS_2048_8192_SHA256),
    ("PS384", &RSA_PSS_2048_8192_SHA384),
    ("PS512", &RSA_PSS_2048_8192_SHA512),
];
const OF_P256: [PublicAlgorithm; 1] = [("ES256", &ECDSA_P256_SHA256_FIXED)];
const OF_P384: [PublicAlgorithm; 1] = [("ES384", &ECDSA_P384_SHA384_FIXED)];
const OF_P521: [PublicAlgorithm; 1] = [("ES512", &ECDSA_P521_SHA512_FIXED)];
const OF_ED25519: [PublicAlgorithm; 1] = [("EdDSA", &ED25519)];

/// Keys that verify tokens.
#[derive(Default)]
pub struct KeySet {
    /// The keys, in the order of the file.
    keys: Vec<Key>,
}

/// One key.
pub(super) struct Key {
    /// Its key ID, which tokens may state (`kid`).
    id: Option<String>,
    /// The only algorithm that it is meant for, if its set states one.
    algorithm: Option<String>,
    /// The secret or the public key.
    material: Material,
}

/// The key that verifies signatures.
enum Material {
    /// The secret of HS256, HS384 and HS512.
    Secret(Vec<u8>),
    /// A public key, for each of its algorithms.
    Public(Vec<(&'static str, ParsedPublicKey)>),
}

impl core::fmt::Debug for KeySet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} keys", self.keys.len())
    }
}

impl KeySet {
    /// The set of this secret; no key if it is empty.
    #[must_use]
    pub fn of_secret(secret: &[u8]) -> Self {
        let material = Material::Secret(secret.to_vec());
        let key = Key { id: None, algorithm: None, material };
        Self { keys: if secret.is_empty() { Vec::new() } else { vec![key] } }
    }

    /// Reads the content of a file with public keys in PEM, or with keys in JSON.
    ///
    /// # Errors
    /// What is wrong. The text contains no part of a key.
    pub fn parse(content: &[u8]) -> Result<Self, String> {
        let text = core::str::from_utf8(content).map_err(|_| "not UTF-8".to_owned())?;
        Self::bounded(match text.trim_start().starts_with('{') {
            true => parse_json(text)?,
            false => parse_pem(text)?,
        })
    }

    /// Reads a set in JSON that an issuer of tokens publishes. Keys that cannot be used are left out, as RFC 7517 section 5
    /// recommends, and so are secrets, because a published secret protects nothing.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse_published(content: &[u8]) -> Result<Self, String> {
        let text = core::str::from_utf8(content).map_err(|_| "not UTF-8".to_owned())?;
        let all = read_json(text)?;
        // An issuer that withdraws all of its keys publishes an empty set.
        if all.is_empty() {
            return Ok(Self { keys: Vec::new() });
        }
        let public = all.into_iter().filter(|key| key.kty != "oct" && key.verifies());
        let usable = public.filter_map(|key| {
            let material = material_of(&key).ok().flatten()?;
            Some(Key { id: key.kid, algorithm: key.alg, material })
        });
        Self::bounded(usable.take(KEYS_MAX + 1).collect())
    }

    fn bounded(keys: Vec<Key>) -> Result<Self, String> {
        match keys.len() {
            0 => Err("the file contains no key that can verify tokens".to_owned()),
            1..=KEYS_MAX => Ok(Self { keys }),
            _ => Err(format!("more than {KEYS_MAX} keys")),
        }
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the set has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a key has this name, or no key has a name.
    pub(super) fn has_named(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key.id.as_deref() == Some(name))
            || self.keys.iter().all(|key| key.id.is_none())
    }

    /// The keys that may have signed a token with this header.
    pub(super) fn fitting<'k>(
        &'k self,
        algorithm: &'k str,
        id: Option<&'k str>,
    ) -> impl Iterator<Item = &'k Key> {
        self.keys.iter().filter(move |key| {
            let is_named = key.id.is_none() || id.is_none() || key.id.as_deref() == id;
            is_named
                && key.algorithm.as_deref().is_none_or(|only| only == algorithm)
                && key.supports(algorithm)
        })
    }
}

impl Key {
    fn supports(&self, algorithm: &str) -> bool {
        match &self.material {
            Material::Secret(_) => hmac_of(algorithm).is_some(),
            Material::Public(keys) => keys.iter().any(|(name, _)| *name == algorithm),
        }
    }

    /// Whether the key has made this signature with this algorithm.
    pub(super) fn has_signed(&self, algorithm: &str, signed: &[u8], signature: &[u8]) -> bool {
        match &self.material {
            Material::Secret(secret) => hmac_of(algorithm).is_some_and(|algorithm| {
                let key = hmac::Key::new(algorithm, secret);
                hmac::verify(&key, signed, signature).is_ok()
            }),
            Material::Public(keys) => {
                let key = keys.iter().find(|(name, _)| *name == algorithm);
                key.is_some_and(|(_, key)| key.verify_sig(signed, signature).is_ok())
            }
        }
    }
}

fn hmac_of(algorithm: &str) -> Option<hmac::Algorithm> {
    Some(match algorithm {
        "HS256" => hmac::HMAC_SHA256,
        "HS384" => hmac::HMAC_SHA384,
        "HS512" => hmac::HMAC_SHA512,
        _ => return None,
    })
}

/// The public key in `bytes`, for each of these algorithms; `None` if they are not such a key.
fn public_key(algorithms: &[PublicAlgorithm], bytes: &[u8]) -> Option<Material> {
    let parse = |(name, algorithm): &PublicAlgorithm| {
        Some((*name, ParsedPublicKey::new(*algorithm, bytes).ok()?))
    };
    algorithms.iter().map(parse).collect::<Option<Vec<_>>>().map(Material::Public)
}

/// Reads all public keys of a file in PEM (RFC 7468).
fn parse_pem(text: &str) -> Result<Vec<Key>, String> {
    let mut keys = Vec::new();
    for block in text.split("-----BEGIN ").skip(1) {
        let (label, rest) = block.split_once("-----").ok_or("a PEM block has no header line")?;
        if label.contains("PRIVATE KEY") {
            return Err(
                "a private key: only the public key is needed (openssl pkey -pubout)".to_owned()
            );
        }
        if label == "CERTIFICATE" {
            return Err(
                "a certificate: write its public key (openssl x509 -pubkey -noout)".to_owned()
            );
        }
        if label != "PUBLIC KEY" && label != "RSA PUBLIC KEY" {
            return Err(format!(
                "a PEM block {:?} is not a public key",
                label.escape_debug().to_string()
            ));
        }
        let (body, _) = rest.split_once("-----END ").ok_or("a PEM block has no end line")?;
        let body: Vec<u8> = body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let bytes = base64::decode(&body).ok_or("a PEM block is not base64")?;
        let kinds: [&[PublicAlgorithm]; 5] = [&OF_RSA, &OF_P256, &OF_P384, &OF_P521, &OF_ED25519];
        let material = kinds.iter().find_map(|kind| public_key(kind, &bytes));
        let help = "a public key of an unsupported kind; allowed: RSA (2048 to 8192 bits), P-256, P-384, P-521 and Ed25519";
        keys.push(Key { id: None, algorithm: None, material: material.ok_or(help)? });
    }
    match keys.is_empty() {
        true => Err("neither PEM nor JSON".to_owned()),
        false => Ok(keys),
    }
}

/// A set of keys in JSON (RFC 7517 section 5).
#[derive(Deserialize)]
struct JsonSet {
    /// The keys.
    keys: Vec<JsonKey>,
}

/// A key in JSON (RFC 7517, RFC 7518 section 6, RFC 8037).
#[derive(Deserialize)]
struct JsonKey {
    /// The kind of the key.
    kty: String,
    /// The use of the key: "sig" or "enc".
    #[serde(rename = "use")]
    purpose: Option<String>,
    /// The only algorithm that it is meant for.
    alg: Option<String>,
    /// Its name.
    kid: Option<String>,
    /// The curve of a key for ECDSA or EdDSA.
    crv: Option<String>,
    /// The modulus of an RSA key.
    n: Option<String>,
    /// The exponent of an RSA key.
    e: Option<String>,
    /// The x coordinate of a point, or the whole key of Ed25519.
    x: Option<String>,
    /// The y coordinate of a point.
    y: Option<String>,
    /// A secret.
    k: Option<String>,
}

impl JsonKey {
    /// Whether the key is meant for signatures.
    fn verifies(&self) -> bool {
        self.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
    }
}

/// Reads a set of keys, or a single key.
fn read_json(text: &str) -> Result<Vec<JsonKey>, String> {
    let read = |error: serde_json::Error| {
        format!("not a set of keys (RFC 7517): line {}, column {}", error.line(), error.column())
    };
    match serde_json::from_str::<JsonSet>(text) {
        Ok(set) => Ok(set.keys),
        Err(error) => match serde_json::from_str::<JsonKey>(text) {
            Ok(key) => Ok(vec![key]),
            Err(_) => Err(read(error)),
        },
    }
}

/// The keys in a file. Keys for encryption and of unknown kinds are left out, as RFC 7517 section 5 requires.
fn parse_json(text: &str) -> Result<Vec<Key>, String> {
    let mut keys = Vec::new();
    for (at, key) in read_json(text)?.into_iter().enumerate() {
        if !key.verifies() {
            continue;
        }
        if let Some(material) =
            material_of(&key).map_err(|what| format!("key {}: {what}", at + 1))?
        {
            keys.push(Key { id: key.kid, algorithm: key.alg, material });
        }
    }
    Ok(keys)
}

/// The material of a key; `None` if its kind is unknown.
fn material_of(key: &JsonKey) -> Result<Option<Material>, &'static str> {
    let part = |value: &Option<String>| {
        let text = value.as_deref().ok_or("a required member is missing")?;
        base64::decode(text.as_bytes()).ok_or("a member is not base64url")
    };
    let material = match (key.kty.as_str(), key.crv.as_deref()) {
        ("oct", _) => {
            let secret = part(&key.k)?;
            if secret.len() < SECRET_BYTES_MIN {
                return Err("a secret of less than 32 bytes");
            }
            Some(Material::Secret(secret))
        }
        ("RSA", _) => {
            let (n, e) = (part(&key.n)?, part(&key.e)?);
            if n.len() < MODULUS_BYTES_MIN {
                return Err("RSA with less than 2048 bits");
            }
            rsa_key(&n, &e)
        }
        ("EC", Some("P-256")) => public_key(&OF_P256, &point(&part(&key.x)?, &part(&key.y)?)),
        ("EC", Some("P-384")) => public_key(&OF_P384, &point(&part(&key.x)?, &part(&key.y)?)),
        ("EC", Some("P-521")) => public_key(&OF_P521, &point(&part(&key.x)?, &part(&key.y)?)),
        ("OKP", Some("Ed25519")) => public_key(&OF_ED25519, &part(&key.x)?),
        _ => return Ok(None),
    };
    material.map(Some).ok_or("not a valid public key")
}

/// An uncompressed point of a curve (SEC 1 section 2.3.3).
fn point(x: &[u8], y: &[u8]) -> Vec<u8> {
    [&[4], x, y].concat()
}

fn rsa_key(n: &[u8], e: &[u8]) -> Option<Material> {
    // Numbers in DER have no leading zeros, and a zero before a highest bit that is set (X.690 section 8.3).
    let number = |bytes: &[u8]| {
        let start = bytes.iter().position(|byte| *byte != 0)?;
        let bytes = bytes.get(start..)?;
        let sign: &[u8] = if bytes.first()? & 0x80 != 0 { &[0] } else { &[] };
        Some(tagged(0x02, &[sign, bytes].concat()))
    };
    public_key(&OF_RSA, &tagged(0x30, &[number(n)?, number(e)?].concat()))
}

/// A value in DER with this tag.
fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let count = content.len();
    let length: Vec<u8> = match count {
        0..=127 => vec![count as u8],
        128..=255 => vec![0x81, count as u8],
        _ => vec![0x82, (count >> 8) as u8, count as u8],
    };
    [&[tag], length.as_slice(), content].concat()
}
