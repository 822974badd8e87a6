//! Reads responses. A new head is decoded strictly; a head that equals the last one is only compared.
//! In: the bytes received after a request. Out: an `Answer`, or a fault (RFC 9112 sections 4 and 6).
//! Never: accepts a head whose exact bytes the strict decoder has not accepted.
//! Limits: `ResponseLimits`. Invariant: decoding and comparing give the same result for the same bytes.

use tidegate_wire::http1::{BodyDecoder, HeadDecoder, ResponseLimits};
use tidegate_wire::message::{BodyLength, Fault, RequestKind, ResponseStorage};

/// A complete response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Whether the connection can be used again.
    pub is_persistent: bool,
    /// Bytes on the wire: head, body and framing, interim responses included.
    pub wire_bytes: u64,
    /// Bytes of the body.
    pub body_bytes: u64,
}

/// The last strictly decoded head. An equal head needs no decoding.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// The head's bytes; empty if there is no template.
    head: Vec<u8>,
    /// Its status and persistence; all byte counts are 0.
    answer: Answer,
    /// Length of the body.
    length: u64,
}

/// Reads the responses of one connection.
#[derive(Debug)]
pub struct Reader {
    state: State,
    /// The counts of the response that is being received.
    answer: Answer,
}

#[derive(Debug)]
enum State {
    /// `partial` contains the bytes so far of a head that arrives in several pieces; otherwise it is empty.
    ExpectHead {
        decoder: HeadDecoder,
        partial: Vec<u8>,
    },
    ExpectBody(BodyDecoder),
}

impl State {
    fn fresh() -> Self {
        Self::ExpectHead { decoder: HeadDecoder::default(), partial: Vec::new() }
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self { state: State::fresh(), answer: Answer::default() }
    }
}

/// The result of decoding a head strictly.
struct Decoded {
    head_bytes: usize,
    status: u16,
    is_persistent: bool,
    is_interim: bool,
    length: BodyLength,
}

impl Reader {
    /// Reads `input`. Returns the number of consumed bytes, and the response if it is complete; if it is not,
    /// all bytes are consumed.
    ///
    /// # Errors
    /// The fault after which the connection cannot be used.
    pub fn read(
        &mut self,
        input: &[u8],
        is_head: bool,
        template: &mut Template,
    ) -> Result<(usize, Option<Answer>), Fault> {
        if let State::ExpectHead { partial, .. } = &self.state
            && partial.is_empty()
            && !template.head.is_empty()
            && input.starts_with(&template.head)
        {
            return self.read_known(input, template);
        }
        let mut taken = 0;
        while taken < input.len() {
            let rest = &input[taken..];
            let (count, answer) = match &mut self.state {
                State::ExpectHead { .. } => self.read_head(rest, is_head, template)?,
                State::ExpectBody(_) => self.read_body(rest)?,
            };
            taken += count;
            if answer.is_some() {
                return Ok((taken, answer));
            }
        }
        Ok((taken, None))
    }

    /// Handles the end of the server's data. Returns the response if the end of the connection completes it.
    ///
    /// # Errors
    /// The fault if the response is incomplete.
    pub fn finish(&mut self) -> Result<Option<Answer>, Fault> {
        match &mut self.state {
            State::ExpectHead { .. } => Ok(None),
            State::ExpectBody(body) => {
                body.handle_end()?;
                self.state = State::fresh();
                Ok(Some(core::mem::take(&mut self.answer)))
            }
        }
    }

    /// Whether a part of a response was received.
    #[must_use]
    pub fn has_started(&self) -> bool {
        match &self.state {
            State::ExpectHead { partial, .. } => !partial.is_empty() || self.answer.wire_bytes > 0,
            State::ExpectBody(_) => true,
        }
    }

    /// Reads a head that equals the template.
    fn read_known(
        &mut self,
        input: &[u8],
        template: &Template,
    ) -> Result<(usize, Option<Answer>), Fault> {
        let head_bytes = template.head.len();
        let after = (input.len() - head_bytes) as u64;
        // Includes the bytes of earlier interim responses, if any.
        let wire_bytes = self.answer.wire_bytes + head_bytes as u64;
        if after >= template.length {
            self.answer = Answer::default();
            let answer = Answer {
                wire_bytes: wire_bytes + template.length,
                body_bytes: template.length,
                ..template.answer
            };
            return Ok((head_bytes + template.length as usize, Some(answer)));
        }
        self.answer = Answer { wire_bytes, ..template.answer };
        self.state = State::ExpectBody(BodyDecoder::new(BodyLength::Length(template.length)));
        if after == 0 {
            return Ok((head_bytes, None));
        }
        let (count, answer) = self.read_body(&input[head_bytes..])?;
        Ok((head_bytes + count, answer))
    }

    fn read_head(
        &mut self,
        input: &[u8],
        is_head: bool,
        template: &mut Template,
    ) -> Result<(usize, Option<Answer>), Fault> {
        let State::ExpectHead { decoder, partial } = &mut self.state else {
            return Ok((0, None));
        };
        let before = partial.len();
        if before > 0 {
            partial.extend_from_slice(input);
        }
        let head_input: &[u8] = if before > 0 { partial } else { input };
        let Some(decoded) = decode(decoder, head_input, is_head)? else {
            if before == 0 {
                partial.extend_from_slice(input);
            }
            return Ok((input.len(), None));
        };
        self.answer.wire_bytes += decoded.head_bytes as u64;
        if !decoded.is_interim {
            self.answer.status = decoded.status;
            self.answer.is_persistent = decoded.is_persistent;
            template.learn(&head_input[..decoded.head_bytes], &decoded);
        }
        let taken = decoded.head_bytes - before;
        if decoded.is_interim {
            self.state = State::fresh();
            return Ok((taken, None));
        }
        let body = BodyDecoder::new(decoded.length);
        if body.is_done() {
            self.state = State::fresh();
            return Ok((taken, Some(core::mem::take(&mut self.answer))));
        }
        self.state = State::ExpectBody(body);
        Ok((taken, None))
    }

    fn read_body(&mut self, input: &[u8]) -> Result<(usize, Option<Answer>), Fault> {
        let State::ExpectBody(body) = &mut self.state else {
            return Ok((0, None));
        };
        let step = body.decode(input)?;
        self.answer.wire_bytes += step.consumed as u64;
        self.answer.body_bytes += step.data.len() as u64;
        if step.done {
            self.state = State::fresh();
            return Ok((step.consumed, Some(core::mem::take(&mut self.answer))));
        }
        Ok((step.consumed, None))
    }
}

fn decode(
    decoder: &mut HeadDecoder,
    input: &[u8],
    is_head: bool,
) -> Result<Option<Decoded>, Fault> {
    let mut storage = ResponseStorage::new();
    let limits = ResponseLimits { is_strict: true, ..ResponseLimits::default() };
    let kind = RequestKind { is_head, ..RequestKind::default() };
    let decoded = decoder.decode_response(input, &limits, kind, &mut storage)?;
    Ok(decoded.map(|(head, head_bytes)| Decoded {
        head_bytes,
        status: head.status,
        is_persistent: head.persistent,
        is_interim: head.is_interim(),
        length: head.length,
    }))
}

impl Template {
    fn learn(&mut self, head: &[u8], decoded: &Decoded) {
        self.head.clear();
        self.length = match decoded.length {
            BodyLength::None => 0,
            BodyLength::Length(length) => length,
            // The template requires a known body length.
            BodyLength::Streamed | BodyLength::UntilClose => return,
        };
        self.head.extend_from_slice(head);
        self.answer = Answer {
            status: decoded.status,
            is_persistent: decoded.is_persistent,
            ..Answer::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANSWERS: [&[u8]; 6] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworld",
    ];

    fn read_all(input: &[u8], cuts: &[usize]) -> Vec<Answer> {
        let (mut reader, mut template) = (Reader::default(), Template::default());
        let mut answers = Vec::new();
        let mut from = 0;
        let mut ends: Vec<usize> = cuts.iter().map(|&cut| cut.min(input.len())).collect();
        ends.sort_unstable();
        ends.push(input.len());
        for end in ends {
            let mut piece = &input[from..end];
            while !piece.is_empty() {
                let (taken, answer) = reader.read(piece, false, &mut template).unwrap();
                assert!(taken > 0 && (answer.is_some() || taken == piece.len()));
                piece = &piece[taken..];
                answers.extend(answer);
            }
            from = end;
        }
        answers
    }

    proptest! {
        #[test]
        fn responses_are_the_same_at_every_split(
            order in prop::collection::vec(0_usize..6, 1..12),
            cuts in prop::collection::vec(0_usize..600, 0..20),
        ) {
            let input: Vec<u8> = order.iter().flat_map(|&at| ANSWERS[at]).copied().collect();
            let whole = read_all(&input, &[]);
            prop_assert_eq!(whole.len(), order.len());
            prop_assert_eq!(read_all(&input, &cuts), whole.clone());
            let bytes: u64 = whole.iter().map(|answer| answer.wire_bytes).sum();
            prop_assert_eq!(bytes, input.len() as u64, "each byte belongs to one response");
        }

        #[test]
        fn any_input_makes_progress_without_panic(input: Vec<u8>, is_head: bool) {
            let (mut reader, mut template) = (Reader::default(), Template::default());
            let mut rest = &input[..];
            while !rest.is_empty() {
                match reader.read(rest, is_head, &mut template) {
                    Ok((taken, _)) => {
                        prop_assert!(taken > 0);
                        rest = &rest[taken..];
                    }
                    Err(_) => break,
                }
            }
        }
    }

    #[test]
    fn known_head_with_another_body_is_counted() {
        let input = [ANSWERS[0], ANSWERS[5], ANSWERS[0]].concat();
        let answers = read_all(&input, &[]);
        assert_eq!(answers.len(), 3);
        assert!(answers.iter().all(|answer| answer.body_bytes == 5 && answer.status == 200));
    }

    #[test]
    fn response_without_length_ends_with_the_connection() {
        let (mut reader, mut template) = (Reader::default(), Template::default());
        let input = b"HTTP/1.1 200 OK\r\n\r\nsome";
        assert_eq!(reader.read(input, false, &mut template).unwrap(), (input.len(), None));
        assert_eq!(reader.finish().unwrap().unwrap().body_bytes, 4);
        assert_eq!(reader.finish().unwrap(), None, "it is returned only once");
    }

    #[test]
    fn truncated_response_is_a_fault() {
        let (mut reader, mut template) = (Reader::default(), Template::default());
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome";
        reader.read(input, false, &mut template).unwrap();
        assert!(reader.has_started());
        reader.finish().unwrap_err();
    }

    #[test]
    fn bytes_other_than_http_are_a_fault() {
        let (mut reader, mut template) = (Reader::default(), Template::default());
        reader.read(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", false, &mut template).unwrap_err();
    }

    #[test]
    fn response_to_head_has_no_body() {
        let (mut reader, mut template) = (Reader::default(), Template::default());
        let input = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n";
        let (taken, answer) = reader.read(input, true, &mut template).unwrap();
        assert_eq!((taken, answer.unwrap().body_bytes), (input.len(), 0));
        let (taken, answer) = reader.read(input, true, &mut template).unwrap();
        assert_eq!(
            (taken, answer.unwrap().body_bytes),
            (input.len(), 0),
            "the same with the template"
        );
    }
}
