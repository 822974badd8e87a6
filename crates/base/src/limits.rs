//! Every bound of the data path in one table, with how they relate.
//! Never: a bound without a name. What a user may set is in the configuration; these are the
//! defaults and the hard ceilings behind it.

/// Bytes a worker reads from one socket at once (its one read buffer).
pub const READ_BUFFER_BYTES: usize = 64 * 1024;
/// Bytes of one pooled output or input buffer while it is small; most answers fit into one.
pub const SMALL_BUFFER_BYTES: usize = 4 * 1024;
/// Pending output of a socket at which its producer is paused.
pub const OUTPUT_HIGH_BYTES: usize = 64 * 1024;
/// Ceiling of a socket's pending output: what was pending, plus one whole read with its framing.
pub const OUTPUT_BYTES_MAX: usize = OUTPUT_HIGH_BYTES + 2 * READ_BUFFER_BYTES;
/// Buffers a worker keeps for reuse; more are given back to the allocator.
pub const POOLED_BUFFERS_MAX: usize = 4096;

/// Default bytes of a request line before 414 (RFC 9112 section 3 asks for at least 8000).
pub const REQUEST_LINE_BYTES_MAX: usize = 8 * 1024;
/// Default bytes of a message head, its start line included, before 431.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The largest head that a configuration may allow: with the fields a proxy adds it still fits
/// into one read buffer.
pub const HEAD_BYTES_CEILING: usize = READ_BUFFER_BYTES / 2;
/// Bytes of a request's host, its port included, before 400: four times the longest name of the DNS. A
/// proxy passes it on up to three times (Host, X-Forwarded-Host, Forwarded).
pub const HOST_BYTES_MAX: usize = 1024;
/// Header fields of one head before 431; also the size of the parser's table.
pub const HEADER_FIELDS_MAX: usize = 100;
/// Bytes of one chunk extension (RFC 9112 section 7.1.1 tells recipients to bound them).
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 256;
/// By how many bytes the chunk extensions of a message may exceed its body so far: a flood of tiny chunks
/// with long extensions costs reading and forwards nothing.
pub const CHUNK_EXTENSION_EXCESS_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a trailer section.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// Connections a worker accepts in one turn before it serves those it has.
pub const ACCEPTS_PER_TURN_MAX: usize = 64;
/// Bytes one connection may bring in one turn before the others have theirs.
pub const RECEIVE_BYTES_PER_TURN_MAX: usize = 4 * READ_BUFFER_BYTES;
/// Mails a worker's mailbox holds; a full box refuses (and counts).
pub const MAILBOX_LENGTH_MAX: usize = 4096;
/// Mails a worker reads in one turn.
pub const MAILS_PER_TURN_MAX: usize = 256;
/// Workers of one process.
pub const WORKERS_MAX: usize = 1024;

const _: () = assert!(REQUEST_LINE_BYTES_MAX < HEAD_BYTES_MAX);
const _: () = assert!(HEAD_BYTES_MAX < READ_BUFFER_BYTES, "a whole head fits into one read");
const _: () = assert!(TRAILER_BYTES_MAX <= HEAD_BYTES_MAX);
const _: () = assert!(HEAD_BYTES_MAX <= HEAD_BYTES_CEILING);
const _: () = assert!(HEAD_BYTES_CEILING + 3 * HOST_BYTES_MAX < READ_BUFFER_BYTES);
