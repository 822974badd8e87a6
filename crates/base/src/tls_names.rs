//! The names of TLS algorithms. They are in this crate because `config` and `wire` both need them, and `config` may
//! not import `wire`.
//! In: nothing. Out: names, in order of preference.
//! Invariant: `wire::tls` has an algorithm for each name, in the same order (tested there).

/// IANA names of the cipher suites, in order of preference.
pub const CIPHER_NAMES: &[&str] = &[
    "TLS_AES_256_GCM_SHA384",
    "TLS_AES_128_GCM_SHA256",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

/// Names of the key exchange groups, in order of preference.
pub const GROUP_NAMES: &[&str] = &["X25519MLKEM768", "X25519", "P-256", "P-384"];
