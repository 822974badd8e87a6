//! Body of the fuzz target `hpack`.
//! In: any bytes, read as steps of a connection: settings, idle times, header blocks. Out: nothing; panics if a
//! check fails.
//! Checks: no panic; delivery and memory stay within their bounds; a decoder with narrow limits stays in step
//! with a decoder with wide limits; accepted fields survive encoding and decoding.
//! Never: called on the data path.

use super::{
    Decoded, Decoder, Encoder, FIELD_OVERHEAD_BYTES, Fault, Field, Indexing, Limits,
    OVERRUN_FACTOR, Scratch, TABLE_BYTES_MAX,
};
use core::ops::ControlFlow;

const WIDE: Limits = Limits { fields_max: 300, crumbs_max: 300, list_bytes_max: 64 * 1024 };
const NARROW: Limits = Limits { fields_max: 5, crumbs_max: 2, list_bytes_max: 512 };

/// A name, a value, and whether the field is sensitive.
type Owned = (Vec<u8>, Vec<u8>, bool);

/// Runs the steps in `data`. Each step is a byte for its kind, a byte for its length or a size in units of
/// 16 bytes, and for a block its bytes.
pub fn fuzz_hpack(data: &[u8]) {
    let mut ends = Ends::new();
    let mut rest = data;
    while let [kind, size, after @ ..] = rest {
        rest = after;
        match kind {
            0xf0 => ends.set_decoder_limit(u32::from(*size) * 16),
            0xf1 => ends.set_encoder_limit(u32::from(*size) * 16),
            0xf2 => ends.encoder.release(),
            0xf3 => ends.wide.shrink(),
            _ => {
                let (block, after) = rest.split_at(usize::from(*size).min(rest.len()));
                rest = after;
                if ends.decode_hostile(block).is_err() {
                    return;
                }
            }
        }
    }
}

/// A hostile peer's two decoders, and an encoder with the decoder of its peer.
struct Ends {
    scratch: Scratch,
    wide: Decoder,
    narrow: Decoder,
    encoder: Encoder,
    peer: Decoder,
}

impl Ends {
    const fn new() -> Self {
        Self {
            scratch: Scratch::new(),
            wide: Decoder::new(),
            narrow: Decoder::new(),
            encoder: Encoder::new(2048),
            peer: Decoder::new(),
        }
    }

    fn set_decoder_limit(&mut self, bytes: u32) {
        self.wide.acknowledge_table_limit(bytes);
        self.narrow.acknowledge_table_limit(bytes);
    }

    fn set_encoder_limit(&mut self, bytes: u32) {
        self.encoder.set_peer_table_limit(bytes);
        self.peer.acknowledge_table_limit(bytes);
    }

    fn decode_hostile(&mut self, block: &[u8]) -> Result<(), Fault> {
        let wide = decode(&mut self.wide, &mut self.scratch, block, &WIDE);
        let narrow = decode(&mut self.narrow, &mut self.scratch, block, &NARROW);
        assert!(self.wide.held_bytes() <= TABLE_BYTES_MAX as usize);
        let (wide, fields) = match wide {
            Ok(decoded) => decoded,
            Err(fault) => {
                assert!(narrow.is_err() && self.wide.held_bytes() == 0);
                let again = decode(&mut self.wide, &mut self.scratch, &[0x82], &WIDE);
                assert_eq!(again, Err(fault), "a broken decoder decodes nothing");
                return Err(fault);
            }
        };
        self.encode_again(&fields);
        let (narrow, some) = narrow.inspect_err(|fault| assert!(fault.is_excess()))?;
        assert_eq!((narrow.fields, narrow.crumbs), (wide.fields, wide.crumbs));
        assert_eq!(narrow.list_bytes, wide.list_bytes);
        assert!(fields.starts_with(&some));
        assert!(narrow.undelivered.is_some() || some == fields);
        Ok(())
    }

    /// Encodes delivered fields, twice so that they repeat, and decodes them.
    fn encode_again(&mut self, fields: &[Owned]) {
        for _ in 0..2 {
            let mut out = Vec::new();
            let mut block = self.encoder.begin(&mut out);
            for (name, value, is_sensitive) in fields {
                let indexing = if *is_sensitive { Indexing::Never } else { Indexing::Auto };
                block.encode_field(name, value, indexing);
            }
            let (decoded, again) = decode(&mut self.peer, &mut self.scratch, &out, &WIDE)
                .unwrap_or_else(|fault| unreachable!("own block: {fault}"));
            assert_eq!(decoded.undelivered, None);
            assert!(again.iter().zip(fields).all(|(got, sent)| {
                (&got.0, &got.1) == (&sent.0, &sent.1) && (got.2 || !sent.2)
            }));
            assert_eq!(again.len(), fields.len());
        }
        assert!(self.encoder.held_bytes() <= 2048 + 128 && self.peer.held_bytes() <= 4096);
    }
}

fn decode(
    decoder: &mut Decoder,
    scratch: &mut Scratch,
    block: &[u8],
    limits: &Limits,
) -> Result<(Decoded, Vec<Owned>), Fault> {
    let mut fields = Vec::new();
    let mut bytes = 0;
    let mut sink = |field: Field<'_>| {
        bytes += field.name.len() + field.value.len() + FIELD_OVERHEAD_BYTES;
        fields.push((field.name.to_vec(), field.value.to_vec(), field.is_sensitive));
        ControlFlow::Continue(())
    };
    let result = decoder.decode(block, limits, scratch, &mut sink);
    assert!(fields.len() <= limits.fields_max + limits.crumbs_max);
    assert!(bytes <= limits.list_bytes_max);
    let decoded = result?;
    assert!(decoded.list_bytes <= limits.list_bytes_max * OVERRUN_FACTOR);
    assert!(decoded.undelivered.is_some() || decoded.fields + decoded.crumbs == fields.len());
    Ok((decoded, fields))
}
