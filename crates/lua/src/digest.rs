//! Checksums that protocols still use although they are not secure: MD5 (RFC 1321) and CRC-32.
//! In: bytes. Out: digests.
//! Never: is used to authenticate data. The secure digests are in `tide.hash`.

/// The shifts of the four steps in each round.
const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The constant of a step: the integer part of 2^32 times the absolute value of its sine.
fn sine_of(step: usize) -> u32 {
    (((step + 1) as f64).sin().abs() * 4_294_967_296.0) as u32
}

/// The MD5 digest.
pub(crate) fn md5(data: &[u8]) -> [u8; 16] {
    let sines: [u32; 64] = core::array::from_fn(sine_of);
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let (blocks, rest) = data.as_chunks::<64>();
    for block in blocks {
        add_block(&mut state, block, &sines);
    }
    // The last block, or the last two: a one bit, zeros and the number of bits.
    let mut end = [0; 128];
    end[..rest.len()].copy_from_slice(rest);
    end[rest.len()] = 0x80;
    let length = if rest.len() < 56 { 64 } else { 128 };
    end[length - 8..length].copy_from_slice(&(data.len() as u64).wrapping_mul(8).to_le_bytes());
    for block in end[..length].as_chunks::<64>().0 {
        add_block(&mut state, block, &sines);
    }
    let mut digest = [0; 16];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

fn add_block(state: &mut [u32; 4], block: &[u8; 64], sines: &[u32; 64]) {
    let word = |at: usize| {
        let [a, b, c, d] = [0, 1, 2, 3].map(|byte| block[4 * at + byte]);
        u32::from_le_bytes([a, b, c, d])
    };
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64 {
        let (mix, at) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, (5 * step + 1) % 16),
            2 => (b ^ c ^ d, (3 * step + 5) % 16),
            _ => (c ^ (b | !d), 7 * step % 16),
        };
        let sum = a.wrapping_add(mix).wrapping_add(sines[step]).wrapping_add(word(at));
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16][step % 4]));
    }
    for (value, add) in state.iter_mut().zip([a, b, c, d]) {
        *value = value.wrapping_add(add);
    }
}

/// The CRC-32 of Ethernet, gzip and PNG.
pub(crate) fn crc32(data: &[u8]) -> u32 {
    /// The polynomial, with its bits in reverse order.
    const POLYNOMIAL: u32 = 0xedb8_8320;
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let (mut value, mut bit) = (byte as u32, 0);
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
                bit += 1;
            }
            table[byte] = value;
            byte += 1;
        }
        table
    };
    let add = |crc: u32, byte: &u8| crc >> 8 ^ TABLE[((crc ^ u32::from(*byte)) & 0xff) as usize];
    !data.iter().fold(!0, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test suite of RFC 1321, and the lengths around the end of a block.
    #[test]
    fn digests_are_those_of_the_standard() {
        let hex =
            |data: &[u8]| md5(data).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let digits = "1234567890".repeat(8);
        for (text, digest) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            (&digits, "57edf4a22be3c955ac49da2e2107b67a"),
        ] {
            assert_eq!(hex(text.as_bytes()), digest, "{text}");
        }
        let of = |count| hex(&vec![b'a'; count]);
        assert_eq!(of(55), "ef1772b6dff9a122358552954ad0df65");
        assert_eq!(of(56), "3b0c8ac703f828b04c6c197006d17218");
        assert_eq!(of(64), "014842d480b571495a4a0363793f7367");
        assert_eq!((crc32(b""), crc32(b"123456789")), (0, 0xcbf4_3926));
    }
}
