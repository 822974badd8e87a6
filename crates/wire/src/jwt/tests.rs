//! Tokens of the standards, tokens by keys made here, and tokens that must be refused.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
    RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};

use super::*;

fn encode(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for place in 0..=group.len() {
            out.push(char::from(ALPHABET[(bits >> (18 - 6 * place)) as usize & 63]));
        }
    }
    out
}

/// A token with this header and signature.
fn token(header: &str, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let signed = format!("{}.{}", encode(header.as_bytes()), encode(b"{\"sub\":\"bob\"}"));
    format!("{signed}.{}", encode(&sign(signed.as_bytes())))
}

fn hmac_with(secret: &[u8]) -> impl Fn(&[u8]) -> Vec<u8> {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
    move |signed| aws_lc_rs::hmac::sign(&key, signed).as_ref().to_vec()
}

fn set(json: &str) -> KeySet {
    KeySet::parse(json.as_bytes()).unwrap_or_else(|what| panic!("{what}: {json}"))
}

fn pem(label: &str, der: &[u8]) -> String {
    let standard = encode(der).replace('-', "+").replace('_', "/");
    let padding = "=".repeat((4 - standard.len() % 4) % 4);
    let body = standard + &padding;
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).filter_map(|line| core::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// RFC 7515 appendix A.3, RFC 8037 appendix A.4.
#[test]
fn examples_of_the_standards_are_verified() {
    let cases = [
        (
            r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
                "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#,
            "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb2\
             90Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q",
            "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}",
        ),
        (
            r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#,
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dW\
             bhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg",
            "Example of Ed25519 signing",
        ),
    ];
    for (key, token, claims) in cases {
        assert_eq!(set(key).verify(token), Ok(claims.as_bytes().to_vec()));
        let wrong = token.replace(".h", ".i").replace(".D", ".E");
        assert_eq!(set(key).verify(&wrong), Err(Refusal::Invalid));
    }
}

#[test]
fn rsa_and_curves_are_verified_from_pem_and_json() {
    let random = SystemRandom::new();
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
    let with = |padding: &'static dyn RsaEncoding| {
        let (rsa, random) = (&rsa, &random);
        move |signed: &[u8]| {
            let mut signature = vec![0; rsa.public_modulus_len()];
            rsa.sign(padding, random, signed, &mut signature).expect("a signature");
            signature
        }
    };
    let public = rsa.public_key();
    // The header of the sequence (4 bytes), that of the modulus (4 bytes), and a zero byte (RFC 8017 appendix A.1.1).
    let modulus = &public.as_ref()[9..9 + 256];
    let json =
        format!(r#"{{"keys":[{{"kty":"RSA","kid":"1","n":"{}","e":"AQAB"}}]}}"#, encode(modulus));
    let der = public.as_der().expect("DER");
    let sets = [
        set(&json),
        set(&pem("PUBLIC KEY", der.as_ref())),
        set(&pem("RSA PUBLIC KEY", public.as_ref())),
    ];
    for keys in sets {
        let good = token(r#"{"alg":"RS256","kid":"1"}"#, with(&RSA_PKCS1_SHA256));
        assert_eq!(keys.verify(&good), Ok(b"{\"sub\":\"bob\"}".to_vec()));
        let good = token(r#"{"alg":"PS256"}"#, with(&RSA_PSS_SHA256));
        assert!(keys.verify(&good).is_ok());
        for header in
            [r#"{"alg":"PS256"}"#, r#"{"alg":"RS512"}"#, r#"{"alg":"ES256"}"#, r#"{"alg":"none"}"#]
        {
            let wrong = token(header, with(&RSA_PKCS1_SHA256));
            assert_eq!(keys.verify(&wrong), Err(Refusal::Invalid), "{header}");
        }
        // The public key is not secret, so it must not serve as the key of an HMAC.
        for secret in [der.as_ref(), public.as_ref(), pem("PUBLIC KEY", der.as_ref()).as_bytes()] {
            let forged = token(r#"{"alg":"HS256"}"#, hmac_with(secret));
            assert_eq!(keys.verify(&forged), Err(Refusal::Invalid));
        }
    }
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
    let der = pair.public_key().as_der().expect("DER");
    let sign = |signed: &[u8]| pair.sign(&random, signed).expect("a signature").as_ref().to_vec();
    let keys = set(&pem("PUBLIC KEY", der.as_ref()));
    assert!(keys.verify(&token(r#"{"alg":"ES256"}"#, sign)).is_ok());
    assert!(keys.verify(&token(r#"{"alg":"ES384"}"#, sign)).is_err());
}

/// Each algorithm verifies its own signatures. A longer or shorter signature, one more or one less part and another algorithm in
/// the header are refused.
#[test]
fn each_algorithm_verifies_its_own_signatures_only() {
    use aws_lc_rs::hmac;
    type Sign<'k> = Box<dyn Fn(&[u8]) -> Vec<u8> + 'k>;
    let random = SystemRandom::new();
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
    let curve = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a key");
    let large = EcdsaKeyPair::generate(&ECDSA_P521_SHA512_FIXED_SIGNING).expect("a key");
    let (x, y) = large.public_key().as_ref()[1..].split_at(66);
    let (x, y) = (encode(x), encode(y));
    let of_large = set(&format!(r#"{{"kty":"EC","crv":"P-521","x":"{x}","y":"{y}"}}"#));
    let of_file = set(&pem("PUBLIC KEY", large.public_key().as_der().expect("DER").as_ref()));
    let secret = [7; 64];
    let of_rsa = set(&pem("PUBLIC KEY", rsa.public_key().as_der().expect("DER").as_ref()));
    let of_curve = set(&pem("PUBLIC KEY", curve.public_key().as_der().expect("DER").as_ref()));
    let of_secret = KeySet::of_secret(&secret);
    let mac = |algorithm| -> Sign<'_> {
        let key = hmac::Key::new(algorithm, &secret);
        Box::new(move |signed: &[u8]| hmac::sign(&key, signed).as_ref().to_vec())
    };
    let with_rsa = |padding: &'static dyn RsaEncoding| -> Sign<'_> {
        let (rsa, random) = (&rsa, &random);
        Box::new(move |signed: &[u8]| {
            let mut signature = vec![0; rsa.public_modulus_len()];
            rsa.sign(padding, random, signed, &mut signature).expect("a signature");
            signature
        })
    };
    let with_curve: Sign<'_> = Box::new(|signed: &[u8]| {
        curve.sign(&random, signed).expect("a signature").as_ref().to_vec()
    });
    let with_large = || -> Sign<'_> {
        Box::new(|signed: &[u8]| {
            large.sign(&random, signed).expect("a signature").as_ref().to_vec()
        })
    };
    let cases: [(&str, &KeySet, Sign<'_>); 12] = [
        ("HS256", &of_secret, mac(hmac::HMAC_SHA256)),
        ("HS384", &of_secret, mac(hmac::HMAC_SHA384)),
        ("HS512", &of_secret, mac(hmac::HMAC_SHA512)),
        ("RS256", &of_rsa, with_rsa(&RSA_PKCS1_SHA256)),
        ("RS384", &of_rsa, with_rsa(&RSA_PKCS1_SHA384)),
        ("RS512", &of_rsa, with_rsa(&RSA_PKCS1_SHA512)),
        ("PS256", &of_rsa, with_rsa(&RSA_PSS_SHA256)),
        ("PS384", &of_rsa, with_rsa(&RSA_PSS_SHA384)),
        ("PS512", &of_rsa, with_rsa(&RSA_PSS_SHA512)),
        ("ES384", &of_curve, with_curve),
        ("ES512", &of_large, with_large()),
        ("ES512", &of_file, with_large()),
    ];
    let names = cases.iter().map(|(name, ..)| *name).chain(["ES256", "none", "UNKNOWN"]);
    let names: Vec<&str> = names.collect();
    for (algorithm, keys, sign) in &cases {
        for name in &names {
            let verified = keys.verify(&token(&format!(r#"{{"alg":"{name}"}}"#), sign));
            assert_eq!(verified.is_ok(), name == algorithm, "{name} signed by {algorithm}");
        }
        let good = token(&format!(r#"{{"alg":"{algorithm}"}}"#), sign);
        let parts: Vec<&str> = good.split('.').collect();
        for wrong in [
            format!("{good}abc"),
            good[..good.len() - 4].to_owned(),
            format!("{}.{}", parts[0], parts[1]),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{good}.{}", parts[2]),
        ] {
            assert_eq!(keys.verify(&wrong), Err(Refusal::Invalid), "{algorithm} {wrong}");
        }
    }
}

#[test]
fn name_and_algorithm_of_a_key_bind() {
    let secret = encode(&[7; 32]);
    let sign = hmac_with(&[7; 32]);
    let key = |more: &str| set(&format!(r#"{{"keys":[{{"kty":"oct","k":"{secret}"{more}}}]}}"#));
    let plain = r#"{"alg":"HS256"}"#;
    for (more, header, is_valid) in [
        ("", plain, true),
        ("", r#"{"alg":"HS256","kid":"x"}"#, true),
        (r#","kid":"x""#, r#"{"alg":"HS256","kid":"x"}"#, true),
        (r#","kid":"x""#, r#"{"alg":"HS256","kid":"y"}"#, false),
        (r#","kid":"x""#, plain, true),
        (r#","alg":"HS256""#, plain, true),
        (r#","alg":"HS512""#, plain, false),
        ("", r#"{"alg":"HS256","crit":["b64"]}"#, false),
        ("", r#"{"alg":"HS256","alg":"none"}"#, false),
        ("", r#"{"kid":"x"}"#, false),
        ("", "[]", false),
    ] {
        assert_eq!(key(more).verify(&token(header, &sign)).is_ok(), is_valid, "{more} {header}");
    }
    let long = token(plain, &sign) + &"a".repeat(TOKEN_BYTES_MAX);
    for wrong in ["", ".", "..", "a.b.c", "a.b", &long] {
        assert_eq!(key("").verify(wrong), Err(Refusal::Invalid));
    }
    assert!(KeySet::of_secret(b"").verify(&token(plain, hmac_with(b""))).is_err(), "no secret");
    assert!(KeySet::of_secret(&[7; 32]).verify(&token(plain, &sign)).is_ok());
}

#[test]
fn unusable_files_are_named() {
    let short = encode(&[7; 31]);
    for (content, what) in [
        (String::new(), "neither PEM nor JSON"),
        ("secret".to_owned(), "neither PEM nor JSON"),
        ("{".to_owned(), "not a set of keys (RFC 7517): line 1"),
        (r#"{"keys":[]}"#.to_owned(), "the file contains no key"),
        (
            r#"{"keys":[{"kty":"RSA","use":"enc"},{"kty":"other"}]}"#.to_owned(),
            "the file contains no key",
        ),
        (r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#.to_owned(), "key 1: RSA with less"),
        (
            r#"{"kty":"EC","crv":"P-256","x":"AA"}"#.to_owned(),
            "key 1: a required member is missing",
        ),
        (r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#.to_owned(), "key 1: not a valid"),
        (format!(r#"{{"kty":"oct","k":"{short}"}}"#), "key 1: a secret of less than 32 bytes"),
        (pem("PRIVATE KEY", b"x"), "a private key"),
        (pem("CERTIFICATE", b"x"), "a certificate"),
        (pem("PUBLIC KEY", b"x"), "a public key of an unsupported kind"),
    ] {
        let found = KeySet::parse(content.as_bytes()).expect_err(&content);
        assert!(found.starts_with(what), "{content}: {found}");
    }
}

#[test]
fn claims_are_found_by_name() {
    let claims = Claims::parse(
        br#"{"sub":"bob","n":7,"admin":true,"roles":["a","b",3],"a.b":"dot","realm":{"roles":["x"],"n":1},
            "scope":"read write","aud":"app","none":null}"#,
    )
    .expect("an object");
    let text = |name: &str| {
        let mut out = Vec::new();
        claims.append(name, &mut out);
        String::from_utf8(out).expect("text")
    };
    for (name, expected) in [
        ("sub", "bob"),
        ("n", "7"),
        ("admin", "true"),
        ("roles", "a,b,3"),
        ("a.b", "dot"),
        ("realm.roles", "x"),
        ("realm.n", "1"),
        ("realm", ""),
        ("realm.x.y", ""),
        ("none", ""),
        ("missing", ""),
    ] {
        assert_eq!(text(name), expected, "{name}");
    }
    for (name, wanted, expected) in [
        ("sub", "bob", true),
        ("sub", "bo", false),
        ("roles", "b", true),
        ("roles", "3", true),
        ("roles", "a,b", false),
        ("realm.roles", "x", true),
        ("scope", "write", true),
        ("scope", "read write", false),
        ("admin", "true", true),
        ("none", "", false),
        ("missing", "", false),
    ] {
        assert_eq!(claims.holds(name, wanted), expected, "{name} {wanted}");
    }
    assert_eq!((claims.text("sub"), claims.text("n")), (Some("bob"), None));
    assert!(Claims::parse(b"[]").is_err() && Claims::parse(b"").is_err());
}

#[test]
fn times_have_a_leeway() {
    let check = |claims: &str, now| {
        Claims::parse(claims.as_bytes()).and_then(|claims| claims.check_times(now, 5))
    };
    for (claims, now, expected) in [
        ("{}", 100, Ok(())),
        (r#"{"exp":100}"#, 104, Ok(())),
        (r#"{"exp":100}"#, 105, Err(Refusal::Expired)),
        (r#"{"exp":100.5}"#, 105, Ok(())),
        (r#"{"nbf":105}"#, 100, Ok(())),
        (r#"{"nbf":106}"#, 100, Err(Refusal::Expired)),
        (r#"{"exp":"100"}"#, 0, Err(Refusal::Invalid)),
        (r#"{"exp":null}"#, 0, Err(Refusal::Invalid)),
        (r#"{"exp":1e300}"#, u64::MAX / 2, Ok(())),
    ] {
        assert_eq!(check(claims, now), expected, "{claims} {now}");
    }
}

/// A set of one public key of Ed25519 (RFC 8037 appendix A.2), a secret and a key that cannot be used.
const PUBLISHED: &str = r#"{"keys":[
    {"kty":"OKP","crv":"Ed25519","kid":"NAME","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
    {"kty":"oct","kid":"s","k":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"},{"kty":"RSA","kid":"r","n":"AQAB","e":"AQAB"}]}"#;
/// A token of that key without `kid` (RFC 8037 appendix A.4).
const SIGNED: &str = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dW\
     bhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";

#[test]
fn fetched_keys_replace_each_other_and_stay_if_a_fetch_fails() {
    let keys = FetchedKeys::new();
    let (first, second) = (keys.reader(), keys.reader());
    assert_eq!(first.verify(SIGNED, 1000), Err(Unverified::Unavailable));
    let published = PUBLISHED.replace("NAME", "a");
    assert_eq!(keys.offer(published.as_bytes(), 1000), Ok(Some(1)));
    let version = first.version();
    assert_ne!(version, [0; 32]);
    assert!(first.verify(SIGNED, 1000).is_ok() && second.verify(SIGNED, 1000).is_ok());
    assert_eq!(keys.offer(published.as_bytes(), 1100), Ok(None), "the same content");
    for wrong in ["", "{}", r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#, "no key"] {
        assert!(keys.offer(wrong.as_bytes(), 1200).is_err(), "{wrong}");
        assert!(first.verify(SIGNED, 1200).is_ok() && first.version() == version);
    }
    let long = published.clone() + &" ".repeat(CONTENT_BYTES_MAX);
    assert!(keys.offer(long.as_bytes(), 1200).is_err());
    keys.note_failure(1300);
    let facts = FetchedKeysFacts { keys: 1, fetched_at: 1100, fetches: 2, failures: 6 };
    assert_eq!(keys.facts(), facts);
    // The key is withdrawn: every reader refuses its tokens, and has another version.
    let other = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;
    assert_eq!(keys.offer(other.as_bytes(), 1400), Ok(Some(1)));
    for reader in [&first, &second] {
        assert_ne!(reader.version(), version);
        assert_eq!(reader.verify(SIGNED, 1400), Err(Unverified::Refused(Refusal::Invalid)));
    }
    // So is every key, by an empty set.
    assert_eq!(keys.offer(published.as_bytes(), 1500), Ok(Some(1)));
    assert!(first.verify(SIGNED, 1500).is_ok());
    assert_eq!(keys.offer(br#"{"keys":[]}"#, 1600), Ok(Some(0)));
    assert!(first.verify(SIGNED, 1600).is_err());
}

#[test]
fn tokens_of_unknown_keys_demand_a_newer_set_at_a_bounded_rate() {
    let keys = FetchedKeys::new();
    let reader = keys.reader();
    let published = PUBLISHED.replace("NAME", "a");
    assert_eq!(keys.offer(published.as_bytes(), 1000), Ok(Some(1)));
    let unknown = token(r#"{"alg":"EdDSA","kid":"b"}"#, |_| vec![0; 64]);
    let forged = token(r#"{"alg":"EdDSA","kid":"a"}"#, |_| vec![0; 64]);
    let mut fetches = 0;
    for now in 1000..1100 {
        for _ in 0..50 {
            assert_eq!(reader.verify(&forged, now), Err(Unverified::Refused(Refusal::Invalid)));
            let expected = match now - (1000 + 10 * fetches) {
                0..10 => Unverified::UnknownKey,
                _ => Unverified::Unavailable,
            };
            assert_eq!(reader.verify(&unknown, now), Err(expected), "{now}");
        }
        if keys.is_wanted(now) {
            keys.take_wanted();
            assert_eq!(keys.offer(published.as_bytes(), now), Ok(None));
            fetches += 1;
        }
    }
    assert_eq!(fetches, 9);
    // A failed attempt does not prove that the key does not exist.
    keys.note_failure(1101);
    assert_eq!(reader.verify(&unknown, 1102), Err(Unverified::Unavailable));
    assert!(!keys.is_wanted(1110) && keys.is_wanted(1111));
    assert_eq!(keys.offer(PUBLISHED.replace("NAME", "b").as_bytes(), 1111), Ok(Some(1)));
    assert_eq!(reader.verify(&unknown, 1112), Err(Unverified::Refused(Refusal::Invalid)));
}

#[test]
fn published_sets_have_a_bounded_number_of_public_keys() {
    let key = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    let set = |count: usize| format!("{{\"keys\":[{}]}}", vec![key; count].join(","));
    assert_eq!(
        KeySet::parse_published(set(KEYS_MAX).as_bytes()).map(|set| set.len()),
        Ok(KEYS_MAX)
    );
    assert!(KeySet::parse_published(set(KEYS_MAX + 1).as_bytes()).is_err());
    let secret = hmac_with(&[0; 32]);
    let published = KeySet::parse_published(PUBLISHED.as_bytes()).expect("one usable key");
    assert!(published.verify(&token(r#"{"alg":"HS256","kid":"s"}"#, secret)).is_err());
    assert!(KeySet::parse_published(pem("PUBLIC KEY", b"x").as_bytes()).is_err());
}

#[test]
fn stated_claims_need_no_signature() {
    let token = |claims: &str| format!("e30.{}.AAAA", encode(claims.as_bytes()));
    let claims = super::stated_claims(&token("{\"sub\":\"bob\"}")).expect("they are readable");
    assert_eq!(claims.text("sub"), Some("bob"));
    for malformed in ["", "a", "a.b", "a.b.c", &token("[]")] {
        assert!(super::stated_claims(malformed).is_none(), "{malformed}");
    }
}
