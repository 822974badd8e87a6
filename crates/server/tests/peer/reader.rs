//! A strict, incremental reader of HTTP/1.1 messages, independent of Tidegate's own.
//! In: bytes as they arrive. Out: heads, pieces of bodies, ends.
//! Never: tolerates deviations: Tidegate must emit canonical messages, so any deviation is an error.

/// A message's start line and fields.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub start: String,
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// The value of the first field with this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    pub fn count(&self, name: &str) -> usize {
        self.fields.iter().filter(|(found, _)| found.eq_ignore_ascii_case(name)).count()
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    /// The status code of a response; 0 if there is none.
    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    pub fn announces_close(&self) -> bool {
        self.field("connection").is_some_and(|value| {
            value.split(',').any(|word| word.trim().eq_ignore_ascii_case("close"))
        })
    }
}

/// How a body is framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// How the body of a request with this head is framed.
pub fn request_framing(head: &Head) -> Result<Framing, String> {
    declared_framing(head).map(|found| found.unwrap_or(Framing::None))
}

/// How the body of a response with this head is framed. `to_head`: it answers a HEAD request.
pub fn response_framing(head: &Head, to_head: bool) -> Result<Framing, String> {
    let declared = declared_framing(head)?;
    let status = head.status();
    if to_head || status < 200 || status == 204 || status == 304 {
        return Ok(Framing::None);
    }
    Ok(declared.unwrap_or(Framing::UntilClose))
}

fn declared_framing(head: &Head) -> Result<Option<Framing>, String> {
    let lengths = head.count("content-length");
    match (head.field("transfer-encoding"), lengths) {
        (Some(coding), 0) if coding.eq_ignore_ascii_case("chunked") => Ok(Some(Framing::Chunked)),
        (None, 0) => Ok(None),
        (None, 1) => match head.number("content-length") {
            Some(length) => Ok(Some(Framing::Length(length))),
            None => Err(format!("bad content-length in {head:?}")),
        },
        _ => Err(format!("ambiguous framing in {head:?}")),
    }
}

/// The next part of a body.
#[derive(Debug)]
pub enum Piece {
    Data(Vec<u8>),
    /// The body is complete; these are its trailer fields.
    End(Vec<(String, String)>),
    /// More bytes are needed.
    Need,
}

/// What the next bytes must be.
enum Expect {
    Head,
    Counted(u64),
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers(Vec<(String, String)>),
    UntilClose,
    /// The body is complete, and its end has not been reported yet.
    End(Vec<(String, String)>),
}

/// Reads one direction of a connection.
pub struct Reader {
    bytes: Vec<u8>,
    /// Bytes before this offset have been read.
    at: usize,
    expect: Expect,
}

impl Default for Reader {
    fn default() -> Self {
        Self { bytes: Vec::new(), at: 0, expect: Expect::Head }
    }
}

impl Reader {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The bytes received and not yet read.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Takes all bytes not yet read, unparsed.
    pub fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.rest().to_vec();
        self.at = self.bytes.len();
        rest
    }

    /// Skips up to `count` bytes not yet read.
    pub fn skip(&mut self, count: usize) {
        self.at += count.min(self.rest().len());
    }

    /// Whether the reader is between two messages, without any byte of the next one.
    pub fn is_between(&self) -> bool {
        matches!(self.expect, Expect::Head) && self.rest().is_empty()
    }

    /// Whether the body ends with the connection.
    pub fn ends_by_close(&self) -> bool {
        matches!(self.expect, Expect::UntilClose)
    }

    /// The next head, if it is complete.
    pub fn next_head(&mut self) -> Result<Option<Head>, String> {
        assert!(matches!(self.expect, Expect::Head), "the body has not been read to its end");
        let rest = self.rest();
        let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = core::str::from_utf8(&rest[..end]).map_err(|_| "the head is not UTF-8")?;
        let head = parse_head(text)?;
        self.at += end + 4;
        Ok(Some(head))
    }

    pub fn begin_body(&mut self, framing: Framing) {
        self.expect = match framing {
            Framing::None | Framing::Length(0) => Expect::End(Vec::new()),
            Framing::Length(length) => Expect::Counted(length),
            Framing::Chunked => Expect::ChunkSize,
            Framing::UntilClose => Expect::UntilClose,
        };
    }

    /// The next piece of the body started with `begin_body`. After its end the reader expects a head.
    pub fn next_piece(&mut self) -> Result<Piece, String> {
        loop {
            match &mut self.expect {
                Expect::Head => return Err("begin_body was not called".to_owned()),
                Expect::End(trailers) => {
                    let trailers = core::mem::take(trailers);
                    self.expect = Expect::Head;
                    return Ok(Piece::End(trailers));
                }
                Expect::UntilClose => return Ok(self.take_data(u64::MAX)),
                Expect::Counted(left) => {
                    let left = *left;
                    let piece = self.take_data(left);
                    if let Piece::Data(data) = &piece {
                        let left = left - data.len() as u64;
                        self.expect =
                            if left == 0 { Expect::End(Vec::new()) } else { Expect::Counted(left) };
                    }
                    return Ok(piece);
                }
                Expect::ChunkData(left) => {
                    let left = *left;
                    let piece = self.take_data(left);
                    if let Piece::Data(data) = &piece {
                        let left = left - data.len() as u64;
                        self.expect =
                            if left == 0 { Expect::ChunkEnd } else { Expect::ChunkData(left) };
                    }
                    return Ok(piece);
                }
                Expect::ChunkSize | Expect::ChunkEnd | Expect::Trailers(_) => {
                    let Some(line) = self.take_line()? else { return Ok(Piece::Need) };
                    self.read_frame_line(&line)?;
                }
            }
        }
    }

    fn read_frame_line(&mut self, line: &str) -> Result<(), String> {
        self.expect = match core::mem::replace(&mut self.expect, Expect::Head) {
            Expect::ChunkSize => match u64::from_str_radix(line, 16) {
                Ok(0) => Expect::Trailers(Vec::new()),
                Ok(size) if !line.starts_with('+') => Expect::ChunkData(size),
                _ => return Err(format!("bad chunk size {line:?}")),
            },
            Expect::ChunkEnd if line.is_empty() => Expect::ChunkSize,
            Expect::ChunkEnd => return Err(format!("{line:?} after a chunk's data")),
            Expect::Trailers(trailers) if line.is_empty() => Expect::End(trailers),
            Expect::Trailers(mut trailers) => {
                trailers.push(parse_field(line)?);
                Expect::Trailers(trailers)
            }
            other => other,
        };
        Ok(())
    }

    fn take_data(&mut self, most: u64) -> Piece {
        let count = usize::try_from(most).unwrap_or(usize::MAX).min(self.rest().len());
        if count == 0 {
            return Piece::Need;
        }
        let data = self.rest()[..count].to_vec();
        self.at += count;
        Piece::Data(data)
    }

    fn take_line(&mut self) -> Result<Option<String>, String> {
        let rest = self.rest();
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let line = String::from_utf8(rest[..end].to_vec()).map_err(|_| "a line is not UTF-8")?;
        self.at += end + 2;
        Ok(Some(line))
    }
}

fn parse_head(text: &str) -> Result<Head, String> {
    let mut lines = text.split("\r\n");
    let start = lines.next().unwrap_or_default().to_owned();
    if start.split(' ').count() < 3 || start.contains(['\r', '\n']) {
        return Err(format!("bad start line {start:?}"));
    }
    Ok(Head { start, fields: lines.map(parse_field).collect::<Result<_, _>>()? })
}

fn parse_field(line: &str) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or_else(|| format!("bad field line {line:?}"))?;
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) || line.contains(['\r', '\n', '\0']) {
        return Err(format!("bad field line {line:?}"));
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}
