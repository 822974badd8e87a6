//! Any text is translated without a panic, in bounded time, to TOML that the reader accepts.
//! In: random strings, and files put together from lines that mean something. Out: passed assertions.

use proptest::prelude::*;
use tidegate_convert::{LineResult, Program, convert};

/// Lines of HAProxy's files.
const HAPROXY: &[&str] = &[
    "global",
    "defaults",
    "frontend f",
    "frontend g",
    "backend b",
    "backend c",
    "listen l",
    "mode http",
    "mode tcp",
    "bind :80",
    "bind *:443 ssl crt /a.pem",
    "bind 1.2.3.4:99999",
    "bind unix@/x{y",
    "acl a path_beg /x",
    "acl a path_beg /y/",
    "acl b hdr(host) -i a.b *.c",
    "acl c src 10.0.0.0/8 ::1",
    "acl d path_reg ^/[0-9]+(",
    "acl e req.cook(x) -m found",
    "acl f path_end .php",
    "use_backend b if a !c",
    "use_backend c if b or d",
    "use_backend b if f",
    "default_backend c",
    "http-request deny if a !b !c",
    "http-request deny unless a b",
    "http-request set-header X %[src]",
    "http-request set-header \"\" {x",
    "http-request set-header X-Forwarded-Proto https if a",
    "http-request set-path /a%[path]",
    "http-request replace-path /x/(.*) /\\1 if c",
    "http-request return status 999",
    "http-request redirect scheme https unless { ssl_fc }",
    "http-request redirect location //%[path]",
    "http-response set-header Connection x if a",
    "server s 1.1.1.1:80 check inter 1ms weight 300",
    "server t name:0",
    "server u unix@/x",
    "server v :80 maxconn 0 cookie a",
    "balance hdr(x y)",
    "balance leastconn",
    "cookie \u{e9} insert",
    "option httpchk BREW /x",
    "http-check expect status 7",
    "timeout client 0",
    "timeout server 999d",
    "stick-table type ip size 1 expire 1 store http_req_rate(1s),gpc0",
    "http-request track-sc0 src",
    "http-request deny if { sc_http_req_rate(0) gt 1 }",
    "stats socket /run/x",
    "log 127.0.0.1 local0",
    "option httplog",
    "nbthread 99999",
    "stick on src",
    "monitor-uri x",
    "acl",
    "use_backend",
    "server",
    "bind",
    "\"",
];

/// Directives of nginx's files.
const NGINX: &[&str] = &[
    "http {",
    "server {",
    "location / {",
    "location /a {",
    "location = /b {",
    "location ~ ^/c/ {",
    "location ~* \\.(png|jpg)$ {",
    "location ^~ /d/ {",
    "upstream u {",
    "stream {",
    "map $host $m {",
    "if ($scheme = http) {",
    "if ($host != a.b) {",
    "if ($args ~ \"a\\nb\") { return 403; }",
    "if ($remote_addr = x) { return 403; }",
    "}",
    "}",
    "}",
    "listen 80;",
    "listen 443 ssl;",
    "listen 99999;",
    "server_name a.b *.c _;",
    "server_name \"\" ~^x;",
    "proxy_pass http://u;",
    "proxy_pass http://u/x/;",
    "proxy_pass https://h.i:1/;",
    "proxy_pass http://$m;",
    "proxy_pass 1.1.1.1:1;",
    "server 1.1.1.1:80 weight=0;",
    "server x;",
    "server unix:/;",
    "default u;",
    "a.b u;",
    "return 301 https://$host$request_uri;",
    "return 200 \"{$x}\";",
    "return 999;",
    "return;",
    "rewrite ^/a/(.*)$ /$1 break;",
    "rewrite ^ https://x$request_uri permanent;",
    "add_header X \"a\\tb {c}\";",
    "proxy_set_header Host x y;",
    "proxy_set_header \"\" x;",
    "proxy_set_header X-Forwarded-Proto https;",
    "allow 1.1.1.1;",
    "allow unix:;",
    "deny all;",
    "deny x;",
    "limit_req zone=z burst=5;",
    "limit_req_zone $x zone=z:1m rate=0r/s;",
    "auth_basic x;",
    "auth_basic_user_file y;",
    "client_max_body_size 99999999999g;",
    "keepalive_timeout 0;",
    "ssl_certificate a;",
    "ssl_certificate_key b;",
    "hash $x;",
    "ip_hash;",
    "try_files $uri @n;",
    "location @n {",
    "access_log /x;",
    "proxy_read_timeout 1y;",
    "content_by_lua_block { {",
    "\"",
    ";",
    "{",
];

fn check(text: &str, program: Program) -> Result<(), TestCaseError> {
    let conversion = convert(text, "file\nname", program);
    let read = tidegate_config::parse(&conversion.toml, "");
    prop_assert_eq!(read.is_ok(), conversion.is_accepted);
    if let Err(errors) = read {
        // Only a file without a listener cannot be repaired.
        let has_listener = conversion.toml.lines().any(|line| line == "[[listener]]");
        prop_assert!(!has_listener, "{}\n{}", errors, conversion.toml);
    }
    prop_assert!(conversion.findings.iter().all(|finding| !finding.why.is_empty()));
    // Each finding that concerns the behaviour is a comment, with its reason.
    let comments = conversion.toml.lines().filter(|line| line.starts_with("# file name:")).count();
    let concerns =
        conversion.count(LineResult::Untranslated) + conversion.count(LineResult::Different);
    prop_assert_eq!(comments, concerns, "{}", conversion.toml);
    for finding in
        conversion.findings.iter().filter(|finding| finding.result != LineResult::Unneeded)
    {
        prop_assert!(conversion.toml.contains(&finding.why), "{:?}\n{}", finding, conversion.toml);
    }
    Ok(())
}

fn lines(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    let line =
        prop_oneof![20 => prop::sample::select(words).prop_map(str::to_owned), 1 => "[ -~]{0,40}"];
    prop::collection::vec(line, 0..60).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_translated(text in "\\PC{0,200}") {
        check(&text, Program::Haproxy)?;
        check(&text, Program::Nginx)?;
    }

    #[test]
    fn lines_of_haproxy_become_valid_toml(text in lines(HAPROXY)) {
        check(&text, Program::Haproxy)?;
    }

    #[test]
    fn directives_of_nginx_become_valid_toml(text in lines(NGINX)) {
        check(&text, Program::Nginx)?;
    }
}

/// The findings about a file that must be translated within the bound of a test.
fn untranslated(text: &str, program: Program) -> usize {
    convert(text, "file", program).count(LineResult::Untranslated)
}

#[test]
fn deep_blocks_are_bounded() {
    assert!(untranslated(&"server {\n".repeat(100_000), Program::Nginx) > 0);
}

#[test]
fn many_locations_are_bounded() {
    let many: String =
        (0..20_000).map(|index| format!("location /{index}/ {{ return 200; }}\n")).collect();
    assert!(untranslated(&format!("server {{\n{many}}}"), Program::Nginx) > 0);
}

#[test]
fn many_rules_are_bounded() {
    let rules = "use_backend b if { path_beg /x/ } !a\n".repeat(20_000);
    let acl = "acl a src 10.0.0.0/8\n";
    let backend = "backend b\nmode http\nserver s 1.1.1.1:80\n";
    let text = format!("frontend f\nmode http\nbind :80\n{acl}{rules}{backend}");
    let conversion = convert(&text, "file", Program::Haproxy);
    assert!(conversion.is_accepted && conversion.count(LineResult::Untranslated) > 0);
    assert!(conversion.toml.contains("path = \"/x/*\"\nproxy = \"b\""), "{}", conversion.toml);
}

#[test]
fn large_file_is_a_finding() {
    let huge = "x".repeat(3 << 20);
    let conversion = convert(&huge, "huge", Program::Haproxy);
    assert!(conversion.findings.iter().any(|finding| finding.line == 0));
}

#[test]
fn conditions_that_multiply_are_bounded() {
    let mut copies = String::from("frontend f\nmode http\nbind :80\n");
    for index in 0..40 {
        copies.push_str(&format!(
            "http-request deny if {{ method M{index} }} !{{ src 10.{index}.0.0/16 }}\n"
        ));
        copies.push_str(&format!(
            "http-request set-header X{index} y if {{ urlp(p{index}) -m found }}\n"
        ));
    }
    copies.push_str("default_backend b\nbackend b\nmode http\nserver s 1.1.1.1:80\n");
    let conversion = convert(&copies, "copies", Program::Haproxy);
    let is_named = conversion.findings.iter().any(|finding| finding.why.contains("more than"));
    assert!(is_named, "{:?}", conversion.findings);
}
