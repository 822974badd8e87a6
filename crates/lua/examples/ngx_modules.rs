//! Runs modules that were written for OpenResty under the layer `ngx`, each with a server that this program simulates.
//! In: a folder with the modules (`scripts/ngx_modules.sh` fetches them). Out: a line for each module; exit code 1 if one fails.
//! Never: opens a socket.
#![allow(clippy::print_stdout)]
#[path = "../tests/harness/mod.rs"]
mod harness;

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

use harness::App;
use tidegate_lua::CallbackEnd;

/// The number of the VM of the harness.
const LIFE: u32 = 2;

/// What a module does: its script, whether the server speaks first, what the server sends after each piece, and the response.
struct Case {
    name: &'static str,
    script: &'static str,
    speaks_first: bool,
    replies: Vec<Vec<u8>>,
    response: &'static str,
}

fn cases() -> Vec<Case> {
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        Case {
            name: "lua-resty-redis",
            script: "local red = require('resty.redis'):new() red:set_timeouts(1000, 1000, 1000)
                assert(red:connect('127.0.0.1', 6379)) ngx.print((red:set('dog', 'an animal')))
                red:init_pipeline() red:get('dog') red:get('none')
                local results = red:commit_pipeline() ngx.print(' ', results[1], ' ', results[2])
                ngx.print(' ', red:set_keepalive(10000, 100))",
            speaks_first: false,
            replies: vec![text("+OK\r\n"), text("$9\r\nan animal\r\n$-1\r\n")],
            response: "OK an animal null 1",
        },
        Case {
            name: "lua-resty-http",
            script: "local http = require('resty.http').new()
                local response = assert(http:request_uri('http://127.0.0.1:6379/a?b=1', { method = 'POST', body = 'x' }))
                ngx.print(response.status, ' ', response.body, ' ', response.headers['X-Kind'])",
            speaks_first: false,
            replies: vec![text("HTTP/1.1 201 Created\r\nX-Kind: k\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")],
            response: "201 hello k",
        },
        Case {
            name: "lua-resty-template",
            script: "require('resty.template').render_string('<b>{{text}}</b>{% for at = 1, 3 do %}{*at*},{% end %}', { text = 'a<b' })",
            speaks_first: false,
            replies: Vec::new(),
            response: "<b>a&lt;b</b>1,2,3,",
        },
        Case {
            name: "lua-resty-websocket (client)",
            script: "local client = assert(require('resty.websocket.client'):new())
                assert(client:connect('ws://127.0.0.1:6379/')) assert(client:send_text('hi'))
                ngx.print(client:recv_frame())",
            speaks_first: false,
            replies: vec![
                text("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
                vec![0x81, 2, b'h', b'o'],
            ],
            response: "hotextnil",
        },
        Case {
            name: "lua-resty-mysql",
            script: "local db = assert(require('resty.mysql'):new()) db:set_timeout(1000)
                assert(db:connect { host = '127.0.0.1', port = 6379, database = 'd', user = 'u', password = 'p' })
                local rows = assert(db:query('select 1')) ngx.print(rows[1]['1'], ' ', #rows)",
            speaks_first: true,
            replies: mysql_replies(),
            response: "1 1",
        },
    ]
}

/// The replies of a MySQL server: the greeting, the end of the handshake, and a row.
fn mysql_replies() -> Vec<Vec<u8>> {
    let packet =
        |number: u8, payload: &[u8]| [&[payload.len() as u8, 0, 0, number], payload].concat();
    let greeting = [
        &b"\x0a5.7.1\0\x01\0\0\0abcdefgh\0"[..],
        &[0xff, 0xf7, 0x21, 0x02, 0, 0xff, 0x81, 21],
        &[0; 10],
        b"abcdefghijkl\0mysql_native_password\0",
    ];
    let column = b"\x03def\0\0\0\x011\0\x0c\x3f\0\x01\0\0\0\x08\x81\0\0\0\0";
    let end = [0xfe, 0, 0, 2, 0];
    let rows =
        [packet(1, &[1]), packet(2, column), packet(3, &end), packet(4, b"\x011"), packet(5, &end)];
    vec![packet(0, &greeting.concat()), packet(2, &[0, 0, 0, 2, 0, 0, 0]), rows.concat()]
}

/// The modules of a folder, by name.
fn modules(folder: &Path, prefix: &str, into: &mut Vec<(&'static str, &'static str)>) {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    for entry in entries {
        let file = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() {
            modules(&entry.path(), &format!("{prefix}{file}."), into);
        } else if let (Some(name), Ok(text)) =
            (file.strip_suffix(".lua"), fs::read_to_string(entry.path()))
        {
            into.push((format!("{prefix}{name}").leak(), text.leak()));
        }
    }
}

/// Runs a case. `Err`: the reason of the failure.
fn run(case: &Case, modules: &'static [(&'static str, &'static str)]) -> Result<(), String> {
    let mut app =
        App::load_ngx(case.script, &[], modules).map_err(|failure| failure.to_string())?;
    let id = app.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut end = app.vm.request(id);
    let (mut replies, mut socket) = (case.replies.iter(), None);
    for _ in 0..100 {
        let response = app.effects();
        if let CallbackEnd::Failed(failure) = &end {
            return Err(failure.message.clone());
        }
        if let Some((_, body)) = response {
            return if body == case.response {
                Ok(())
            } else {
                Err(format!("the response is {body:?}"))
            };
        }
        let begun = core::mem::take(&mut app.sockets)
            .into_iter()
            .find(|(_, what)| what.starts_with("connect"));
        if let (None, Some((begun, _))) = (socket, begun) {
            app.vm.socket_begun(begun, 5);
            app.vm.socket_connected(LIFE, begun, true);
            socket = Some(begun);
            if case.speaks_first
                && let Some(reply) = replies.next()
            {
                app.vm.socket_received(LIFE, begun, reply);
            }
        }
        if !core::mem::take(&mut app.raw).is_empty()
            && let (Some(socket), Some(reply)) = (socket, replies.next())
        {
            app.vm.socket_received(LIFE, socket, reply);
        }
        if let Some(resumed) = app.advance(1).pop() {
            end = resumed.verdict;
        }
    }
    Err("the script still waits".to_owned())
}

fn main() -> ExitCode {
    let Some(folder) = env::args().nth(1) else {
        eprintln!("usage: ngx_modules FOLDER");
        return ExitCode::from(2);
    };
    let mut found = Vec::new();
    modules(Path::new(&folder), "", &mut found);
    let mut has_failed = false;
    for case in cases() {
        let result = run(&case, found.clone().leak());
        has_failed |= result.is_err();
        println!("{}: {}", case.name, result.err().unwrap_or_else(|| "passed".to_owned()));
    }
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
