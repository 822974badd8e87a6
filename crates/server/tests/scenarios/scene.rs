//! The format of scene files: a configuration, clients and servers, with one action per line.
//! In: the text of a `.scene` file. Out: a `Scene`, or the number of an invalid line and its error.
//!
//! ```text
//! config <<EOF ... EOF          @listen and @NAME are replaced by addresses
//! client NAME { ... }           connects at its first action that needs a connection
//! server NAME { ... }           accepts at its first action that needs a connection
//! server NAME refuses           connections to its address are refused
//! ```

/// A parsed scene.
#[derive(Debug, Default)]
pub struct Scene {
    pub config: String,
    pub actors: Vec<Script>,
    /// Names of servers whose address refuses connections.
    pub refusing: Vec<String>,
}

/// What one client or server does.
#[derive(Debug)]
pub struct Script {
    pub name: String,
    pub is_client: bool,
    /// Each step with its line number.
    pub steps: Vec<(usize, Step)>,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `send "..."`, or `send frame KIND "..."`: a masked WebSocket frame.
    Send(Vec<u8>),
    /// `send bytes N`: N bytes of a body whose every byte is known in advance.
    SendBytes(u64),
    /// `expect status N`: the next head is a response with this status.
    ExpectStatus(u16),
    /// `expect request "GET / HTTP/1.1"`: the next head is a request with this request line.
    ExpectRequest(String),
    /// `expect field NAME "..."`: the last head has this field with this value.
    ExpectField(String, String),
    /// `expect no field NAME`: the last head does not have this field.
    ExpectNoField(String),
    /// `expect body "..."`: the complete body.
    ExpectBody(Vec<u8>),
    /// `expect body bytes N`: the complete body, as `send bytes N` sends it.
    ExpectBodyBytes(u64),
    /// `expect trailer NAME "..."`: the last body had this trailer field.
    ExpectTrailer(String, String),
    /// `expect no trailer NAME`: the last body did not have this trailer field.
    ExpectNoTrailer(String),
    /// `expect raw "..."`: the next bytes are exactly these, without being parsed. `expect frame KIND "..."`: this
    /// unmasked WebSocket frame.
    ExpectRaw(Vec<u8>),
    /// `expect cut`: the connection ends before the body is complete.
    ExpectCut,
    /// `expect close`: the connection ends cleanly without further bytes.
    ExpectClose,
    /// `expect reset`: the connection is reset, possibly after further bytes.
    ExpectReset,
    /// `expect end`: the connection ends cleanly or by a reset, possibly after further bytes.
    ExpectEnd,
    /// `accept`: replaces the server's connection by the next one.
    Accept,
    /// `finish`: ends the sending side of the connection.
    Finish,
    /// `close`: closes the connection.
    Close,
    /// `reset`: resets the connection.
    Reset,
    /// `mark NAME`: lets every `await NAME` continue.
    Mark(String),
    /// `await NAME`: waits until some actor has reached `mark NAME`.
    Await(String),
    /// `stop N`: tells the worker to stop, with a grace period of N seconds.
    Stop(u64),
}

/// Parses a scene.
pub fn parse(text: &str) -> Result<Scene, String> {
    let mut scene = Scene::default();
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    while let Some((at, line)) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            ["config", "<<EOF"] => {
                for (_, line) in lines.by_ref().take_while(|(_, line)| *line != "EOF") {
                    scene.config.push_str(line);
                    scene.config.push('\n');
                }
            }
            ["server", name, "refuses"] => scene.refusing.push(name.to_owned()),
            [kind @ ("client" | "server"), name, "{"] => {
                let mut steps = Vec::new();
                for (at, line) in lines.by_ref().take_while(|(_, line)| *line != "}") {
                    if !line.is_empty() && !line.starts_with('#') {
                        let step = parse_step(line).map_err(|why| format!("line {at}: {why}"))?;
                        steps.push((at, step));
                    }
                }
                let is_client = kind == "client";
                scene.actors.push(Script { name: name.to_owned(), is_client, steps });
            }
            _ => {
                return Err(format!(
                    "line {at}: {line:?}: expected `config <<EOF`, `client NAME {{` or `server NAME {{`"
                ));
            }
        }
    }
    Ok(scene)
}

fn parse_step(line: &str) -> Result<Step, String> {
    let (plain, quoted) = match line.find('"') {
        Some(at) => (line[..at].trim(), Some(unquote(&line[at..])?)),
        None => (line, None),
    };
    let words: Vec<&str> = plain.split_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{word:?} is not a number"));
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes).map_err(|_| "this value must be UTF-8".to_owned())
    };
    Ok(match (&words[..], quoted) {
        (["send", "frame", kind @ ..], payload) => Step::Send(frame(kind, payload, true)?),
        (["expect", "frame", kind @ ..], payload) => Step::ExpectRaw(frame(kind, payload, false)?),
        (["send"], Some(bytes)) => Step::Send(bytes),
        (["send", "bytes", count], None) => Step::SendBytes(number(count)?),
        (["expect", "status", code], None) => Step::ExpectStatus(number(code)? as u16),
        (["expect", "request"], Some(bytes)) => Step::ExpectRequest(text(bytes)?),
        (["expect", "field", name], Some(bytes)) => {
            Step::ExpectField((*name).to_owned(), text(bytes)?)
        }
        (["expect", "no", "field", name], None) => Step::ExpectNoField((*name).to_owned()),
        (["expect", "body"], Some(bytes)) => Step::ExpectBody(bytes),
        (["expect", "body", "bytes", count], None) => Step::ExpectBodyBytes(number(count)?),
        (["expect", "trailer", name], Some(bytes)) => {
            Step::ExpectTrailer((*name).to_owned(), text(bytes)?)
        }
        (["expect", "no", "trailer", name], None) => Step::ExpectNoTrailer((*name).to_owned()),
        (["expect", "raw"], Some(bytes)) => Step::ExpectRaw(bytes),
        (["expect", "cut"], None) => Step::ExpectCut,
        (["expect", "close"], None) => Step::ExpectClose,
        (["expect", "reset"], None) => Step::ExpectReset,
        (["expect", "end"], None) => Step::ExpectEnd,
        (["accept"], None) => Step::Accept,
        (["finish"], None) => Step::Finish,
        (["close"], None) => Step::Close,
        (["reset"], None) => Step::Reset,
        (["mark", name], None) => Step::Mark((*name).to_owned()),
        (["await", name], None) => Step::Await((*name).to_owned()),
        (["stop", seconds], None) => Step::Stop(number(seconds)?),
        _ => return Err(format!("{line:?} is not a known action")),
    })
}

/// A WebSocket frame, of a client if it is masked: `text`, `binary`, `continuation`, `ping`, `pong` or `close CODE`, then
/// `more` if the message continues, `unmasked`, or `split` for all but the payload's last byte.
fn frame(kind: &[&str], payload: Option<Vec<u8>>, is_client: bool) -> Result<Vec<u8>, String> {
    let mut payload = payload.unwrap_or_default();
    let (opcode, mut flags) = match kind {
        ["continuation", flags @ ..] => (0, flags),
        ["text", flags @ ..] => (1, flags),
        ["binary", flags @ ..] => (2, flags),
        ["close", code, flags @ ..] => {
            let code: u16 = code.parse().map_err(|_| format!("{code:?} is not a close code"))?;
            payload.splice(0..0, code.to_be_bytes());
            (8, flags)
        }
        ["ping", flags @ ..] => (9, flags),
        ["pong", flags @ ..] => (10, flags),
        _ => return Err(format!("{kind:?} is not a frame")),
    };
    let (mut is_final, mut key, mut left_out) = (true, is_client.then_some([0x37, 0xfa, 0, 9]), 0);
    while let [flag, rest @ ..] = flags {
        match *flag {
            "more" => is_final = false,
            "unmasked" => key = None,
            "split" => left_out = 1,
            _ => return Err(format!("{flag:?} is not a flag of a frame")),
        }
        flags = rest;
    }
    let mut bytes = vec![opcode | if is_final { 0x80 } else { 0 }];
    let mask = if key.is_some() { 0x80 } else { 0 };
    match payload.len() {
        short @ 0..=125 => bytes.push(short as u8 | mask),
        long => {
            bytes.push(126 | mask);
            bytes.extend((long as u16).to_be_bytes());
        }
    }
    bytes.extend(key.iter().flatten());
    let key = key.unwrap_or_default();
    bytes.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes.truncate(bytes.len() - left_out);
    Ok(bytes)
}

/// The bytes of a quoted string, with its escapes resolved.
fn unquote(text: &str) -> Result<Vec<u8>, String> {
    let bad = || format!("{text}: no closing quote, or an unknown escape");
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).ok_or_else(bad)?;
    let mut bytes = Vec::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            bytes.extend(c.to_string().into_bytes());
            continue;
        }
        bytes.push(match chars.next() {
            Some('r') => b'\r',
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('0') => 0,
            // A byte that is not valid in UTF-8.
            Some('f') => 0xff,
            // Any byte, by two digits.
            Some('x') => {
                let digits: String = chars.by_ref().take(2).collect();
                u8::from_str_radix(&digits, 16).map_err(|_| bad())?
            }
            Some(c @ ('"' | '\\')) => c as u8,
            _ => return Err(bad()),
        });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_contains_the_line() {
        let wrong = parse("client c {\n  expect statues 200\n}\n").expect_err("an unknown action");
        assert!(wrong.contains("line 2") && wrong.contains("statues"), "{wrong}");
        assert!(parse("clint c {\n").is_err());
    }

    #[test]
    fn unquote_resolves_known_escapes_only() {
        assert_eq!(unquote(r#""a\r\n\0\"\\""#), Ok(b"a\r\n\0\"\\".to_vec()));
        assert!(unquote(r#""\q""#).is_err());
    }
}
