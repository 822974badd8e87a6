//! Plays one script over a simulated or a real connection.
//! In: a script, a `Stage`. Out: progress, or the line that failed and what was received instead.
//! Never: blocks: a step that cannot be done yet is tried again later.

use std::collections::BTreeSet;

use crate::peer::body;
use crate::peer::reader::{Framing, Head, Piece, Reader, request_framing, response_framing};
use crate::scene::{Script, Step};

/// One end of a connection.
pub trait Wire {
    /// Sends some of `bytes`; returns how many. A broken connection accepts and discards all of them.
    fn send(&mut self, bytes: &[u8]) -> usize;
    /// The bytes received since the last call.
    fn receive(&mut self) -> Vec<u8>;
    /// Whether the other end has finished and everything before that was received.
    fn is_finished(&mut self) -> bool;
    /// Whether the connection was reset and everything before that was received.
    fn was_reset(&mut self) -> bool;
    /// Ends the sending side.
    fn finish(&mut self);
    /// Closes with a reset.
    fn reset(self: Box<Self>);
}

/// Where a scene is played.
pub trait Stage {
    fn dial(&mut self) -> Option<Box<dyn Wire>>;
    fn accept(&mut self, server: &str) -> Option<Box<dyn Wire>>;
    fn stop(&mut self, grace_s: u64);
}

/// A script being played.
pub struct Actor {
    script: Script,
    /// The index of the current step.
    at: usize,
    /// The connection, once it is open.
    wire: Option<Box<dyn Wire>>,
    reader: Reader,
    /// The last head received.
    head: Option<Head>,
    /// The trailers of the last complete body.
    trailers: Vec<(String, String)>,
    /// The body being received, if it has begun.
    body: Option<Vec<u8>>,
    /// Bytes of the current `send` step that were sent.
    sent: usize,
    /// Bytes of the current `send bytes` step that were sent.
    sent_body: u64,
}

impl Actor {
    pub fn new(script: Script) -> Self {
        Self {
            script,
            at: 0,
            wire: None,
            reader: Reader::default(),
            head: None,
            trailers: Vec::new(),
            body: None,
            sent: 0,
            sent_body: 0,
        }
    }

    pub fn is_done(&self) -> bool {
        self.at == self.script.steps.len()
    }

    /// The current step and the unread bytes, for failure messages.
    pub fn describe(&self) -> String {
        match self.script.steps.get(self.at) {
            Some((line, step)) => {
                let rest = String::from_utf8_lossy(self.reader.rest()).into_owned();
                format!("{} at line {line} ({step:?}), unread: {rest:?}", self.script.name)
            }
            None => format!("{} is done", self.script.name),
        }
    }

    /// Plays as many steps as possible; returns whether anything was done.
    pub fn step(
        &mut self,
        stage: &mut dyn Stage,
        marks: &mut BTreeSet<String>,
    ) -> Result<bool, String> {
        let mut moved = false;
        while let Some((_, step)) = self.script.steps.get(self.at) {
            let step = step.clone();
            match self.play(&step, stage, marks) {
                Ok(true) => {
                    self.at += 1;
                    moved = true;
                }
                Ok(false) => return Ok(moved | self.receive()),
                Err(why) => return Err(format!("{}: {why}", self.describe())),
            }
        }
        Ok(moved)
    }

    fn receive(&mut self) -> bool {
        let Some(wire) = &mut self.wire else { return false };
        let bytes = wire.receive();
        self.reader.push(&bytes);
        !bytes.is_empty()
    }

    fn play(
        &mut self,
        step: &Step,
        stage: &mut dyn Stage,
        marks: &mut BTreeSet<String>,
    ) -> Result<bool, String> {
        match step {
            Step::Mark(name) => {
                marks.insert(name.clone());
                return Ok(true);
            }
            Step::Await(name) => return Ok(marks.contains(name)),
            Step::Stop(seconds) => {
                stage.stop(*seconds);
                return Ok(true);
            }
            Step::Accept => {
                let Some(wire) = stage.accept(&self.script.name) else { return Ok(false) };
                self.begin_with(wire);
                return Ok(true);
            }
            Step::Close => {
                self.wire = None;
                return Ok(true);
            }
            Step::Reset => {
                if let Some(wire) = self.wire.take() {
                    wire.reset();
                }
                return Ok(true);
            }
            _ => {}
        }
        if self.wire.is_none() {
            let wire = match self.script.is_client {
                true => Some(stage.dial().ok_or("connection refused")?),
                false => stage.accept(&self.script.name),
            };
            let Some(wire) = wire else { return Ok(false) };
            self.begin_with(wire);
        }
        self.receive();
        match step {
            Step::Send(_) | Step::SendBytes(_) | Step::Finish => Ok(self.send(step)),
            Step::ExpectCut | Step::ExpectClose | Step::ExpectReset | Step::ExpectEnd => {
                self.expect_end(step)
            }
            _ => self.expect(step),
        }
    }

    fn begin_with(&mut self, wire: Box<dyn Wire>) {
        self.wire = Some(wire);
        self.reader = Reader::default();
        self.head = None;
        self.body = None;
    }

    fn send(&mut self, step: &Step) -> bool {
        let Some(wire) = &mut self.wire else { return false };
        match step {
            Step::Send(bytes) => {
                self.sent += wire.send(&bytes[self.sent..]);
                if self.sent < bytes.len() {
                    return false;
                }
                self.sent = 0;
            }
            Step::SendBytes(count) => {
                while self.sent_body < *count {
                    let size = (count - self.sent_body).min(16 * 1024) as usize;
                    let taken = wire.send(&body::make(1, self.sent_body, size));
                    self.sent_body += taken as u64;
                    if taken == 0 {
                        return false;
                    }
                }
                self.sent_body = 0;
            }
            _ => wire.finish(),
        }
        true
    }

    fn expect(&mut self, step: &Step) -> Result<bool, String> {
        match step {
            Step::ExpectStatus(_) | Step::ExpectRequest(_) => {
                let Some(head) = self.reader.next_head()? else { return self.wait_for_more() };
                let is_it = match step {
                    Step::ExpectStatus(status) => head.status() == *status,
                    Step::ExpectRequest(line) => head.start == *line,
                    _ => false,
                };
                if !is_it {
                    return Err(format!("got {:?}", head.start));
                }
                self.head = Some(head);
                self.body = None;
            }
            Step::ExpectField(name, value) => {
                let found = self.head.as_ref().and_then(|head| head.field(name));
                if found != Some(value.as_str()) {
                    return Err(format!("the field's value is {found:?} in {:?}", self.head));
                }
            }
            Step::ExpectNoField(name) => {
                if self.head.as_ref().is_some_and(|head| head.count(name) > 0) {
                    return Err(format!("the field is present: {:?}", self.head));
                }
            }
            Step::ExpectBody(wanted) => {
                let Some(found) = self.read_body()? else { return self.wait_for_more() };
                if found != *wanted {
                    return Err(format!("got {:?}", String::from_utf8_lossy(&found)));
                }
            }
            Step::ExpectBodyBytes(count) => {
                let Some(found) = self.read_body()? else { return self.wait_for_more() };
                if found.len() as u64 != *count || !body::matches(1, 0, &found) {
                    return Err(format!("got {} bytes, or bytes that differ", found.len()));
                }
            }
            Step::ExpectTrailer(name, value) => {
                let wanted = (name.clone(), value.clone());
                let same = |found: &&(String, String)| {
                    found.0.eq_ignore_ascii_case(&wanted.0) && found.1 == wanted.1
                };
                if self.trailers.iter().find(same).is_none() {
                    return Err(format!("the trailers are {:?}", self.trailers));
                }
            }
            Step::ExpectNoTrailer(name) => {
                if self.trailers.iter().any(|found| found.0.eq_ignore_ascii_case(name)) {
                    return Err(format!("the trailer is present: {:?}", self.trailers));
                }
            }
            Step::ExpectRaw(wanted) => {
                let rest = self.reader.rest();
                let common = rest.len().min(wanted.len());
                if rest[..common] != wanted[..common] {
                    return Err(format!("got {:?}", String::from_utf8_lossy(rest)));
                }
                if common < wanted.len() {
                    return self.wait_for_more();
                }
                self.reader.skip(common);
            }
            _ => return Err("this step is not an expectation".to_owned()),
        }
        Ok(true)
    }

    /// Waits for more bytes; an error if none can come.
    fn wait_for_more(&mut self) -> Result<bool, String> {
        let Some(wire) = &mut self.wire else { return Ok(false) };
        if wire.was_reset() {
            return Err("the connection was reset".to_owned());
        }
        if wire.is_finished() && !self.receive() {
            return Err("the connection ended early".to_owned());
        }
        Ok(false)
    }

    fn begin_body(&mut self) -> Result<(), String> {
        if self.body.is_none() {
            let head = self.head.as_ref().ok_or("no head was received before this step")?;
            let framing = match self.script.is_client {
                true => response_framing(head, false)?,
                false => request_framing(head)?,
            };
            self.reader.begin_body(framing);
            self.body = Some(Vec::new());
        }
        Ok(())
    }

    /// The body, once it is complete.
    fn read_body(&mut self) -> Result<Option<Vec<u8>>, String> {
        self.begin_body()?;
        loop {
            match self.reader.next_piece()? {
                Piece::Data(data) => {
                    if let Some(body) = &mut self.body {
                        body.extend(data);
                    }
                }
                Piece::End(trailers) => {
                    self.trailers = trailers;
                    return Ok(self.body.take());
                }
                Piece::Need => {
                    let ends = self.reader.ends_by_close()
                        && self.wire.as_mut().is_some_and(|wire| wire.is_finished());
                    if !ends {
                        return Ok(None);
                    }
                    self.reader.begin_body(Framing::None);
                }
            }
        }
    }

    fn expect_end(&mut self, step: &Step) -> Result<bool, String> {
        if *step == Step::ExpectCut && self.read_body()?.is_some() {
            return Err("the body ended cleanly".to_owned());
        }
        let Some(wire) = &mut self.wire else { return Ok(false) };
        let (reset, finished) = (wire.was_reset(), wire.is_finished());
        let rest = self.reader.rest();
        match step {
            Step::ExpectClose if reset => Err("the connection was reset".to_owned()),
            Step::ExpectClose if !rest.is_empty() => {
                Err(format!("more bytes before the end: {:?}", String::from_utf8_lossy(rest)))
            }
            Step::ExpectClose => Ok(finished),
            Step::ExpectReset if finished => Err("the connection ended cleanly".to_owned()),
            Step::ExpectReset => Ok(reset),
            _ => Ok(reset || finished),
        }
    }
}
