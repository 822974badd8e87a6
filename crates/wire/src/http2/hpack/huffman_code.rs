//! The Huffman code of RFC 7541 Appendix B, as tables computed at compile time.
//! Out: the code of each byte for the encoder; lookup tables for the decoder.
//! Invariant: the code is canonical, so the lengths alone define it; `const` assertions check that it is
//! complete and that EOS is 30 ones.

/// The symbol that ends a string in theory. A string must not contain it (section 5.2).
pub(super) const EOS: u16 = 256;
/// Bits of the longest code.
const LENGTH_MAX: usize = 30;
/// Bits that one lookup of the decoder reads.
pub(super) const LOOKUP_BITS: usize = 12;

/// The length in bits of each byte's code.
#[rustfmt::skip]
pub(super) const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

const fn length_of(symbol: u16) -> usize {
    if symbol == EOS { LENGTH_MAX } else { LENGTHS[symbol as usize] as usize }
}

/// The code grouped by length.
pub(super) struct Groups {
    /// The symbols, ordered by length and then by value, which is the order of their codes.
    pub(super) symbols: [u16; 257],
    /// For each length, the position in `symbols` of its first symbol.
    pub(super) positions: [u16; LENGTH_MAX + 1],
    /// For each length, its first code, left-aligned in 32 bits.
    pub(super) first_codes: [u32; LENGTH_MAX + 1],
    /// For each length, the first left-aligned code of any greater length; 2^32 if there is none.
    pub(super) ends: [u64; LENGTH_MAX + 1],
}

/// The code grouped by length.
pub(super) static GROUPS: Groups = GROUPED;
const GROUPED: Groups = group();

const fn group() -> Groups {
    let mut groups = Groups {
        symbols: [0; 257],
        positions: [0; LENGTH_MAX + 1],
        first_codes: [0; LENGTH_MAX + 1],
        ends: [0; LENGTH_MAX + 1],
    };
    let mut position = 0;
    let mut code = 0_u64;
    let mut length = 1;
    while length <= LENGTH_MAX {
        groups.positions[length] = position;
        groups.first_codes[length] = code as u32;
        let mut symbol = 0;
        while symbol <= EOS {
            if length_of(symbol) == length {
                groups.symbols[position as usize] = symbol;
                position += 1;
                code += 1 << (32 - length);
            }
            symbol += 1;
        }
        groups.ends[length] = code;
        length += 1;
    }
    assert!(position == 257 && code == 1 << 32, "each symbol has a code and each code a symbol");
    groups
}

/// The code of one byte.
#[derive(Clone, Copy)]
pub(super) struct Code {
    /// The bits, right-aligned.
    pub(super) bits: u32,
    /// How many bits.
    pub(super) length: u32,
}

/// The code of each byte.
pub(super) static CODES: [Code; 256] = codes();

const fn codes() -> [Code; 256] {
    let mut codes = [Code { bits: 0, length: 0 }; 256];
    let mut position = 0;
    while position < 256 {
        let symbol = GROUPED.symbols[position];
        let length = length_of(symbol);
        let within = position as u32 - GROUPED.positions[length] as u32;
        let bits = (GROUPED.first_codes[length] >> (32 - length)) + within;
        codes[symbol as usize] = Code { bits, length: length as u32 };
        position += 1;
    }
    assert!(GROUPED.symbols[256] == EOS, "the last code, all ones, is EOS");
    codes
}

/// The symbols that `LOOKUP_BITS` bits begin with: no, one or two whole codes.
#[derive(Clone, Copy)]
pub(super) struct Lookup(u32);

impl Lookup {
    const NONE: Self = Self(0);

    const fn new(first: u8, first_bits: u32, second: u8, bits: u32, symbols: u32) -> Self {
        Self(first as u32 | (second as u32) << 8 | first_bits << 16 | bits << 20 | symbols << 24)
    }

    /// The symbols. The second is arbitrary if there is only one.
    #[inline]
    pub(super) const fn symbols(self) -> [u8; 2] {
        [self.0 as u8, (self.0 >> 8) as u8]
    }

    /// Bits of the first code.
    #[inline]
    pub(super) const fn first_bits(self) -> u32 {
        self.0 >> 16 & 0xf
    }

    /// Bits of all codes.
    #[inline]
    pub(super) const fn bits(self) -> u32 {
        self.0 >> 20 & 0xf
    }

    /// How many codes: 0 if the first code is longer than `LOOKUP_BITS`.
    #[inline]
    pub(super) const fn count(self) -> usize {
        (self.0 >> 24) as usize
    }
}

const LOOKUP_LENGTH: usize = 1 << LOOKUP_BITS;

/// For each value of `LOOKUP_BITS` bits, the codes that it begins with.
pub(super) static LOOKUP: [Lookup; LOOKUP_LENGTH] = lookup();

const _: () = assert!(LOOKUP_BITS < 16, "the fields of `Lookup` are 4 bits wide");
const _: () =
    assert!(size_of::<[Lookup; LOOKUP_LENGTH]>() <= 16 * 1024, "half of a common L1 cache");

const fn lookup() -> [Lookup; LOOKUP_LENGTH] {
    let single = lookup_of_one();
    let mut double = single;
    let mut bits = 0;
    while bits < LOOKUP_LENGTH {
        let first = single[bits];
        let second = single[(bits << first.bits()) % LOOKUP_LENGTH];
        let both = first.bits() + second.bits();
        if first.count() == 1 && second.count() == 1 && both as usize <= LOOKUP_BITS {
            let [a, b] = [first.symbols()[0], second.symbols()[0]];
            double[bits] = Lookup::new(a, first.bits(), b, both, 2);
        }
        bits += 1;
    }
    double
}

const fn lookup_of_one() -> [Lookup; LOOKUP_LENGTH] {
    let mut table = [Lookup::NONE; LOOKUP_LENGTH];
    let mut filled = 0;
    let mut position = 0;
    while length_of(GROUPED.symbols[position]) <= LOOKUP_BITS {
        let symbol = GROUPED.symbols[position];
        let length = length_of(symbol);
        let end = filled + (1 << (LOOKUP_BITS - length));
        while filled < end {
            table[filled] = Lookup::new(symbol as u8, length as u32, 0, length as u32, 1);
            filled += 1;
        }
        position += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Codes of each group of lengths, from Appendix B.
    #[test]
    fn codes_are_those_of_the_rfc() {
        for (symbol, bits, length) in [
            (b'0', 0x0, 5),
            (b't', 0x9, 5),
            (b' ', 0x14, 6),
            (b'u', 0x2d, 6),
            (b':', 0x5c, 7),
            (b'Z', 0xfd, 8),
            (b'!', 0x3f8, 10),
            (b'+', 0x7fb, 11),
            (b'#', 0xffa, 12),
            (0, 0x1ff8, 13),
            (b'}', 0x3ffd, 14),
            (b'{', 0x7ffe, 15),
            (b'\\', 0x7fff0, 19),
            (128, 0xfffe6, 20),
            (255, 0x3ffffee, 26),
            (254, 0x7fffff0, 27),
            (b'\n', 0x3ffffffc, 30),
            (22, 0x3ffffffe, 30),
        ] {
            let code = CODES[usize::from(symbol)];
            assert_eq!((code.bits, code.length), (bits, length), "symbol {symbol}");
        }
    }
}
