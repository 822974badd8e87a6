//! Every bound of an HTTP/2 connection that is not a setting of `Config`, with the attack that it stops.
//! Out: constants. `flood.rs` has the rates; `hpack` has the bounds of a header block's decoding.

use super::hpack::TABLE_BYTES_INITIAL;

/// The largest payload of a frame that this side accepts: SETTINGS_MAX_FRAME_SIZE keeps its initial value
/// (RFC 9113 section 6.5.2).
pub const FRAME_BYTES_MAX: u32 = 16_384;
/// The largest payload of a DATA frame that this side sends. With its frame head it fills one TLS record, so
/// that it is not split into two.
pub const DATA_BYTES_MAX: usize = 16_375;
/// The largest flow-control window (RFC 9113 section 6.9.1).
pub const WINDOW_MAX: u32 = 0x7fff_ffff;
/// The flow-control windows before any SETTINGS or WINDOW_UPDATE (RFC 9113 section 6.9.2).
pub const WINDOW_INITIAL: u32 = 65_535;
/// The largest stream id (RFC 9113 section 5.1.1).
pub const STREAM_ID_MAX: u32 = 0x7fff_ffff;

/// CONTINUATION frames of one header block (CVE-2024-27316 and others). Four are enough for the largest
/// default header list; a peer that sends smaller fragments gets some more.
pub const CONTINUATIONS_MAX: u8 = 16;
/// Entries of one SETTINGS frame (CVE-2020-11080). RFC 9113 and its extensions define nine.
pub const SETTINGS_ENTRIES_MAX: usize = 32;
/// Bytes of replies (to PING and SETTINGS, and RST_STREAM) that may wait for a peer that does not read
/// (CVE-2019-9512, -9514, -9515): a thousand acknowledgements of PING.
pub const REPLY_BYTES_MAX: u32 = 17_000;
/// Streams that were reset by this side and whose late frames are ignored silently. Frames for older ones
/// are treated as frames for any closed stream.
pub const RESET_STREAMS_REMEMBERED: usize = 64;
/// Bytes of a Priority field value or of the value in PRIORITY_UPDATE that are parsed; a longer value
/// is ignored.
pub const PRIORITY_BYTES_MAX: usize = 256;
/// Windows below this delay data instead of splitting it into tiny frames, once the allowance for tiny frames
/// is used up (CVE-2019-9511).
pub const SEND_BYTES_MIN: usize = 1024;
/// The same for a peer whose initial windows are smaller than `SEND_BYTES_MIN`. Data is sent if the window is at least half of
/// the initial window, and at least this, because a peer returns a window when it has consumed half of it.
pub const SEND_BYTES_FLOOR: usize = 64;
/// Streams that a client may open before it knows SETTINGS_MAX_CONCURRENT_STREAMS. RFC 9113 section 6.5.2
/// recommends servers to allow at least 100.
pub const STREAMS_ASSUMED: u32 = 100;
/// Interim responses (1xx) to one request; a server that sends more is at fault.
pub const INTERIMS_MAX: u8 = 32;

/// Default of the streams that a client may have open at once.
pub const STREAMS_DEFAULT: u32 = 100;
/// Default of a stream's first receive window. Never below `WINDOW_INITIAL`, because the peer may use that
/// before it knows the setting.
pub const STREAM_WINDOW_DEFAULT: u32 = WINDOW_INITIAL;
/// Default of the size up to which a stream's receive window grows.
pub const STREAM_WINDOW_CEILING_DEFAULT: u32 = 1024 * 1024;
/// Default of the bytes by which the receive windows of one connection's streams may grow in total.
pub const WINDOW_POOL_DEFAULT: u32 = 4 * 1024 * 1024;
/// One stream grows by at most one of this many equal shares of the bytes that all streams have not taken. So each stream that
/// stalls leaves most of the rest to the others.
pub const WINDOW_POOL_SHARES: u32 = 4;
/// Default of the connection's receive window. It is credited on receipt, because every stream bounds the bytes that its consumer
/// holds; so it only limits the bytes in flight.
pub const CONNECTION_WINDOW_DEFAULT: u32 = 16 * 1024 * 1024;
/// Default of SETTINGS_HEADER_TABLE_SIZE: the initial value. The table grows with its entries and stores a
/// field of average size (29 bytes) in 37 bytes instead of the 61 that HPACK counts. So the table of a usual
/// client takes about 1 KiB, and a full one 2.5 KiB. A lower value would save 1 KiB at most, and would break
/// clients that compress without a table and therefore do not announce the lower size, which RFC 7541 section
/// 4.2 requires.
pub const HEADER_TABLE_BYTES_DEFAULT: u32 = TABLE_BYTES_INITIAL;
/// Default of SETTINGS_MAX_HEADER_LIST_SIZE, which counts 32 bytes more for each field.
pub const HEADER_LIST_BYTES_DEFAULT: u32 = 32 * 1024;
/// Default of the fields in one head, pseudo-header fields included, cookie fields excluded.
pub const HEADER_FIELDS_DEFAULT: u16 = 256;
/// Cookie fields in one head; they are joined into one field (RFC 9113 section 8.2.3).
pub const COOKIE_CRUMBS_MAX: usize = 256;
/// Default of the pending output at which `send_data` stops accepting.
pub const OUTPUT_PAUSE_DEFAULT: u32 = 32 * 1024;

const _: () = assert!(STREAM_WINDOW_DEFAULT >= WINDOW_INITIAL);
const _: () = assert!(STREAM_WINDOW_CEILING_DEFAULT >= STREAM_WINDOW_DEFAULT);
const _: () = assert!(DATA_BYTES_MAX + 9 == FRAME_BYTES_MAX as usize);
const _: () = assert!(
    CONTINUATIONS_MAX as u32 * FRAME_BYTES_MAX > HEADER_LIST_BYTES_DEFAULT,
    "a header list of the default size must fit into one block"
);
