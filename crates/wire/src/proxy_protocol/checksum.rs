//! CRC-32c (RFC 3720 appendix B.4) with a table built at compile time. A header is short and occurs once for
//! each connection, so a faster method would make no visible difference.
//! In: bytes. Out: their checksum.

/// The Castagnoli polynomial with its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = table();

/// The checksum of `bytes`.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_of([bytes])
}

/// The checksum of the concatenation of `parts`.
pub(super) fn crc32c_of<const PARTS: usize>(parts: [&[u8]; PARTS]) -> u32 {
    let mut sum = u32::MAX;
    for byte in parts.into_iter().flatten() {
        sum = TABLE[usize::from(sum as u8 ^ byte)] ^ (sum >> 8);
    }
    !sum
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_match_the_examples_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), 0x46dd_794e);
        assert_eq!(crc32c_of([&rising[..5], &[], &rising[5..]]), 0x46dd_794e);
    }
}
