//! Scene files: a configuration, clients and servers, one action a line.
//! In: the text of a `.scene` file. Out: a `Scene`, or what is wrong with which line.
//!
//! ```text
//! config <<EOF ... EOF          @listen and @NAME stand for addresses
//! client NAME { ... }           connects as soon as it sends or expects something
//! server NAME { ... }           accepts as soon as it sends or expects something
//! server NAME refuses           nobody listens there
//! ```

/// A parsed scene.
#[derive(Debug, Default)]
pub struct Scene {
    pub config: String,
    pub actors: Vec<Script>,
    /// Servers at whose address nobody listens.
    pub refusing: Vec<String>,
}

/// What one client or server does.
#[derive(Debug)]
pub struct Script {
    pub name: String,
    pub is_client: bool,
    /// With the line each stands in.
    pub steps: Vec<(usize, Step)>,
}

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// `send "..."`
    Send(Vec<u8>),
    /// `send bytes N`: N bytes of a body whose every byte is known.
    SendBytes(u64),
    /// `expect status N`: the head of the next answer.
    ExpectStatus(u16),
    /// `expect request "GET / HTTP/1.1"`: the head of the next request.
    ExpectRequest(String),
    /// `expect field NAME "..."`: in that head.
    ExpectField(String, String),
    /// `expect no field NAME`
    ExpectNoField(String),
    /// `expect body "..."`: the whole body.
    ExpectBody(Vec<u8>),
    /// `expect body bytes N`: the whole body, as `send bytes` makes it.
    ExpectBodyBytes(u64),
    /// `expect trailer NAME "..."`: after the body.
    ExpectTrailer(String, String),
    /// `expect no trailer NAME`
    ExpectNoTrailer(String),
    /// `expect raw "..."`: exactly these bytes next, whatever they mean.
    ExpectRaw(Vec<u8>),
    /// `expect cut`: the body begins, and the connection ends before it is whole.
    ExpectCut,
    /// `expect close`: nothing more comes but the end.
    ExpectClose,
    /// `expect reset`: whatever comes, a reset comes after it.
    ExpectReset,
    /// `expect end`: whatever comes, an end of either kind comes after it.
    ExpectEnd,
    /// `accept`: the next connection, instead of the one before.
    Accept,
    /// `finish`: ends the sending side.
    Finish,
    /// `close`
    Close,
    /// `reset`
    Reset,
    /// `mark NAME`: lets those go on that `await NAME`.
    Mark(String),
    /// `await NAME`
    Await(String),
    /// `stop N`: tells the worker to stop, with a grace of N seconds.
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
            _ => return Err(format!("line {at}: {line:?} is neither config, client nor server")),
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
    let number = |word: &str| word.parse::<u64>().map_err(|_| format!("{word:?} is no number"));
    let text =
        |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| "this must be text".to_owned());
    Ok(match (&words[..], quoted) {
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
        _ => return Err(format!("{line:?} is no action")),
    })
}

/// The bytes that a string in quotes stands for.
fn unquote(text: &str) -> Result<Vec<u8>, String> {
    let bad = || format!("{text} does not end with its quote, or has an unknown escape");
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
    fn a_wrong_line_is_named() {
        let wrong = parse("client c {\n  expect statues 200\n}\n").expect_err("no such action");
        assert!(wrong.contains("line 2") && wrong.contains("statues"), "{wrong}");
        assert!(parse("clint c {\n").is_err());
    }

    #[test]
    fn a_string_may_hold_any_byte_but_unknown_escapes() {
        assert_eq!(unquote(r#""a\r\n\0\"\\""#), Ok(b"a\r\n\0\"\\".to_vec()));
        assert!(unquote(r#""\q""#).is_err());
    }
}
