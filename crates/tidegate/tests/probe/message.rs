//! The probe's own strict reader of HTTP/1.1 messages, used by its client and its origin.
//! In: a stream. Out: messages with every byte accounted for, or what is wrong with them.
//! Never: shares code with Tidegate: a bug shared by both readers would stay hidden.

use std::io::{self, Read};

/// How the end of a body is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    None,
    Length(usize),
    Chunked,
    UntilClose,
}

/// A request or a response, decoded.
#[derive(Clone, Debug)]
pub struct Message {
    pub start: String,
    pub fields: Vec<(String, String)>,
    pub framing: Framing,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    /// The body is complete.
    pub whole: bool,
}

impl Message {
    pub fn values(&self, name: &str) -> Vec<&str> {
        let named = |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        self.fields.iter().filter(named).map(|(_, value)| value.as_str()).collect()
    }

    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// Whether any line of a list field contains this member.
    pub fn lists(&self, name: &str, member: &str) -> bool {
        let members = self.values(name).into_iter().flat_map(|value| value.split(','));
        members.map(str::trim).any(|found| found.eq_ignore_ascii_case(member))
    }
}

/// Why no message could be read.
#[derive(Debug)]
pub enum Broken {
    /// The stream ended cleanly before the first byte.
    Ended,
    /// The stream ended within a head, whose beginning is discarded.
    Cut,
    /// The stream was reset, or the read timed out.
    Io(io::ErrorKind),
    /// The bytes are not a valid message.
    Malformed(String),
}

/// Reads messages from a stream.
pub struct MessageReader<S> {
    pub stream: S,
    /// Bytes received and not yet part of a message.
    pub buffer: Vec<u8>,
}

impl<S: Read> MessageReader<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    fn fill(&mut self) -> Result<usize, Broken> {
        let mut piece = [0; 65536];
        loop {
            match self.stream.read(&mut piece) {
                Ok(count) => {
                    self.buffer.extend_from_slice(&piece[..count]);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Broken::Io(error.kind())),
            }
        }
    }

    /// Reads a head; the caller reads the body with `read_body`.
    pub fn read_head(&mut self) -> Result<Message, Broken> {
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            if self.fill()? == 0 {
                let whole = std::mem::take(&mut self.buffer).is_empty();
                return Err(if whole { Broken::Ended } else { Broken::Cut });
            }
        };
        let head: Vec<u8> = self.buffer.drain(..end).collect();
        let text: String = head[..end - 4].iter().map(|&byte| char::from(byte)).collect();
        let mut lines = text.split("\r\n");
        let start = lines.next().unwrap_or_default().to_owned();
        check_line(&start)?;
        let fields = lines.map(parse_field).collect::<Result<Vec<_>, _>>()?;
        let (framing, body, trailers) = (Framing::None, Vec::new(), Vec::new());
        Ok(Message { start, fields, framing, body, trailers, whole: false })
    }

    /// Reads the body of `message`. If the stream ends early, `whole` stays false.
    pub fn read_body(&mut self, message: &mut Message, framing: Framing) -> Result<(), Broken> {
        message.framing = framing;
        match framing {
            Framing::None => message.whole = true,
            Framing::Length(length) => {
                while self.buffer.len() < length {
                    if self.fill()? == 0 {
                        message.body = std::mem::take(&mut self.buffer);
                        return Ok(());
                    }
                }
                message.body = self.buffer.drain(..length).collect();
                message.whole = true;
            }
            Framing::UntilClose => {
                while self.fill()? > 0 {}
                message.body = std::mem::take(&mut self.buffer);
                message.whole = true;
            }
            Framing::Chunked => self.read_chunks(message)?,
        }
        Ok(())
    }

    fn read_chunks(&mut self, message: &mut Message) -> Result<(), Broken> {
        loop {
            let Some(line) = self.read_line()? else { return Ok(()) };
            let size = usize::from_str_radix(&line, 16)
                .ok()
                .filter(|_| line.bytes().all(|byte| byte.is_ascii_hexdigit()))
                .ok_or_else(|| Broken::Malformed(format!("bad chunk size {line:?}")))?;
            if size == 0 {
                break;
            }
            while self.buffer.len() < size + 2 {
                if self.fill()? == 0 {
                    message.body.append(&mut self.buffer);
                    return Ok(());
                }
            }
            message.body.extend(self.buffer.drain(..size));
            let end: Vec<u8> = self.buffer.drain(..2).collect();
            if end != b"\r\n" {
                return Err(Broken::Malformed(format!("{end:?} instead of CRLF after a chunk")));
            }
        }
        while let Some(line) = self.read_line()? {
            if line.is_empty() {
                message.whole = true;
                break;
            }
            message.trailers.push(parse_field(&line)?);
        }
        Ok(())
    }

    fn read_line(&mut self) -> Result<Option<String>, Broken> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..at + 2).collect();
                return Ok(Some(line[..at].iter().map(|&byte| char::from(byte)).collect()));
            }
            if self.fill()? == 0 {
                return Ok(None);
            }
        }
    }
}

fn check_line(line: &str) -> Result<(), Broken> {
    match line.chars().find(|&char| char < ' ' && char != '\t' || char == '\u{7f}') {
        Some(odd) => Err(Broken::Malformed(format!("{odd:?} in the line {line:?}"))),
        None => Ok(()),
    }
}

fn parse_field(line: &str) -> Result<(String, String), Broken> {
    check_line(line)?;
    let malformed = || Broken::Malformed(format!("bad field line {line:?}"));
    let (name, value) = line.split_once(':').ok_or_else(malformed)?;
    let is_token = |char: char| char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char);
    if name.is_empty() || !name.chars().all(is_token) {
        return Err(malformed());
    }
    Ok((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
}

/// The framing that a head's fields state; an error if they are invalid or state two framings.
pub fn stated_framing(message: &Message) -> Result<Option<Framing>, Broken> {
    let lengths = message.values("content-length");
    let codings = message.values("transfer-encoding");
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(None),
        ([length], []) if !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit()) => {
            let canonical = length.parse::<usize>().ok();
            let canonical = canonical.filter(|number| number.to_string() == *length);
            canonical
                .map(|number| Some(Framing::Length(number)))
                .ok_or_else(|| Broken::Malformed(format!("bad Content-Length {length:?}")))
        }
        ([], ["chunked"]) => Ok(Some(Framing::Chunked)),
        _ => Err(Broken::Malformed(format!(
            "ambiguous framing: Content-Length {lengths:?}, Transfer-Encoding {codings:?}"
        ))),
    }
}
