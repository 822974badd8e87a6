//! `bind` lines as listeners.
//! In: a line, the timeouts of its section. Out: blocks of listeners, one for each address.

use crate::document::{Block, BlockKind, Value};
use crate::finding::Findings;
use crate::units;

use super::words::{Line, Section};

/// The settings of `global` about files and TLS.
#[derive(Default)]
pub(super) struct Global {
    pub(super) crt_base: String,
    pub(super) ca_base: String,
    pub(super) min_version: Option<(String, usize)>,
    /// The line by which listeners issue no session tickets.
    pub(super) no_tickets: Option<usize>,
}

impl Global {
    /// The path of a certificate.
    fn path(base: &str, path: &str) -> String {
        match path.starts_with('/') || base.is_empty() {
            true => path.to_owned(),
            false => format!("{}/{path}", base.trim_end_matches('/')),
        }
    }
}

/// A listener without its routes.
pub(super) struct Bound {
    pub(super) block: Block,
    pub(super) is_secure: bool,
    /// The name in the line.
    pub(super) name: Option<String>,
}

/// The listeners of a line.
pub(super) fn bind(line: &Line, global: &Global, findings: &mut Findings<'_>) -> Vec<Bound> {
    let mut bound = Vec::new();
    for address in line.word(1).split(',') {
        let Some(address) = units::bind(address) else {
            findings.untranslated(
                line.number,
                format!("{address:?}: a listener has an IP address and one port, or a unix socket"),
            );
            continue;
        };
        let mut block = Block::new(BlockKind::Listener, "[[listener]]", line.number);
        block.set("bind", address, line.number);
        let (is_secure, name) = options(line, &mut block, global, findings);
        bound.push(Bound { block, is_secure, name });
    }
    bound
}

fn options(
    line: &Line,
    block: &mut Block,
    global: &Global,
    findings: &mut Findings<'_>,
) -> (bool, Option<String>) {
    let number = line.number;
    let words = line.from(2);
    let is_secure = words.iter().any(|word| word == "ssl");
    let mut name = None;
    let mut certificates = Vec::new();
    let mut index = 0;
    while let Some(word) = words.get(index) {
        index += 1;
        let value = words.get(index).map_or("", String::as_str);
        let takes_value = match word.as_str() {
            "ssl" => false,
            "name" => {
                name = Some(value.to_owned());
                true
            }
            "crt" => {
                let file = value.rsplit('/').next().unwrap_or_default();
                match file.contains('.') {
                    true => certificates.push(Global::path(&global.crt_base, value)),
                    false => findings.untranslated(
                        number,
                        "write each certificate of the folder into `certificates`",
                    ),
                }
                true
            }
            "crt-list" => {
                findings
                    .untranslated(number, "write each certificate of the list into `certificates`");
                true
            }
            word => match tls_option(word, value, is_secure, global, block, number) {
                Some(takes_value) => takes_value,
                None => socket_option(word, value, is_secure, block, number, findings),
            },
        };
        index += usize::from(takes_value);
    }
    tls(block, certificates, is_secure, global, number);
    (is_secure, name)
}

/// An option about TLS; returns whether it has a value, and `None` if it is about something else.
fn tls_option(
    word: &str,
    value: &str,
    is_secure: bool,
    global: &Global,
    block: &mut Block,
    line: usize,
) -> Option<bool> {
    let version = if value == "TLSv1.3" { "1.3" } else { "1.2" };
    match word {
        "alpn" => {
            let known = ["h2", "http/1.1", "http/1.0"];
            let protocols: Vec<_> =
                value.split(',').filter(|name| known.contains(name)).map(Value::from).collect();
            if is_secure && !protocols.is_empty() {
                block.set_in("tls", "alpn", Value::List(protocols), line);
            }
        }
        "ca-file" => block.set_in("tls", "client-ca", Global::path(&global.ca_base, value), line),
        "crl-file" => block.set_in("tls", "client-crl", Global::path(&global.ca_base, value), line),
        "verify" if value == "none" => {}
        "verify" => block.set_in("tls", "client-auth", value, line),
        "ssl-min-ver" => block.set_in("tls", "min-version", version, line),
        "strict-sni" => {
            block.set_in("tls", "strict-sni", Value::Flag(true), line);
            return Some(false);
        }
        "no-tls-tickets" => {
            block.set_in("tls", "tickets", "off", line);
            return Some(false);
        }
        "force-tlsv13" => {
            block.set_in("tls", "min-version", "1.3", line);
            return Some(false);
        }
        "allow-0rtt" | "no-sslv3" | "no-tlsv10" | "no-tlsv11" | "prefer-client-ciphers" => {
            return Some(false);
        }
        _ => return None,
    }
    Some(true)
}

/// Any other option; returns whether it has a value.
fn socket_option(
    word: &str,
    value: &str,
    is_secure: bool,
    block: &mut Block,
    line: usize,
    findings: &mut Findings<'_>,
) -> bool {
    match word {
        "v4v6" | "v6only" | "tfo" | "defer-accept" => return false,
        "transparent" => {
            findings.untranslated(line, "a listener has an address of this host");
            return false;
        }
        "accept-proxy" => {
            let from = ["0.0.0.0/0", "::/0"].map(Value::from).to_vec();
            block.set_in("proxy-protocol", "from", Value::List(from), line);
            findings.differs(line, crate::PROXIES);
            return false;
        }
        "proto" if value == "h2" && !is_secure => block.set("h2c", Value::Flag(true), line),
        "proto" => findings.untranslated(line, format!("proto {value}")),
        "backlog" => {
            if let Ok(backlog) = value.parse() {
                block.set("backlog", Value::Number(backlog), line);
            }
        }
        "ciphers" | "ciphersuites" | "curves" | "ecdhe" | "sigalgs" | "ssl-max-ver"
        | "tls-ticket-keys" | "ocsp-update" => {
            findings.differs(line, crate::ALGORITHMS);
        }
        "maxconn" => findings
            .untranslated(line, "`connections-max` of the [[listener]] resets further connections"),
        "interface" => findings.untranslated(line, "bind to an address of the interface"),
        "user" | "group" | "uid" | "gid" | "mode" => {
            findings.untranslated(
                line,
                "the file mode of a unix socket follows the umask of the process",
            );
        }
        "npn" | "level" | "thread" | "process" | "mss" | "shards" | "nice" | "id" | "tcp-ut" => {
            findings.unneeded(line, format!("{word:?} has no counterpart"));
        }
        other => {
            findings.untranslated(line, format!("the option {other:?} of `bind`"));
            return false;
        }
    }
    true
}

/// The settings of TLS that need several options.
fn tls(
    block: &mut Block,
    certificates: Vec<String>,
    is_secure: bool,
    global: &Global,
    line: usize,
) {
    if !is_secure {
        block.remove("tls");
        return;
    }
    let pair = |path: String| {
        // HAProxy reads the key from the same file.
        let entries = [("cert", Value::Text(path.clone())), ("key", Value::Text(path))];
        Value::Table(entries.map(|(key, value)| (key.to_owned(), value)).to_vec())
    };
    match certificates.is_empty() {
        true if !block.has("tls") => block.set("tls", "self-signed", line),
        true => {}
        false => {
            let certificates = certificates.into_iter().map(pair).collect();
            block.set_in("tls", "certificates", Value::List(certificates), line);
        }
    }
    if let Some((version, _)) = &global.min_version
        && matches!(block.get("tls"), Some(Value::Table(entries)) if !entries.iter().any(|(key, _)| key == "min-version"))
        && version == "1.3"
    {
        block.set_in("tls", "min-version", version.as_str(), line);
    }
    if global.no_tickets.is_some()
        && matches!(block.get("tls"), Some(Value::Table(entries)) if !entries.iter().any(|(key, _)| key == "tickets"))
    {
        block.set_in("tls", "tickets", "off", line);
    }
}

/// The timeouts of clients.
pub(super) fn timeouts(section: &Section, block: &mut Block) {
    let time = |name: &str| {
        let line = section.last(&["timeout", name])?;
        let ms = units::milliseconds(line.word(2), "ms")?;
        (ms > 0).then(|| (units::timeout(ms), line.number))
    };
    let client = time("client");
    let head = time("http-request").or_else(|| client.clone());
    let idle = time("http-keep-alive").or_else(|| time("http-request")).or_else(|| client.clone());
    for (key, value) in [("head", head), ("idle", idle), ("body", client)] {
        if let Some((value, line)) = value {
            block.set_in("timeouts", key, value, line);
        }
    }
}
