//! The bounds of the data path in one table, with the relations between them. `wire::http2::bounds` has those of
//! HTTP/2 alone.
//! Out: the defaults of settings that the configuration can change, and hard ceilings that it cannot.

use crate::Span;

/// Maximum number of bytes that a worker reads from a socket in one call: the size of its only read buffer.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;
/// Initial capacity of a pooled input or output buffer; most responses fit into it.
pub const SMALL_BUFFER_BYTES: usize = 4 * 1024;
/// The server's producers (responses, forwarded bodies, tunnels) stop at this much pending output of a
/// connection, unless a flush empties it, and continue when the output has drained.
pub const OUTPUT_PAUSE_BYTES: usize = 16 * 1024;
/// The TLS layer stops collecting the records of large sends at this much pending output of a connection
/// and flushes them at once instead of at the turn's end; no producer is paused by this.
pub const OUTPUT_FLUSH_BYTES: usize = 64 * 1024;
/// Ceiling of a connection's pending output: `OUTPUT_FLUSH_BYTES`, one whole read, and as much again for
/// the read's framing.
pub const OUTPUT_BYTES_MAX: usize = OUTPUT_FLUSH_BYTES + 2 * READ_BUFFER_BYTES;
/// Nothing more is received from an HTTP/2 client with this much pending output until the output has drained. Bodies of responses
/// stay below it, so requests are still received from a client that receives a large body.
pub const INPUT_PAUSE_BYTES: usize = OUTPUT_FLUSH_BYTES + READ_BUFFER_BYTES / 2;
/// Buffers that a worker keeps for reuse; any more are returned to the allocator.
pub const POOLED_BUFFERS_MAX: usize = 4096;

/// Default limit of a request line; a longer one gets 414 (RFC 9112 section 3 recommends at least 8000).
pub const REQUEST_LINE_BYTES_MAX: usize = 8 * 1024;
/// Default limit of a message head including its start line; a longer one gets 431.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The largest head limit that a configuration may set. A head of this size still fits into one read buffer
/// after the proxy has added its own fields.
pub const HEAD_BYTES_CEILING: usize = READ_BUFFER_BYTES / 2;
/// Limit of a request's host including its port; a longer one gets 400. It is four times the longest DNS
/// name. A proxy forwards the host up to three times (Host, X-Forwarded-Host, Forwarded).
pub const HOST_BYTES_MAX: usize = 1024;
/// Default and largest limit of header fields in one request head; more get 431. This is also the size of the
/// parser's table, and the limit of fields in a trailer section.
pub const HEADER_FIELDS_MAX: usize = 100;
/// Limit of header fields in one response head; more get 502. It is higher than for requests, because servers
/// are known to the operator and some of them send well over a hundred fields.
pub const RESPONSE_FIELDS_MAX: usize = 256;
/// How many empty lines may precede a start line. RFC 9112 section 2.2 recommends that servers ignore at least one before a request,
/// because old clients sent one after the body of a POST.
pub const EMPTY_LINES_MAX: usize = 8;
/// After this many harmless violations of HTTP/1 on one connection, the response in progress is its last one. An old client
/// that sends an empty line after each request needs a new connection after this many requests, which costs the client little.
pub const HTTP1_GLITCHES_MAX: u16 = 100;
/// Limit of one chunk extension (RFC 9112 section 7.1.1: a server ought to limit them).
pub const CHUNK_EXTENSION_BYTES_MAX: usize = 256;
/// By how many bytes the chunk extensions of a message may exceed its body so far. Without this limit, tiny chunks
/// with long extensions would make a worker read many bytes of which it forwards almost none.
pub const CHUNK_EXTENSION_EXCESS_BYTES_MAX: usize = 16 * 1024;
/// Limit of a trailer section.
pub const TRAILER_BYTES_MAX: usize = 8 * 1024;

/// Maximum size in bytes of a request body that a pool may be configured to wait for before the request takes a server.
pub const REQUEST_BUFFER_BYTES_MAX: usize = 32 * 1024;

/// Default limit of a WebSocket message after decompression; a longer one closes the connection with 1009.
pub const WEBSOCKET_MESSAGE_BYTES_MAX: u32 = 1024 * 1024;
/// The largest message limit that a configuration may set. A connection may hold that much memory.
pub const WEBSOCKET_MESSAGE_BYTES_CEILING: usize = 64 * 1024 * 1024;
/// Routes that may have their own WebSocket settings.
pub const WEBSOCKET_SETTINGS_MAX: usize = 4096;
/// Frames of a WebSocket connection that a worker handles before it serves other connections. The smallest frame
/// of a client has six bytes, so a read may contain 10,000 of them.
pub const WEBSOCKET_FRAMES_PER_TURN_MAX: usize = 1024;
/// Default limit of a WebSocket frame's payload.
pub const WEBSOCKET_FRAME_BYTES_MAX: u32 = WEBSOCKET_MESSAGE_BYTES_MAX;
/// Default limit of the fragments of a WebSocket message. An empty fragment costs its sender six bytes.
pub const WEBSOCKET_FRAGMENTS_MAX: u32 = 128 * 1024;
/// Default limit of how many times larger than its compressed form a WebSocket message may be.
pub const WEBSOCKET_INFLATE_RATIO_MAX: u32 = 100;
/// The ratio of a WebSocket message up to this length is not limited.
pub const WEBSOCKET_INFLATE_FREE_BYTES: u64 = 64 * 1024;
/// Output space that a WebSocket compressor or decompressor keeps between messages.
pub const WEBSOCKET_SCRATCH_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Connections that a worker accepts from a listener in one turn before it continues with other work.
pub const ACCEPTS_PER_TURN_MAX: usize = 64;
/// Bytes that a worker receives from one connection in one turn before it serves other connections.
pub const RECEIVE_BYTES_PER_TURN_MAX: usize = 4 * READ_BUFFER_BYTES;
/// Messages that a worker's mailbox holds; a full mailbox returns the message to the sender.
pub const MAILBOX_LENGTH_MAX: usize = 4096;
/// Messages that a worker takes from its mailbox in one turn.
pub const MAILS_PER_TURN_MAX: usize = 256;
/// How much a worker does for the commands of one push client in a turn, and for mail about channels, in units of about
/// a microsecond (`push/src/effort.rs`). The rest of a message, which has 1,024 commands at most, waits for its turn.
pub const PUSH_EFFORT_PER_TURN_MAX: u32 = 512;
/// The fewest streams that a client may have open on an HTTP/2 connection of a worker under load: more than the six
/// connections that browsers open to a server of HTTP/1.1.
pub const ELASTIC_STREAMS_MIN: u32 = 10;
/// The limit of streams rises again once the load is this many percent of the worker's slots below the load at which the
/// limit fell. So a load near the threshold does not change the limit repeatedly.
pub const ELASTIC_RISE_PERCENT: usize = 10;
/// The limit of streams changes at most once in this span. A change costs each connection in use a SETTINGS frame.
pub const ELASTIC_SPAN: Span = Span::from_secs(1);
/// Workers of one process.
pub const WORKERS_MAX: usize = 1024;

const _: () = assert!(OUTPUT_PAUSE_BYTES < OUTPUT_FLUSH_BYTES);
const _: () = assert!(OUTPUT_PAUSE_BYTES + OUTPUT_FLUSH_BYTES < INPUT_PAUSE_BYTES);
const _: () = assert!(INPUT_PAUSE_BYTES + READ_BUFFER_BYTES < OUTPUT_BYTES_MAX);
const _: () = assert!(REQUEST_LINE_BYTES_MAX < HEAD_BYTES_MAX);
const _: () = assert!(HEAD_BYTES_MAX < READ_BUFFER_BYTES, "a whole head must fit into one read");
const _: () = assert!(TRAILER_BYTES_MAX <= HEAD_BYTES_MAX);
const _: () = assert!(WEBSOCKET_FRAME_BYTES_MAX <= WEBSOCKET_MESSAGE_BYTES_MAX);
const _: () = assert!(2 * WEBSOCKET_MESSAGE_BYTES_MAX as usize <= WEBSOCKET_SCRATCH_BYTES_MAX);
const _: () = assert!(HEADER_FIELDS_MAX <= RESPONSE_FIELDS_MAX);
const _: () = assert!(HEAD_BYTES_MAX <= HEAD_BYTES_CEILING);
const _: () = assert!(HEAD_BYTES_CEILING + 3 * HOST_BYTES_MAX < READ_BUFFER_BYTES);
