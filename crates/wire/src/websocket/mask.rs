//! The masking of client frames (RFC 6455 section 5.3): XOR with a repeated key of four bytes.
//! In: a piece of a payload and the key. Out: the piece masked or unmasked in place; the key for the next piece.
//! Never: needs a piece to begin at a multiple of four or at an aligned address.
//! Invariant: masking a payload in pieces equals masking it at once; masking twice restores it.

/// The key of a masked frame. Clients draw a new unpredictable key for each frame (section 10.3).
pub type MaskKey = [u8; 4];

/// Bytes masked by one step of the wide loop. The compiler turns a step into vector instructions.
const STEP_BYTES: usize = 64;

/// Masks or unmasks `data` in place. Returns the key rotated so that it fits the payload byte after `data`.
#[inline]
pub fn apply_mask(data: &mut [u8], key: MaskKey) -> MaskKey {
    let word = u64::from_ne_bytes([key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3]]);
    let length = data.len();
    let (steps, rest) = data.as_chunks_mut::<STEP_BYTES>();
    for step in steps {
        let (words, _) = step.as_chunks_mut::<8>();
        for bytes in words {
            *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
        }
    }
    let (words, rest) = rest.as_chunks_mut::<8>();
    for bytes in words {
        *bytes = (u64::from_ne_bytes(*bytes) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
    rotate(key, length)
}

/// The key after `bytes` bytes of payload.
const fn rotate(key: MaskKey, bytes: usize) -> MaskKey {
    let [a, b, c, d] = key;
    match bytes % 4 {
        0 => key,
        1 => [b, c, d, a],
        2 => [c, d, a, b],
        _ => [d, a, b, c],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masking_equals_the_bytewise_definition_at_any_offset_and_length() {
        let key = [0x37, 0xfa, 0x21, 0x3d];
        for start in 0..9 {
            for length in (0..200).chain([1000, 4096, 5000]) {
                let mut data: Vec<u8> = (0..start + length).map(|index| index as u8).collect();
                let mut wanted = data.clone();
                for (index, byte) in wanted[start..].iter_mut().enumerate() {
                    *byte ^= key[index % 4];
                }
                let next = apply_mask(&mut data[start..], key);
                assert_eq!(data, wanted);
                assert_eq!(next[0], key[length % 4]);
                assert_eq!(next[3], key[(length + 3) % 4]);
            }
        }
    }

    #[test]
    fn example_of_rfc_6455_section_5_7_is_masked() {
        let mut data = *b"\x7f\x9f\x4d\x51\x58";
        apply_mask(&mut data, [0x37, 0xfa, 0x21, 0x3d]);
        assert_eq!(&data, b"Hello");
    }
}
