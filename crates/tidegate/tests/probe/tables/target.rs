//! Request targets and Host: RFC 9112 sections 3.2 and 3.3, RFC 9110 sections 4.2, 7.1, 7.2 and 7.7.

use crate::vector::{Check, End, Routes, Vector, accept, refuse};

pub fn vectors() -> Vec<Vector> {
    let mut all = hosts();
    all.extend(bad_hosts());
    all.extend(forms());
    all.extend(kept_targets());
    all
}

fn with_host(field: &str) -> String {
    format!("GET / HTTP/1.1\r\n{field}\r\n\r\n")
}

fn hosts() -> Vec<Vector> {
    let host = |name, value: &'static str| {
        accept(name, "9112 3.2", with_host(&format!("Host: {value}")))
            .origin(&[Check::Has("host", value)])
    };
    vec![
        host("a name", "example.com"),
        host("a name with a port", "example.com:8080"),
        host("an IPv4 address", "127.0.0.1:80"),
        host("an IPv6 address", "[::1]"),
        host("an IPv6 address with a port", "[2001:db8::1]:443"),
        host("a name in upper case", "EXAMPLE.com"),
        host("an underscore", "a_b.example"),
        host("a trailing dot", "example.com."),
        host("an empty Host", ""),
        host("a Host of spaces", "  ").origin(&[Check::Has("host", "")]),
        accept("Host without a space", "9112 5.1", with_host("Host:h"))
            .origin(&[Check::Has("host", "h")]),
        accept("white space around Host's value", "9112 5.1", with_host("Host: \t h \t"))
            .origin(&[Check::Has("host", "h")]),
        accept("Host in any case", "9110 5.1", with_host("hOsT: h"))
            .origin(&[Check::Has("host", "h")]),
        accept("Host at the end", "9110 7.2", "GET / HTTP/1.1\r\nX: y\r\nHost: h\r\n\r\n")
            .origin(&[Check::Has("host", "h"), Check::Has("x", "y")]),
        accept(
            "Connection cannot remove Host",
            "9110 7.6.1",
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: Host\r\n\r\n",
        )
        .origin(&[Check::Has("host", "h")]),
    ]
}

fn bad_hosts() -> Vec<Vector> {
    let bad = |name, field: &str| refuse(name, "9112 3.2 MUST", &[400], with_host(field));
    vec![
        refuse("no Host", "9112 3.2 MUST", &[400], "GET / HTTP/1.1\r\n\r\n"),
        refuse("no Host among others", "9112 3.2 MUST", &[400], "GET / HTTP/1.1\r\nX: y\r\n\r\n"),
        bad("two Hosts", "Host: a\r\nHost: b"),
        bad("two equal Hosts", "Host: a\r\nHost: a"),
        bad("two Hosts apart", "Host: a\r\nX: y\r\nhost: b"),
        bad("two Hosts, one empty", "Host: a\r\nHost:"),
        bad("a list of hosts", "Host: a, b"),
        bad("a Host with a space", "Host: a b"),
        bad("a Host with a tab", "Host: a\tb"),
        bad("a Host with a path", "Host: a/b"),
        bad("a Host with a scheme", "Host: http://a"),
        bad("a Host with user information", "Host: u@a"),
        bad("a Host with a query", "Host: a?b"),
        bad("a Host with a fragment", "Host: a#b"),
        bad("a Host with a backslash", "Host: a\\b"),
        bad("a Host with a NUL", "Host: a\0b"),
        bad("a Host with a bare CR", "Host: a\rb"),
        bad("a Host with a word for a port", "Host: a:b"),
        bad("a Host with a negative port", "Host: a:-1"),
        bad("a Host with a port too large", "Host: a:65536"),
        bad("a Host with two ports", "Host: a:1:2"),
        bad("a Host with a port alone", "Host: :80"),
        bad("a Host with an open bracket", "Host: [::1"),
        bad("a Host with bytes after a bracket", "Host: [::1]x"),
        bad("a Host with a bare IPv6 address", "Host: ::1"),
        bad("a Host with an empty bracket", "Host: []"),
        bad("a Host with a quote", "Host: \"a\""),
        bad("a Host with angle brackets", "Host: <a>"),
        bad("a Host beyond ASCII", "Host: \u{e9}"),
        bad("a Host with half a percent", "Host: a%2"),
        bad("a space before Host's colon", "Host : h"),
        bad("a folded Host", "Host:\r\n h"),
        bad("a Host continued on the next line", "Host: a\r\n b"),
        refuse("two Hosts in HTTP/1.0", "9112 3.2 MUST", &[400], {
            "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"
        }),
        refuse("an invalid Host beside an absolute target", "9112 3.2 MUST", &[400], {
            "GET http://h/ HTTP/1.1\r\nHost: a b\r\n\r\n"
        }),
        refuse("two Hosts beside an absolute target", "9112 3.2 MUST", &[400], {
            "GET http://h/ HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"
        }),
        refuse("no Host beside an absolute target", "9112 3.2 MUST", &[400], {
            "GET http://h/ HTTP/1.1\r\n\r\n"
        }),
        refuse("HEAD without Host has no content", "9110 9.3.2 MUST", &[400], {
            "HEAD / HTTP/1.1\r\n\r\n"
        })
        .client(&[Check::Body("")]),
    ]
}

fn forms() -> Vec<Vector> {
    let with = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    let bad = |name, rule, target: &str| refuse(name, rule, &[400], with(target));
    // The head is valid, so the connection stays open.
    let with_nul =
        |name, target: &str| accept(name, "3986 7.3", with(target)).statuses(&[400]).seen(0);
    vec![
        accept("absolute form", "9112 3.2.2 MUST", with("http://h/a?b"))
            .origin(&[Check::Start("GET /a?b HTTP/1.1"), Check::Has("host", "h")]),
        accept("the target's host replaces Host", "9112 3.2.2 MUST", with("http://other:81/a"))
            .origin(&[Check::Start("GET /a HTTP/1.1"), Check::Has("host", "other:81")]),
        accept("absolute form without a path", "9112 3.2.1 MUST", with("http://h"))
            .origin(&[Check::Start("GET / HTTP/1.1")]),
        accept("absolute form with a query alone", "9112 3.2.1 MUST", with("http://h?q"))
            .origin(&[Check::Start("GET /?q HTTP/1.1")]),
        accept("a scheme in upper case", "9110 4.2.3", with("HTTP://h/a"))
            .origin(&[Check::Start("GET /a HTTP/1.1")]),
        accept("absolute form in HTTP/1.0", "9112 3.2.2", "GET http://h/a HTTP/1.0\r\n\r\n")
            .closes()
            .origin(&[Check::Start("GET /a HTTP/1.1"), Check::Has("host", "h")]),
        accept("an empty Host beside an absolute target", "9112 3.2.2", {
            "GET http://h/a HTTP/1.1\r\nHost:\r\n\r\n"
        })
        .origin(&[Check::Has("host", "h")]),
        accept("OPTIONS in asterisk form", "9112 3.2.4", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")
            .origin(&[Check::Start("OPTIONS * HTTP/1.1")]),
        accept("OPTIONS in absolute form without a path", "9112 3.2.4 MUST", {
            "OPTIONS http://h:8001 HTTP/1.1\r\nHost: h\r\n\r\n"
        })
        .origin(&[Check::Start("OPTIONS * HTTP/1.1"), Check::Has("host", "h:8001")]),
        accept("OPTIONS in absolute form with a path", "9112 3.2.4", {
            "OPTIONS http://h/ HTTP/1.1\r\nHost: h\r\n\r\n"
        })
        .origin(&[Check::Start("OPTIONS / HTTP/1.1")]),
        accept("https on a plain connection", "9110 7.4 MUST", with("https://h/a"))
            .one_of(&[421, 400])
            .ends(End::Any)
            .seen(0),
        accept("HTTPS in capitals on a plain connection", "9110 7.4 MUST", with("HTTPS://h/a"))
            .one_of(&[421, 400])
            .ends(End::Any)
            .seen(0),
        bad("GET in asterisk form", "9112 3.2.4", "*"),
        bad("GET in authority form", "9112 3.2.3", "h:80"),
        bad("a target without a slash", "9112 3.2.1 MUST", "a"),
        bad("another scheme", "9112 3.2.2", "ftp://h/a"),
        bad("a scheme of script", "9112 3.2.2", "javascript:alert(1)"),
        bad("user information in the target", "9110 4.2.4 SHOULD", "http://u:p@h/"),
        bad("an empty host in the target", "9110 4.2.1 MUST", "http:///a"),
        bad("an empty authority in the target", "9110 4.2.1 MUST", "http://"),
        bad("one slash after the scheme", "9112 3.2.2", "http:/h"),
        bad("a bad port in the target", "9112 3.2.2", "http://h:x/"),
        bad("a fragment in the target", "9112 3.2", "/a#b"),
        bad("a fragment in an absolute target", "9112 3.2", "http://h/#b"),
        bad("a quote in the target", "9112 3.2", "/\"a\""),
        with_nul("an encoded NUL", "/a%00b"),
        with_nul("an encoded NUL at the end", "/a.php%00"),
        bad("angle brackets in the target", "9112 3.2", "/<a>"),
        bad("a backslash in the path", "9112 3.2", "/a\\b"),
        bad("a target beyond ASCII", "9112 3.2", "/\u{e9}"),
        bad("OPTIONS-like stars", "9112 3.2.4", "**"),
    ]
}

/// RFC 9110 section 7.7: the path and the query reach the origin unchanged.
fn kept_targets() -> Vec<Vector> {
    let kept = |name, line: &'static str| {
        accept(name, "9110 7.7 MUST NOT", format!("{line}\r\nHost: h\r\n\r\n"))
            .to(Routes::Proxy)
            .origin(&[Check::Start(line)])
    };
    vec![
        kept("an encoded unreserved character", "GET /%7Euser HTTP/1.1"),
        kept("an encoding in lower case", "GET /a%2fb%2F HTTP/1.1"),
        kept("dot segments", "GET /a/./b/../c HTTP/1.1"),
        kept("encoded dot segments", "GET /a/%2e%2E/c HTTP/1.1"),
        kept("a dot segment at the end", "GET /a/. HTTP/1.1"),
        kept("double slashes", "GET //a//b HTTP/1.1"),
        kept("an empty query", "GET /a? HTTP/1.1"),
        kept("quotes and angle brackets in a query", "GET /a?q=\"<b>\" HTTP/1.1"),
        kept("two question marks", "GET /a?b?c HTTP/1.1"),
        kept("a query with dot segments", "GET /a?b=/../c HTTP/1.1"),
        kept("a URL as query", "GET /a?u=http://b/?c HTTP/1.1"),
        kept("sub-delimiters", "GET /!$&'()*+,;=:@-._~ HTTP/1.1"),
        kept("parameters of a segment", "GET /a;b=1/c;d HTTP/1.1"),
        kept("an encoded CRLF", "GET /a%0d%0aX:%20y HTTP/1.1"),
        kept("a colon in the first segment", "GET /a:b HTTP/1.1"),
    ]
}
