//! The head of a request, kept after the bytes that it was decoded from are gone.
//! In: a head. Out: the same head, lent as often as it is needed.
//! Never: changes the length; changes a method if the client could not read the response to another one.
//! Limits: `TARGET_PART_BYTES_MAX` for a path, and for a query, that replaces that of the head.
//! Invariant: a replaced path begins with exactly one slash and contains no "?". A replaced path or query consists of
//! visible ASCII characters other than "#".

use core::ops::Range;

use tidegate_base::limits::HOST_BYTES_MAX;

use super::field::{FieldName, FieldTable, Packed, PackedField};
use super::length::BodyLength;
use super::method::Method;
use super::request::RequestHead;
use super::target::{TargetForm, parse_host};
use super::version::Version;

/// Maximum size in bytes of a path, and of a query, that replaces that of a head.
pub const TARGET_PART_BYTES_MAX: usize = 8 * 1024;

/// A part of `OwnedHead::text`.
type Part = Range<usize>;

/// The head of a request.
#[derive(Debug)]
pub struct OwnedHead {
    /// The strings of the head: method, target, path, query, host, protocol and names of fields, and replaced ones.
    text: String,
    /// The values of the fields.
    values: Vec<u8>,
    /// The fields, in order.
    fields: Vec<PackedField>,
    /// The method's token.
    method: Part,
    /// The target as received. `set_path`, `set_query` and `set_host` do not change it.
    target: Part,
    /// As in `RequestHead`.
    form: TargetForm,
    /// The path: that of the target, or its replacement.
    path: Part,
    /// The query: that of the target, or its replacement.
    query: Option<Part>,
    /// The host, with a port if there is one.
    host: Option<Part>,
    /// The protocol of an extended CONNECT.
    protocol: Option<Part>,
    /// The version.
    version: Version,
    /// How the end of the body is found; never `UntilClose`.
    length: BodyLength,
    /// Whether the client wants to keep the connection open.
    persistent: bool,
    /// Whether the client waits for a 100 (Continue) response.
    expect_continue: bool,
    /// Whether the client requests another protocol.
    upgrade: bool,
}

impl Default for OwnedHead {
    fn default() -> Self {
        Self {
            text: String::new(),
            values: Vec::new(),
            fields: Vec::new(),
            method: 0..0,
            target: 0..0,
            form: TargetForm::Origin,
            path: 0..0,
            query: None,
            host: None,
            protocol: None,
            version: Version::Http11,
            length: BodyLength::None,
            persistent: false,
            expect_continue: false,
            upgrade: false,
        }
    }
}

impl OwnedHead {
    /// Copies a head; the head that was kept before is removed.
    pub fn keep(&mut self, head: &RequestHead<'_>) {
        self.text.clear();
        self.values.clear();
        self.fields.clear();
        self.method = self.put(head.method.as_str());
        self.target = self.put(head.target);
        self.form = head.form;
        self.path = self.put(head.path);
        self.query = head.query.map(|query| self.put(query));
        self.host = head.host.map(|host| self.put(host));
        self.protocol = head.protocol.map(|protocol| self.put(protocol));
        self.version = head.version;
        self.length = head.length;
        self.persistent = head.persistent;
        self.expect_continue = head.expect_continue;
        self.upgrade = head.upgrade;
        for field in head.fields() {
            self.push(field.id, field.name, field.value, field.is_sensitive);
        }
    }

    /// Forgets the head, and its memory if that exceeds `bytes_max`.
    pub fn clear(&mut self, bytes_max: usize) {
        if self.text.capacity() + self.values.capacity() > bytes_max {
            *self = Self::default();
            return;
        }
        self.text.clear();
        self.values.clear();
        self.fields.clear();
    }

    /// The head.
    #[must_use]
    pub fn lend(&self) -> RequestHead<'_> {
        RequestHead {
            method: Method::from_token(self.get(&self.method)),
            target: self.get(&self.target),
            form: self.form,
            path: self.get(&self.path),
            query: self.query(),
            host: self.host(),
            version: self.version,
            length: self.length,
            persistent: self.persistent,
            expect_continue: self.expect_continue,
            upgrade: self.upgrade,
            protocol: self.protocol.as_ref().map(|protocol| self.get(protocol)),
            fields: FieldTable::of_packed(self.packed()),
        }
    }

    /// The method by which routes and rules judge the request ([`RequestHead::routed_method`]).
    #[must_use]
    pub fn routed_method(&self) -> &str {
        if self.protocol.is_some() { "GET" } else { self.get(&self.method) }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.get(&self.path)
    }

    /// The query.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        self.query.as_ref().map(|query| self.get(query))
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_ref().map(|host| self.get(host))
    }

    /// The version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Names and values of the fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let packed = self.packed();
        self.fields.iter().map(move |field| {
            let field = packed.unpack(field);
            (field.name, field.value)
        })
    }

    /// Replaces the method.
    ///
    /// # Errors
    /// Why the method of this request cannot be replaced by `method`, which is a token.
    pub fn set_method(&mut self, method: &str) -> Result<(), &'static str> {
        if self.upgrade || self.protocol.is_some() {
            return Err("the request asks for another protocol, so its method cannot be changed");
        }
        if self.form == TargetForm::Asterisk || self.path() == "*" {
            return Err("the request has no path (OPTIONS *), so its method cannot be changed");
        }
        // The client expects a response to the method that it has sent.
        let decides_about_content = |method: &str| matches!(method, "HEAD" | "CONNECT" | "TRACE");
        let before = self.get(&self.method);
        if before != method && [before, method].into_iter().any(decides_about_content) {
            return Err("HEAD, CONNECT and TRACE can be neither replaced nor set");
        }
        self.method = self.put(method);
        Ok(())
    }

    /// Replaces the host.
    ///
    /// # Errors
    /// Why `host` is not valid.
    pub fn set_host(&mut self, host: &str) -> Result<(), &'static str> {
        if host.len() > HOST_BYTES_MAX || parse_host(host.as_bytes()).is_none() {
            return Err("the host must be a name or an address, with a port if one is needed");
        }
        self.host = Some(self.put(host));
        Ok(())
    }

    /// Replaces the path.
    ///
    /// # Errors
    /// Why `path` is not valid, or why the request can have no path.
    pub fn set_path(&mut self, path: &str) -> Result<(), &'static str> {
        if self.form == TargetForm::Asterisk || self.path() == "*" {
            return Err("the request has no path (OPTIONS *)");
        }
        if !path.starts_with('/') || path.starts_with("//") {
            return Err("the path must begin with one slash");
        }
        check_part(path, |byte| byte != b'?')?;
        self.path = self.put(path);
        Ok(())
    }

    /// Replaces the query; `None` removes it.
    ///
    /// # Errors
    /// Why `query` is not valid.
    pub fn set_query(&mut self, query: Option<&str>) -> Result<(), &'static str> {
        if let Some(query) = query {
            check_part(query, |_| true)?;
        }
        self.query = query.map(|query| self.put(query));
        Ok(())
    }

    /// Removes the fields whose names meet `removes`.
    pub fn remove_fields(&mut self, removes: impl Fn(&str) -> bool) {
        let names = &self.text;
        self.fields.retain(|field| {
            let (start, end) = field.name;
            !removes(names.get(start as usize..end as usize).unwrap_or_default())
        });
    }

    /// Adds a field after the others. `name` is a token and `value` a field value, and the field is none that frames the
    /// message or belongs to the connection.
    pub fn add_field(&mut self, name: &str, value: &[u8]) {
        self.push(FieldName::classify(name.as_bytes()), name, value, false);
    }

    fn push(&mut self, id: FieldName, name: &str, value: &[u8], is_sensitive: bool) {
        let (name_at, value_at) = (self.text.len(), self.values.len());
        self.text.push_str(name);
        self.values.extend_from_slice(value);
        let name = (name_at as u32, self.text.len() as u32);
        let value = (value_at as u32, self.values.len() as u32);
        self.fields.push(PackedField { id, name, value, is_sensitive });
    }

    fn put(&mut self, text: &str) -> Part {
        let start = self.text.len();
        self.text.push_str(text);
        start..self.text.len()
    }

    fn get(&self, part: &Part) -> &str {
        self.text.get(part.clone()).unwrap_or_default()
    }

    fn packed(&self) -> Packed<'_> {
        Packed { fields: &self.fields, names: &self.text, values: &self.values }
    }
}

/// Checks a path or a query.
fn check_part(text: &str, is_allowed: fn(u8) -> bool) -> Result<(), &'static str> {
    if text.len() > TARGET_PART_BYTES_MAX {
        return Err("the path or the query is longer than 8 KiB, the limit for each");
    }
    // "#" would begin a fragment, which is never sent (RFC 9110 section 4.2.5).
    let fits = |byte: u8| byte.is_ascii_graphic() && byte != b'#' && is_allowed(byte);
    match text.bytes().all(fits) {
        true => Ok(()),
        false => Err(
            "the path or the query contains a character that is not allowed; percent-encode it (tide.url.escape)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{HeadDecoder, HeadLimits};
    use crate::message::FieldStorage;

    /// Keeps the head of a request.
    fn kept(text: &str) -> OwnedHead {
        let mut storage = FieldStorage::new();
        let decoded = HeadDecoder::default().decode_request(
            text.as_bytes(),
            &HeadLimits::default(),
            &mut storage,
        );
        let (head, _) = decoded.expect("the head is valid").expect("the head is complete");
        let mut owned = OwnedHead::default();
        owned.keep(&head);
        assert_eq!(format!("{:?}", owned.lend().fields().collect::<Vec<_>>()), {
            format!("{:?}", head.fields().collect::<Vec<_>>())
        });
        owned
    }

    #[test]
    fn lent_head_is_the_one_that_was_kept() {
        let text = "POST http://a.example:81/p/q?x=1 HTTP/1.1\r\nHost: b\r\nX-Two: 1\r\nx-two: 2\r\n\
            Content-Length: 7\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n";
        let mut owned = kept(text);
        owned.clear(1 << 20);
        owned = kept(text);
        let head = owned.lend();
        assert_eq!((head.method, head.path, head.query), (Method::Post, "/p/q", Some("x=1")));
        assert_eq!(head.host, Some("a.example:81"));
        assert_eq!(head.length, BodyLength::Length(7));
        assert!(head.expect_continue && !head.persistent && !head.upgrade);
        assert!(head.has(FieldName::Expect) && !head.has(FieldName::Cookie));
        assert_eq!(head.find_named("x-two"), Some(&b"1"[..]));
        assert_eq!((owned.routed_method(), owned.version()), ("POST", Version::Http11));
    }

    #[test]
    fn fields_are_replaced() {
        let mut owned = kept("GET /a HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nCookie: c\r\nX_A: 2\r\n\r\n");
        owned.remove_fields(|name| matches!(name, "X-A" | "X_A" | "Cookie"));
        owned.add_field("x-a", b"3");
        let head = owned.lend();
        let fields: Vec<_> = head.fields().map(|field| (field.name, field.value)).collect();
        assert_eq!(fields, [("Host", &b"a"[..]), ("x-a", b"3")]);
        assert!(!head.has(FieldName::Cookie));
        owned.add_field("Cookie", b"d=e");
        assert!(owned.lend().has(FieldName::Cookie));
    }

    #[test]
    fn path_and_query_are_replaced_if_they_fit_a_target() {
        let mut owned = kept("GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(owned.set_path("/c%20d/e;f=[1]"), Ok(()));
        assert_eq!(owned.set_query(Some("g=?/&h")), Ok(()));
        let head = owned.lend();
        assert_eq!((head.path, head.query), ("/c%20d/e;f=[1]", Some("g=?/&h")));
        for path in ["", "a", "//a", "/a b", "/a?b", "/a#b", "/ä", "/a\r\nX: y", "/\0", "*"] {
            assert!(owned.set_path(path).is_err(), "{path:?}");
        }
        for query in ["a b", "a#b", "a\n", "ä"] {
            assert!(owned.set_query(Some(query)).is_err(), "{query:?}");
        }
        let long = format!("/{}", "x".repeat(TARGET_PART_BYTES_MAX));
        assert!(owned.set_path(&long).is_err());
        assert_eq!(owned.set_path(&long[..TARGET_PART_BYTES_MAX]), Ok(()));
        assert_eq!(owned.set_query(None), Ok(()));
        assert_eq!(owned.lend().query, None);
        let mut asterisk = kept("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(asterisk.set_path("/a").is_err());
    }
}
