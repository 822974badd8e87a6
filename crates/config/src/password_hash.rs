//! Checks the hashes of passwords in a file with users.
//! In: a hash as text. Out: the cost of verifying a password against it, or what is wrong with it.
//! Never: verifies a password; repeats the hash in a message.
//! Limits: `BCRYPT_COST`, `ROUNDS`, `MEMORY_KIB`, `PASSES_MAX`, `LANES_MAX`: a request of anyone can cause one
//! verification, so each of them is bounded to a few seconds of a thread and 256 MiB.
//! Invariant: the libraries that verify passwords accept every hash that is accepted here.

use core::ops::RangeInclusive;

/// The costs of bcrypt.
const BCRYPT_COST: RangeInclusive<u32> = 4..=16;
/// The rounds of SHA-crypt.
const ROUNDS: RangeInclusive<u32> = 1000..=2_000_000;
/// The rounds of SHA-crypt if the hash contains none.
const ROUNDS_DEFAULT: u32 = 5000;
/// The memory of argon2 in KiB.
const MEMORY_KIB: RangeInclusive<u32> = 8..=262_144;
/// Maximum number of passes of argon2 (`t`).
const PASSES_MAX: u32 = 16;
/// Maximum number of lanes of argon2 (`p`).
const LANES_MAX: u32 = 16;
/// The bytes of argon2's salt and output.
const SALT_BYTES: RangeInclusive<usize> = 8..=48;
const OUTPUT_BYTES: RangeInclusive<usize> = 10..=64;

/// The cost of verifying a password. Hashes with equal costs take the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HashCost {
    /// bcrypt: the binary logarithm of the rounds.
    Bcrypt(u32),
    /// SHA-crypt.
    ShaCrypt {
        /// SHA-512 instead of SHA-256.
        is_long: bool,
        /// The rounds.
        rounds: u32,
    },
    /// argon2.
    Argon2 {
        /// The variant.
        kind: Argon2Kind,
        /// The memory in KiB.
        memory: u32,
        /// The passes over the memory.
        passes: u32,
        /// The lanes.
        lanes: u32,
    },
}

/// A variant of argon2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Argon2Kind {
    /// argon2d
    D,
    /// argon2i
    I,
    /// argon2id
    Id,
}

impl HashCost {
    /// The cost of a hash.
    ///
    /// # Errors
    /// What is wrong with the hash.
    pub fn of(hash: &str) -> Result<Self, String> {
        let mut parts = hash.strip_prefix('$').unwrap_or_default().split('$');
        let kind = parts.next().unwrap_or_default();
        let rest: Vec<&str> = parts.collect();
        match kind {
            "2a" | "2b" | "2y" => bcrypt(&rest),
            "5" => sha_crypt(false, &rest),
            "6" => sha_crypt(true, &rest),
            "argon2d" => argon2(Argon2Kind::D, &rest),
            "argon2i" => argon2(Argon2Kind::I, &rest),
            "argon2id" => argon2(Argon2Kind::Id, &rest),
            _ => Err("the hash is not of bcrypt, argon2 or SHA-crypt".to_owned()),
        }
    }
}

/// `$2y$COST$SALT-AND-HASH`
fn bcrypt(parts: &[&str]) -> Result<HashCost, String> {
    let [cost, text] = parts else { return Err(malformed("bcrypt")) };
    let is_whole = text.len() == 53 && is_crypt_text(text) && cost.len() == 2;
    let cost = is_whole.then(|| number(cost)).flatten().ok_or_else(|| malformed("bcrypt"))?;
    bounded("the cost of bcrypt", cost, &BCRYPT_COST, "")?;
    Ok(HashCost::Bcrypt(cost))
}

/// `$6$rounds=N$SALT$HASH`; the rounds may be missing.
fn sha_crypt(is_long: bool, parts: &[&str]) -> Result<HashCost, String> {
    let (rounds, parts) = match parts {
        [first, rest @ ..] if first.starts_with("rounds=") => {
            let rounds = first.strip_prefix("rounds=").and_then(number);
            (rounds.ok_or_else(|| malformed("SHA-crypt"))?, rest)
        }
        all => (ROUNDS_DEFAULT, all),
    };
    let [salt, text] = parts else { return Err(malformed("SHA-crypt")) };
    let length = if is_long { 86 } else { 43 };
    let is_salt = (1..=16).contains(&salt.len()) && is_crypt_text(salt);
    if !is_salt || text.len() != length || !is_crypt_text(text) {
        return Err(malformed("SHA-crypt"));
    }
    bounded("`rounds` of SHA-crypt", rounds, &ROUNDS, "")?;
    Ok(HashCost::ShaCrypt { is_long, rounds })
}

/// `$argon2id$v=19$m=MEMORY,t=PASSES,p=LANES$SALT$HASH`; the version may be missing.
fn argon2(kind: Argon2Kind, parts: &[&str]) -> Result<HashCost, String> {
    let wrong = || malformed("argon2");
    let parts = match parts {
        ["v=16" | "v=19", rest @ ..] => rest,
        all => all,
    };
    let [settings, salt, output] = parts else { return Err(wrong()) };
    let mut values = settings.split(',');
    let mut value = |name: &str| values.next()?.strip_prefix(name).and_then(number);
    let (memory, passes, lanes) = (value("m="), value("t="), value("p="));
    let (Some(memory), Some(passes), Some(lanes), None) = (memory, passes, lanes, values.next())
    else {
        return Err(wrong());
    };
    let has_length = |text: &str, bytes: &RangeInclusive<usize>| {
        is_base64(text) && bytes.contains(&(text.len() * 3 / 4))
    };
    if !has_length(salt, &SALT_BYTES) || !has_length(output, &OUTPUT_BYTES) {
        return Err(wrong());
    }
    bounded("`m` of argon2", memory, &MEMORY_KIB, " KiB (256 MiB)")?;
    bounded("`t` of argon2", passes, &(1..=PASSES_MAX), "")?;
    bounded("`p` of argon2", lanes, &(1..=LANES_MAX), "")?;
    if memory < 8 * lanes {
        return Err("`m` of argon2 is less than eight times `p`".to_owned());
    }
    Ok(HashCost::Argon2 { kind, memory, passes, lanes })
}

fn malformed(kind: &str) -> String {
    format!("the {kind} hash is incomplete or malformed")
}

fn bounded(
    what: &str,
    value: u32,
    allowed: &RangeInclusive<u32>,
    unit: &str,
) -> Result<(), String> {
    match allowed.contains(&value) {
        true => Ok(()),
        false => {
            let (least, most) = (allowed.start(), allowed.end());
            Err(format!("{what} is {value}; allowed: {least} to {most}{unit}"))
        }
    }
}

/// A number without a sign; leading zeros only as in "05" of bcrypt.
fn number(text: &str) -> Option<u32> {
    let is_number = (1..=10).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u32::MAX))
}

/// Whether the text has only the digits that the crypt formats use.
fn is_crypt_text(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/'))
}

/// Whether the text is base64 without padding.
fn is_base64(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    text.len() % 4 != 1 && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sha(rounds: &str, salt: &str) -> String {
        format!("$6${rounds}{salt}${}", "a".repeat(86))
    }

    fn argon(settings: &str) -> String {
        format!("$argon2id$v=19${settings}$c29tZXNhbHQ${}", "a".repeat(43))
    }

    #[test]
    fn cost_is_read_from_whole_hashes() {
        let blowfish = "a".repeat(53);
        for (hash, cost) in [
            (format!("$2y$05${blowfish}"), HashCost::Bcrypt(5)),
            (format!("$2b$16${blowfish}"), HashCost::Bcrypt(16)),
            (sha("", "salt"), HashCost::ShaCrypt { is_long: true, rounds: 5000 }),
            (sha("rounds=656000$", "s"), HashCost::ShaCrypt { is_long: true, rounds: 656_000 }),
            (
                format!("$5$a${}", "a".repeat(43)),
                HashCost::ShaCrypt { is_long: false, rounds: 5000 },
            ),
            (
                argon("m=65536,t=3,p=4"),
                HashCost::Argon2 { kind: Argon2Kind::Id, memory: 65_536, passes: 3, lanes: 4 },
            ),
            (
                argon("m=262144,t=16,p=16").replace("id$v=19", "i"),
                HashCost::Argon2 { kind: Argon2Kind::I, memory: 262_144, passes: 16, lanes: 16 },
            ),
        ] {
            assert_eq!(HashCost::of(&hash), Ok(cost), "{hash}");
        }
    }

    #[test]
    fn broken_and_excessive_hashes_are_refused() {
        let blowfish = "a".repeat(53);
        let long = "s".repeat(17);
        for (hash, reason) in [
            ("", "the hash is not of bcrypt"),
            ("secret", "the hash is not of bcrypt"),
            ("$apr1$a$b", "the hash is not of bcrypt"),
            ("$2y$31$short", "the bcrypt hash is incomplete or malformed"),
            (&format!("$2y$17${blowfish}"), "the cost of bcrypt is 17; allowed: 4 to 16"),
            (&format!("$2y$03${blowfish}"), "the cost of bcrypt is 3;"),
            (&format!("$2y$+5${blowfish}"), "the bcrypt hash is incomplete or malformed"),
            (&format!("$2y$05${}!", "a".repeat(52)), "the bcrypt hash is incomplete or malformed"),
            ("$6$x", "the SHA-crypt hash is incomplete or malformed"),
            ("$5$", "the SHA-crypt hash is incomplete or malformed"),
            ("$6$rounds=abc$x$y", "the SHA-crypt hash is incomplete or malformed"),
            (&sha("", &long), "the SHA-crypt hash is incomplete or malformed"),
            (&sha("", ""), "the SHA-crypt hash is incomplete or malformed"),
            (&sha("rounds=2000001$", "s"), "`rounds` of SHA-crypt is 2000001; allowed: 1000 to"),
            (&sha("rounds=999999999$", "s"), "`rounds` of SHA-crypt is 999999999;"),
            (&sha("rounds=999$", "s"), "`rounds` of SHA-crypt is 999;"),
            ("$argon2id$v=19$garbage", "the argon2 hash is incomplete or malformed"),
            (&argon("m=65536,t=3"), "the argon2 hash is incomplete or malformed"),
            (&argon("t=3,m=65536,p=1"), "the argon2 hash is incomplete or malformed"),
            (&argon("m=65536,t=3,p=1,x=1"), "the argon2 hash is incomplete or malformed"),
            (&argon("m=262145,t=1,p=1"), "`m` of argon2 is 262145; allowed: 8 to 262144 KiB"),
            (&argon("m=9999999999,t=1,p=1"), "`m` of argon2 is 4294967295;"),
            (&argon("m=65536,t=17,p=1"), "`t` of argon2 is 17; allowed: 1 to 16"),
            (&argon("m=65536,t=0,p=1"), "`t` of argon2 is 0;"),
            (&argon("m=65536,t=1,p=17"), "`p` of argon2 is 17;"),
            (&argon("m=8,t=1,p=2"), "`m` of argon2 is less than eight times"),
            (
                &argon("m=8,t=1,p=1").replace("c29t", ""),
                "the argon2 hash is incomplete or malformed",
            ),
        ] {
            let fault = HashCost::of(hash).expect_err(hash);
            assert!(fault.starts_with(reason), "{hash}: {fault}");
        }
    }
}
