//! Sessions that stay with a server: a cookie names the server of a client's first request.
//! In: the settings of a pool, the head of a request. Out: the server that the cookie names; the field that sets it.
//! Never: sends the address of a server in clear text; trusts the cookie for more than the choice of a server.
//! Invariant: the name of a server in the cookie depends only on the pool's name and the server's address, so it means
//! the same in every process with this configuration, and after a restart.

use std::io::Write as _;

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
    /// The attributes after the value in Set-Cookie, except Max-Age.
    attributes: String,
    /// How long browsers keep the cookie, in seconds; 0: until they are closed.
    lifetime_seconds: u64,
    /// How long a session without requests stays with its server, in seconds; 0: the cookie contains no times.
    idle_seconds: u64,
}

/// The session that a request's cookie names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// The server.
    pub server: u16,
    /// When the session began, in seconds since 1970.
    pub began_at: u64,
    /// The cookie must be renewed, because the time of use that it contains is too old.
    pub is_due: bool,
}

impl Sessions {
    /// Prepares the settings of `pool`; `None` if its sessions do not stay.
    #[must_use]
    pub fn new(pool: &Pool) -> Option<Self> {
        let sticky = pool.sticky.as_ref()?;
        Some(Self {
            cookie: sticky.cookie.clone(),
            names: names_of(pool),
            attributes: attributes_of(sticky),
            lifetime_seconds: sticky.lifetime.map_or(0, |span| span.as_secs()),
            idle_seconds: sticky.idle.map_or(0, |span| span.as_secs().max(1)),
        })
    }

    /// The session that the request's cookie names, unless it has ended. `now` is in seconds since 1970.
    #[must_use]
    pub fn session_of(&self, head: &RequestHead<'_>, now: u64) -> Option<Session> {
        // A client may send several cookies of this name, for different paths.
        cookies(head, &self.cookie).find_map(|value| self.parse(value, now))
    }

    /// Parses the value of a cookie: the name of a server, and with `idle` two times in hexadecimal seconds. A cookie from before
    /// `idle` was set has no times.
    fn parse(&self, value: &[u8], now: u64) -> Option<Session> {
        let mut parts = value.splitn(3, |&byte| byte == b'.');
        let name = parts.next()?;
        let server = self.names.iter().position(|known| known.as_bytes() == name)? as u16;
        let mut time = || {
            let digits = core::str::from_utf8(parts.next()?).ok()?;
            u64::from_str_radix(digits, 16).ok()
        };
        let (began_at, used_at) = (time(), time());
        if self.idle_seconds == 0 {
            return Some(Session { server, began_at: now, is_due: false });
        }
        let (Some(began_at), Some(used_at)) = (began_at, used_at) else {
            return Some(Session { server, began_at: now, is_due: true });
        };
        // A time in the future counts as now: clocks of several machines differ.
        let (age, unused) = (now.saturating_sub(began_at), now.saturating_sub(used_at));
        let is_over = self.lifetime_seconds > 0 && age >= self.lifetime_seconds;
        if is_over || unused >= self.idle_seconds {
            return None;
        }
        Some(Session {
            server,
            began_at: began_at.min(now),
            is_due: unused >= self.idle_seconds / 8,
        })
    }

    /// Whether a field of a response sets the cookie.
    #[must_use]
    pub fn is_set_by(&self, field: &Field<'_>) -> bool {
        field.id == FieldName::SetCookie && set_cookie(field.value).0 == self.cookie.as_bytes()
    }

    /// Appends the value of Set-Cookie (RFC 6265 section 4.1) that names `server`. Times are in seconds since 1970.
    pub fn write(&self, out: &mut Vec<u8>, server: u16, began_at: u64, now: u64) {
        let Some(name) = self.names.get(usize::from(server)) else { return };
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{}={name}", self.cookie);
        if self.idle_seconds > 0 {
            let _ = write!(out, ".{began_at:x}.{now:x}");
        }
        let left = match self.idle_seconds {
            0 => self.lifetime_seconds,
            _ => self.lifetime_seconds.saturating_sub(now.saturating_sub(began_at)),
        };
        if left > 0 {
            let _ = write!(out, "; Max-Age={left}");
        }
        out.extend_from_slice(self.attributes.as_bytes());
    }
}

/// By server: a name that depends only on the pool's name and the server's address.
pub(crate) fn names_of(pool: &Pool) -> Vec<String> {
    let name = |address: &ServerAddress| {
        format!("{:016x}", hash_bytes(format!("{}\n{address}", pool.name).as_bytes()))
    };
    pool.servers.iter().map(|server| name(&server.address)).collect()
}

/// The attributes of the cookie (RFC 6265 section 4.1).
fn attributes_of(sticky: &Sticky) -> String {
    let mut text = format!("; Path={}", sticky.path);
    if let Some(domain) = &sticky.domain {
        text.push_str("; Domain=");
        text.push_str(domain);
    }
    text.push_str("; HttpOnly");
    if sticky.secure {
        text.push_str("; Secure");
    }
    text.push_str(match sticky.same_site {
        SameSite::Lax => "; SameSite=Lax",
        SameSite::Strict => "; SameSite=Strict",
        SameSite::None => "; SameSite=None",
    });
    text
}

/// Whether the field sets a cookie with the same name as `cookie`, a value of Set-Cookie.
#[must_use]
pub fn sets_same(field: &Field<'_>, cookie: &str) -> bool {
    field.id == FieldName::SetCookie && set_cookie(field.value).0 == set_cookie(cookie.as_bytes()).0
}

/// Whether caches may give the response to several clients (RFC 9111 section 5.2.2), so that it must not contain a cookie for a
/// single client.
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

    fn session_of(sessions: &Sessions, cookies: &str, now: u64) -> Option<Session> {
        let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\nCookie: {cookies}\r\n\r\n");
        let mut storage = FieldStorage::new();
        let mut decoder = HeadDecoder::default();
        let decoded =
            decoder.decode_request(bytes.as_bytes(), &HeadLimits::default(), &mut storage);
        let Ok(Some((head, _))) = decoded else { panic!("{decoded:?}") };
        sessions.session_of(&head, now)
    }

    fn written(sessions: &Sessions, server: u16, began_at: u64, now: u64) -> String {
        let mut out = Vec::new();
        sessions.write(&mut out, server, began_at, now);
        String::from_utf8(out).expect("it is text")
    }

    fn pair(field: &str) -> &str {
        field.split(';').next().unwrap_or_default()
    }

    #[test]
    fn cookie_names_the_server_that_set_it() {
        let sessions = sessions("{ cookie = \"SRV\" }");
        for server in 0..2 {
            let field = written(&sessions, server, 1000, 1000);
            assert!(field.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{field}");
            let pair = pair(&field);
            let named = Some(Session { server, began_at: 7, is_due: false });
            assert_eq!(session_of(&sessions, pair, 7), named);
            assert_eq!(session_of(&sessions, &format!("a=b; SRV=old; {pair}; c=d"), 7), named);
            assert_eq!(
                session_of(&sessions, &format!("{pair}.5.6"), 7),
                named,
                "`idle` was removed"
            );
            assert!(!field.contains("10.0.0"), "{field}");
        }
        assert_eq!(session_of(&sessions, "SRV=0123456789abcdef; XSRV=1", 7), None);
        assert_eq!(written(&sessions, 2, 0, 0), "");
    }

    #[test]
    fn attributes_are_as_configured() {
        let sessions = sessions(
            "{ cookie = \"S\", secure = true, same-site = \"none\", lifetime = \"8h\", path = \"/app\", domain = \"a.example\" }",
        );
        let field = written(&sessions, 0, 5, 5);
        let (_, attributes) = field.split_once("; ").expect("attributes follow");
        let expected =
            "Max-Age=28800; Path=/app; Domain=a.example; HttpOnly; Secure; SameSite=None";
        assert_eq!(attributes, expected);
    }

    #[test]
    fn session_ends_when_it_is_unused_or_old() {
        let sessions = sessions("{ cookie = \"S\", idle = \"1h\", lifetime = \"8h\" }");
        let (began_at, used_at) = (1_000_000, 1_010_000);
        let field = written(&sessions, 1, began_at, used_at);
        assert!(field.contains("; Max-Age=18800;"), "{field}");
        let after = |seconds| session_of(&sessions, pair(&field), used_at + seconds);
        let named = |is_due| Some(Session { server: 1, began_at, is_due });
        assert_eq!((after(0), after(449)), (named(false), named(false)));
        assert_eq!((after(450), after(3599)), (named(true), named(true)));
        assert_eq!(after(3600), None, "unused");
        let field = written(&sessions, 1, began_at, began_at + 28_799);
        let at = |now| session_of(&sessions, pair(&field), began_at + now);
        assert_eq!(at(28_799), Some(Session { server: 1, began_at, is_due: false }));
        assert_eq!(at(28_800), None, "old");
        // The clock of the machine that wrote the cookie is ahead.
        assert_eq!(at(0).map(|session| session.began_at), Some(began_at));
        let earlier = session_of(&sessions, pair(&field), began_at - 60);
        assert_eq!(earlier, Some(Session { server: 1, began_at: began_at - 60, is_due: false }));
    }

    #[test]
    fn cookie_from_before_idle_was_set_keeps_its_server_and_gets_times() {
        let plain = sessions("{ cookie = \"S\" }");
        let dated = sessions("{ cookie = \"S\", idle = \"1h\" }");
        let field = written(&plain, 1, 0, 0);
        let session = Session { server: 1, began_at: 9, is_due: true };
        for cookie in [
            pair(&field).to_owned(),
            format!("{}.x.y", pair(&field)),
            format!("{}.1", pair(&field)),
        ] {
            assert_eq!(session_of(&dated, &cookie, 9), Some(session), "{cookie}");
        }
    }
}
