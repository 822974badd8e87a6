//! Plays one script over a connection that may be simulated or real.
//! In: a script, a `Stage`. Out: progress, or which line met what instead.
//! Never: blocks: a step that cannot be done yet is tried again.

use std::collections::BTreeSet;

use crate::peer::body;
use crate::peer::reader::{Framing, Head, Piece, Reader, request_framing, response_framing};
use crate::scene::{Script, Step};

/// One end of a connection.
pub trait Wire {
    /// Takes some of `bytes`; an end that broke takes (and loses) all.
    fn send(&mut self, bytes: &[u8]) -> usize;
    /// What has come in.
    fn receive(&mut self) -> Vec<u8>;
    /// All was received and the other end has finished.
    fn is_finished(&mut self) -> bool;
    /// All was received and the connection was reset.
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
    at: usize,
    wire: Option<Box<dyn Wire>>,
    reader: Reader,
    head: Option<Head>,
    trailers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    sent: usize,
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

    /// Where it stands, for whoever reads a failure.
    pub fn describe(&self) -> String {
        match self.script.steps.get(self.at) {
            Some((line, step)) => {
                let rest = String::from_utf8_lossy(self.reader.rest()).into_owned();
                format!("{} at line {line} ({step:?}), unread: {rest:?}", self.script.name)
            }
            None => format!("{} is done", self.script.name),
        }
    }

    /// Plays on as far as it goes; whether it got anywhere.
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
                Ok(false) => return Ok(moved | self.take_in()),
                Err(why) => return Err(format!("{}: {why}", self.describe())),
            }
        }
        Ok(moved)
    }

    fn take_in(&mut self) -> bool {
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
                true => Some(stage.dial().ok_or("nobody listens")?),
                false => stage.accept(&self.script.name),
            };
            let Some(wire) = wire else { return Ok(false) };
            self.begin_with(wire);
        }
        self.take_in();
        match step {
            Step::Send(_) | Step::SendBytes(_) | Step::Finish => Ok(self.give_out(step)),
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

    fn give_out(&mut self, step: &Step) -> bool {
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
                let Some(head) = self.reader.next_head()? else { return self.want_more() };
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
                    return Err(format!("the field is {found:?} in {:?}", self.head));
                }
            }
            Step::ExpectNoField(name) => {
                if self.head.as_ref().is_some_and(|head| head.count(name) > 0) {
                    return Err(format!("it is there: {:?}", self.head));
                }
            }
            Step::ExpectBody(wanted) => {
                let Some(found) = self.read_body()? else { return self.want_more() };
                if found != *wanted {
                    return Err(format!("got {:?}", String::from_utf8_lossy(&found)));
                }
            }
            Step::ExpectBodyBytes(count) => {
                let Some(found) = self.read_body()? else { return self.want_more() };
                if found.len() as u64 != *count || !body::matches(1, 0, &found) {
                    return Err(format!("got {} bytes, or others", found.len()));
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
                    return Err(format!("it is among {:?}", self.trailers));
                }
            }
            Step::ExpectRaw(wanted) => {
                let rest = self.reader.rest();
                let common = rest.len().min(wanted.len());
                if rest[..common] != wanted[..common] {
                    return Err(format!("got {:?}", String::from_utf8_lossy(rest)));
                }
                if common < wanted.len() {
                    return self.want_more();
                }
                self.reader.skip(common);
            }
            _ => return Err("is no expectation".to_owned()),
        }
        Ok(true)
    }

    /// More has to come, unless nothing can.
    fn want_more(&mut self) -> Result<bool, String> {
        let Some(wire) = &mut self.wire else { return Ok(false) };
        if wire.was_reset() {
            return Err("the connection was reset".to_owned());
        }
        if wire.is_finished() && !self.take_in() {
            return Err("the connection ended".to_owned());
        }
        Ok(false)
    }

    fn begin_body(&mut self) -> Result<(), String> {
        if self.body.is_none() {
            let head = self.head.as_ref().ok_or("no head came before")?;
            let framing = match self.script.is_client {
                true => response_framing(head, false)?,
                false => request_framing(head)?,
            };
            self.reader.begin_body(framing);
            self.body = Some(Vec::new());
        }
        Ok(())
    }

    /// The body, once it is whole.
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
            return Err("the body looks whole".to_owned());
        }
        let Some(wire) = &mut self.wire else { return Ok(false) };
        let (reset, finished) = (wire.was_reset(), wire.is_finished());
        let rest = self.reader.rest();
        match step {
            Step::ExpectClose if reset => Err("the connection was reset".to_owned()),
            Step::ExpectClose if !rest.is_empty() => {
                Err(format!("more came: {:?}", String::from_utf8_lossy(rest)))
            }
            Step::ExpectClose => Ok(finished),
            Step::ExpectReset if finished => Err("the connection ended in order".to_owned()),
            Step::ExpectReset => Ok(reset),
            _ => Ok(reset || finished),
        }
    }
}
