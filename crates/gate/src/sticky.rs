//! Sessions that stay with a server: a cookie names the server of a client's first request.
//! In: the settings of a pool, the head of a request. Out: the server that the cookie names; the field that sets it.
//! Never: states the address of a server in clear text; trusts the cookie for more than the choice of a server.
//! Invariant: the name of a server in the cookie depends only on the pool's name and the server's address, so it means
//! the same in every process with this configuration, and after a restart.

use core::fmt::Write as _;

use tidegate_base::prng::hash_bytes;
use tidegate_config::model::{Pool, SameSite, ServerAddress, Sticky};
use tidegate_wire::message::{Field, FieldName, RequestHead, ResponseHead};

use crate::parameters::{cookies, set_cookie};

/// `sticky` of a pool, prepared.
#[derive(Debug)]
pub struct Sessions {
    /// The name of the cookie.
    cookie: String,
    /// By server: its name in the cookie.
    names: Vec<String>,
    /// By server: the value of Set-Cookie.
    fields: Vec<String>,
}

impl Sessions {
    /// Prepares the settings of `pool`; `None` if its sessions do not stay.
    #[must_use]
    pub fn new(pool: &Pool) -> Option<Self> {
        let sticky = pool.sticky.as_ref()?;
        let names = names_of(pool);
        let fields = names.iter().map(|name| field_of(sticky, name)).collect();
        Some(Self { cookie: sticky.cookie.clone(), names, fields })
    }

    /// The server that the request's cookie names.
    #[must_use]
    pub fn server_of(&self, head: &RequestHead<'_>) -> Option<usize> {
        // A client may send several cookies of this name, for different paths.
        cookies(head, &self.cookie)
            .find_map(|value| self.names.iter().position(|name| name.as_bytes() == value))
    }

    /// The value of Set-Cookie that names `server`; empty for a server that does not exist.
    #[must_use]
    pub fn field(&self, server: usize) -> &str {
        self.fields.get(server).map_or("", String::as_str)
    }
}

/// By server: a name that depends only on the pool's name and the server's address.
pub(crate) fn names_of(pool: &Pool) -> Vec<String> {
    let name = |address: &ServerAddress| {
        let address = match address {
            ServerAddress::Ip(address) => address.to_string(),
            ServerAddress::Name(name, port) => format!("{name}:{port}"),
            ServerAddress::Unix(path) => format!("unix:{path}"),
        };
        format!("{:016x}", hash_bytes(format!("{}\n{address}", pool.name).as_bytes()))
    };
    pool.servers.iter().map(|server| name(&server.address)).collect()
}

/// The value of Set-Cookie (RFC 6265 section 4.1) that names a server.
fn field_of(sticky: &Sticky, name: &str) -> String {
    let mut field = format!("{}={name}; Path={}", sticky.cookie, sticky.path);
    if let Some(domain) = &sticky.domain {
        let _ = write!(field, "; Domain={domain}");
    }
    if let Some(lifetime) = sticky.lifetime {
        let _ = write!(field, "; Max-Age={}", lifetime.as_secs());
    }
    field.push_str("; HttpOnly");
    if sticky.secure {
        field.push_str("; Secure");
    }
    field.push_str(match sticky.same_site {
        SameSite::Lax => "; SameSite=Lax",
        SameSite::Strict => "; SameSite=Strict",
        SameSite::None => "; SameSite=None",
    });
    field
}

/// Whether the field sets a cookie with the name of the one that the value `cookie` of Set-Cookie sets.
#[must_use]
pub fn sets_same(field: &Field<'_>, cookie: &str) -> bool {
    field.id == FieldName::SetCookie && set_cookie(field.value).0 == set_cookie(cookie.as_bytes()).0
}

/// Whether caches may give the response to several clients (RFC 9111 section 5.2.2), so that it must not contain a cookie
/// of one of them.
pub(crate) fn is_shared(head: &ResponseHead<'_>) -> bool {
    let fields = head.fields().filter(|field| field.id == FieldName::CacheControl);
    let mut directives = fields.flat_map(|field| field.value.split(|&byte| byte == b','));
    directives.any(|directive| {
        let name = directive.split(|&byte| byte == b'=').next().unwrap_or_default().trim_ascii();
        name.eq_ignore_ascii_case(b"public") || name.eq_ignore_ascii_case(b"s-maxage")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_wire::http1::{HeadDecoder, HeadLimits};
    use tidegate_wire::message::FieldStorage;

    fn sessions(sticky: &str) -> Sessions {
        let text = format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nproxy = \"app\"\n[pool.app]\n\
             servers = [\"10.0.0.1:80\", \"10.0.0.2:80\"]\nsticky = {sticky}\n"
        );
        let config = tidegate_config::parse(&text, "the test").unwrap_or_else(|e| panic!("{e}"));
        Sessions::new(&config.pools[0]).expect("sessions stay")
    }

    fn server_of(sessions: &Sessions, cookies: &str) -> Option<usize> {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\nCookie: {cookies}\r\n\r\n");
        let mut storage = FieldStorage::new();
        let mut decoder = HeadDecoder::default();
        let decoded =
            decoder.decode_request(bytes.as_bytes(), &HeadLimits::default(), &mut storage);
        let Ok(Some((head, _))) = decoded else { panic!("{decoded:?}") };
        sessions.server_of(&head)
    }

    #[test]
    fn cookie_names_the_server_that_set_it() {
        let sessions = sessions("{ cookie = \"SRV\" }");
        for server in 0..2 {
            let field = sessions.field(server);
            assert!(field.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{field}");
            let pair = field.split(';').next().unwrap_or_default();
            assert_eq!(server_of(&sessions, pair), Some(server));
            assert_eq!(server_of(&sessions, &format!("a=b; SRV=old; {pair}; c=d")), Some(server));
            assert!(!field.contains("10.0.0"), "{field}");
        }
        assert_eq!(server_of(&sessions, "SRV=0123456789abcdef; XSRV=1"), None);
        assert_eq!(sessions.field(2), "");
    }

    #[test]
    fn attributes_are_as_configured() {
        let sessions = sessions(
            "{ cookie = \"S\", secure = true, same-site = \"none\", lifetime = \"8h\", path = \"/app\", domain = \"a.example\" }",
        );
        let (_, attributes) = sessions.field(0).split_once("; ").expect("attributes follow");
        let expected =
            "Path=/app; Domain=a.example; Max-Age=28800; HttpOnly; Secure; SameSite=None";
        assert_eq!(attributes, expected);
    }
}
