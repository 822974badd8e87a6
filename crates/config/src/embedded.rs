//! The configuration used if no file is named: a page and example endpoints, on 127.0.0.1 only.
//! In: `embedded.toml`, `web/index.html`, the client of push hubs and the documents, compiled in. Out: text, or the checked configuration.
//! Invariant: the text parses without a warning; a test checks this.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::file::parse;
use crate::model::{Bind, Config, ServerAddress};
use crate::reference::reference;

const TEXT: &str = include_str!("embedded.toml");
const PAGE: &str = include_str!("../../../web/index.html");
/// Placeholder for the page in the text.
const PAGE_MARK: &str = "@web/index.html@";
/// The client of push hubs, which the page uses.
const CLIENT: &str = include_str!("../../../web/client/tidegate.js");
/// Placeholder for the client in the text.
const CLIENT_MARK: &str = "@web/client/tidegate.js@";

/// Placeholder for the configuration page in the text.
const CONFIGURATION_MARK: &str = "@docs/configuration.md@";
/// The page about the configuration. Only its part before the reference is in the binary.
const CONFIGURATION: &str = include_str!("../../../docs/configuration.md");
/// The markers around the reference part.
const REFERENCE_MARKS: [&str; 2] = ["<!-- settings: begin -->\n", "<!-- settings: end -->\n"];
/// The part before the reference, as a copy: a slice would keep the whole page in the binary.
const GUIDE: [u8; end_of(CONFIGURATION, REFERENCE_MARKS[0])] = copy_start(CONFIGURATION);
/// The documents that the page links, except the one about the configuration: placeholder and content.
const DOCUMENTS: [(&str, &str); 12] = [
    ("@docs/bench.md@", include_str!("../../../docs/bench.md")),
    ("@docs/cookbook.md@", include_str!("../../../docs/cookbook.md")),
    ("@docs/getting-started.md@", include_str!("../../../docs/getting-started.md")),
    ("@docs/health.md@", include_str!("../../../docs/health.md")),
    ("@docs/http2.md@", include_str!("../../../docs/http2.md")),
    ("@docs/life-of-a-request.md@", include_str!("../../../docs/life-of-a-request.md")),
    ("@docs/lua.md@", include_str!("../../../docs/lua.md")),
    ("@docs/operations.md@", include_str!("../../../docs/operations.md")),
    ("@docs/push.md@", include_str!("../../../docs/push.md")),
    ("@docs/tcp.md@", include_str!("../../../docs/tcp.md")),
    ("@docs/tls.md@", include_str!("../../../docs/tls.md")),
    ("@docs/websocket.md@", include_str!("../../../docs/websocket.md")),
];

/// The offset in `text` at which `mark` ends.
const fn end_of(text: &str, mark: &str) -> usize {
    let (text, mark) = (text.as_bytes(), mark.as_bytes());
    let mut at = 0;
    loop {
        let mut equal = 0;
        while equal < mark.len() && text[at + equal] == mark[equal] {
            equal += 1;
        }
        if equal == mark.len() {
            return at + equal;
        }
        at += 1;
    }
}

/// The first `N` bytes of `text`.
const fn copy_start<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        bytes[at] = text.as_bytes()[at];
        at += 1;
    }
    bytes
}

/// The page about the configuration, whose reference is written from the table of settings.
fn configuration_page() -> String {
    let mut page = String::from_utf8_lossy(&GUIDE).into_owned();
    page.push_str(&reference());
    page.push_str(REFERENCE_MARKS[1].trim_end());
    page
}

/// The embedded configuration as the text of a file, with the page inserted.
#[must_use]
pub fn embedded_text() -> String {
    let text = TEXT.replace(PAGE_MARK, PAGE.trim_end());
    let text = text.replace(CLIENT_MARK, CLIENT.trim_end());
    let text = text.replace(CONFIGURATION_MARK, &configuration_page());
    DOCUMENTS.iter().fold(text, |text, (mark, document)| text.replace(mark, document.trim_end()))
}

/// The embedded configuration, checked. Its only listener also takes the role of the servers behind the proxy.
///
/// # Panics
/// If the compiled-in text is invalid, which a test rules out.
#[must_use]
pub fn embedded() -> Config {
    match parse(&embedded_text(), "the embedded configuration") {
        Ok(config) => config,
        Err(errors) => panic!("the embedded configuration is invalid:\n{errors}"),
    }
}

/// The embedded configuration on another address.
///
/// # Panics
/// As [`embedded`].
#[must_use]
pub fn embedded_at(bind: &Bind) -> Config {
    let mut config = embedded();
    let server = match bind {
        Bind::Tcp(address) => {
            let mut address = *address;
            if address.ip().is_unspecified() {
                address.set_ip(match address {
                    SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                    SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
                });
            }
            ServerAddress::Ip(address)
        }
        Bind::Unix(path) => ServerAddress::Unix(path.clone()),
    };
    for listener in &mut config.listeners {
        listener.bind = bind.clone();
    }
    for upstream in config.pools.iter_mut().flat_map(|pool| &mut pool.servers) {
        upstream.address = server.clone();
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Action;
    use crate::parse_with_warnings;

    #[test]
    fn new_address_also_replaces_that_of_the_proxied_server() {
        assert_eq!(embedded().listeners.len(), 1);
        assert_eq!(embedded_at(&embedded().listeners[0].bind), embedded());
        for (bind, server) in
            [("127.0.0.1:9", "127.0.0.1:9"), ("0.0.0.0:9", "127.0.0.1:9"), ("[::]:9", "[::1]:9")]
        {
            let config = embedded_at(&Bind::Tcp(bind.parse().expect("an address")));
            let server = ServerAddress::Ip(server.parse().expect("an address"));
            assert_eq!(config.pools[0].servers[0].address, server, "{bind}");
        }
        let config = embedded_at(&Bind::Unix("/run/a".to_owned()));
        assert_eq!(config.pools[0].servers[0].address, ServerAddress::Unix("/run/a".to_owned()));
    }

    #[test]
    fn page_about_the_configuration_is_the_whole_document() {
        assert_eq!(configuration_page(), CONFIGURATION.trim_end());
    }

    #[test]
    fn parses_without_a_warning_and_binds_loopback_only() {
        let text = embedded_text();
        let (config, warnings) = match parse_with_warnings(&text, "embedded") {
            Ok(parsed) => parsed,
            Err(errors) => panic!("{errors}"),
        };
        assert!(warnings.is_empty(), "{warnings}");
        assert_eq!(config, embedded());
        for listener in &config.listeners {
            assert!(matches!(listener.bind, Bind::Tcp(address) if address.ip().is_loopback()));
        }
        let page = config.routes.iter().find_map(|route| match &route.action {
            Action::Respond(respond) if respond.body.starts_with(b"<!doctype html>") => {
                Some(respond.body.as_slice())
            }
            _ => None,
        });
        assert_eq!(page, Some(PAGE.trim_end().as_bytes()), "the page is included byte for byte");
    }
}
