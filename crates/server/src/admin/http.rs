//! The admin interface over HTTP/1: metrics, statistics and health. Nothing can be changed over HTTP.
//! In: one request. Out: one response, after which the connection closes.
//! Never: serves a web page that reaches the interface by a host name (DNS rebinding).

use core::net::IpAddr;
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_wire::http1::{HeadDecoder, HeadLimits};
use tidegate_wire::message::{FieldStorage, Method, RequestHead, reason_phrase};

use super::connection::Connection;
use super::token::Rights;
use crate::counters::Accounts;

use super::exposition::Format;
use super::{Caller, INPUT_BYTES_MAX, Input, Operations, info, metrics, stat};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// The list of pages, for clients that request another one.
const PAGES: &str = "GET /metrics  metrics for Prometheus (OpenMetrics, text, Protocol Buffers)\n\
    GET /live     200 while the process runs, 503 while a worker is stuck\n\
    GET /ready    200 while it serves, 503 while it stops\n\
    GET /info     the process, as JSON\n\
    GET /stat     listeners, pools and servers, as JSON\n\
    Commands: tidegate ctl help\n";

/// A response.
struct Page {
    /// The status.
    status: u16,
    /// The value of Content-Type.
    kind: &'static str,
    /// The content.
    body: Vec<u8>,
}

impl Page {
    fn text(status: u16, body: &str) -> Self {
        Self { status, kind: TEXT, body: body.as_bytes().to_owned() }
    }
}

/// Serves one request whose first line is `first`.
pub(super) fn serve(
    connection: &mut Connection,
    first: String,
    mut input: Input,
    caller: &Caller,
    operations: &Operations,
) -> io::Result<()> {
    let mut bytes = first.into_bytes();
    bytes.append(&mut input.bytes);
    let limits = HeadLimits {
        request_line_bytes_max: INPUT_BYTES_MAX,
        head_bytes_max: INPUT_BYTES_MAX,
        header_fields_max: 64,
    };
    let mut decoder = HeadDecoder::default();
    let mut buffer = [0; 4096];
    loop {
        let mut storage = FieldStorage::new();
        match decoder.decode_request(&bytes, &limits, &mut storage) {
            Ok(Some((head, _))) => {
                let page = page_of(&head, caller, operations);
                let is_head = matches!(head.method, Method::Head);
                match page.status {
                    200 | 503 => connection.mark_served(),
                    _ => connection.mark_refused(),
                }
                return send(connection, &page, is_head);
            }
            Ok(None) => {}
            Err(fault) => {
                connection.mark_refused();
                let page = Page::text(fault.status(), fault.reason());
                return send(connection, &page, false);
            }
        }
        let count = connection.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&buffer[..count]);
    }
}

fn page_of(head: &RequestHead<'_>, caller: &Caller, operations: &Operations) -> Page {
    // With TLS, a browser would not accept the interface's certificate for the name of another site.
    if caller.tokens.all.is_none()
        && caller.secured_by.is_none()
        && !head.host.is_none_or(is_address)
    {
        return Page::text(
            421,
            "the Host field must be an IP address or localhost; for another name, set `token-file` in [admin]\n",
        );
    }
    if !matches!(head.method, Method::Get | Method::Head) {
        return Page::text(
            405,
            "only GET and HEAD are allowed; for commands run: tidegate ctl help\n",
        );
    }
    // Health checks of an orchestrator have no token.
    match head.path {
        "/live" | "/livez" | "/healthz" => {
            let is_stuck = |of: &Arc<Accounts>| of.is_stuck.load(Ordering::Relaxed);
            return match operations.accounts.iter().position(is_stuck) {
                None => Page::text(200, "ok\n"),
                Some(worker) => Page::text(503, &format!("worker {worker} is stuck\n")),
            };
        }
        "/ready" | "/readyz" => {
            return match operations.is_stopping.load(Ordering::SeqCst) {
                false => Page::text(200, "ok\n"),
                true => Page::text(503, "stopping\n"),
            };
        }
        _ => {}
    }
    let shown = head.find_named("authorization").and_then(|value| {
        let (scheme, token) = value.split_at_checked(b"Bearer ".len())?;
        core::str::from_utf8(token).ok().filter(|_| scheme.eq_ignore_ascii_case(b"Bearer "))
    });
    let shown = shown.unwrap_or_default();
    if caller.rights_of(Some(shown)) == Rights::None {
        return Page::text(401, "present the token: Authorization: Bearer TOKEN\n");
    }
    match head.path {
        "/metrics" => {
            let accept = head.find_named("accept").unwrap_or_default();
            let format = Format::of_accept(accept);
            let body = metrics::encode(operations, format);
            Page { status: 200, kind: format.content_type(), body }
        }
        "/info" => Page { status: 200, kind: JSON, body: info::json(operations).into() },
        "/stat" => Page { status: 200, kind: JSON, body: stat::json(operations).into() },
        "/" => Page::text(200, PAGES),
        _ => Page::text(404, PAGES),
    }
}

/// Whether a Host field contains an IP address or localhost. A page that was loaded from another name cannot send such a
/// field.
fn is_address(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

fn send(stream: &mut Connection, page: &Page, is_head: bool) -> io::Result<()> {
    let Page { status, kind, body } = page;
    let (reason, length) = (reason_phrase(*status), body.len());
    let challenge = if *status == 401 { "WWW-Authenticate: Bearer\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Cache-Control: no-store\r\n{challenge}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(if is_head { b"" } else { body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_names_of_this_machine() {
        for host in
            ["127.0.0.1:9901", "[::1]:9901", "[::1]", "localhost", "LocalHost:1", "10.0.0.1"]
        {
            assert!(is_address(host), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", ""] {
            assert!(!is_address(host), "{host}");
        }
    }
}
