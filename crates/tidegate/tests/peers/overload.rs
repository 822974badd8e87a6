//! A worker that is overloaded: some requests are refused, others never.
//! In: more requests to a slow Lua application than a worker can serve. Out: statuses, Retry-After, counters.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::admin::Operated;

/// Clients that send requests all the time.
const CLIENTS: usize = 24;
/// How long the overload may take to be noticed. Only a failed test waits for so long.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A client with one connection.
struct Client(BufReader<TcpStream>);

impl Client {
    fn new(at: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(at).expect("the listener is open")))
    }

    /// The status and the value of Retry-After.
    fn get(&mut self, path: &str) -> (u16, Option<String>) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).expect("it is sent");
        let (mut status, mut retry_after, mut length) = (0, None, 0);
        for number in 0.. {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a line");
            if line == "\r\n" {
                break;
            }
            let lower = line.trim_end().to_ascii_lowercase();
            if number == 0 {
                status = lower[9..12].parse().expect("a status");
            } else if let Some(value) = lower.strip_prefix("retry-after: ") {
                retry_after = Some(value.to_owned());
            } else if let Some(value) = lower.strip_prefix("content-length: ") {
                length = value.parse().expect("a length");
            }
        }
        self.0.read_exact(&mut vec![0; length]).expect("a body");
        (status, retry_after)
    }
}

#[test]
fn overloaded_worker_refuses_some_requests_early() {
    let script = "return { on_request = function(request, response)\n\
                  local n = 0\nfor i = 1, 300000 do n = n + i % 7 end\nresponse:json({ n = n })\nend }\n";
    let files = crate::process::Folder::new("overload-files");
    let script = files.file("slow.lua", script);
    let operated = Operated::start(
        "overload",
        &format!(
            "[server]\nworkers = 1\noverload = {{ turn-target = \"1ms\", interval = \"10ms\" }}\n[lua.slow]\nscript = {script:?}\n\
             [[route]]\npath = \"/slow\"\nlua = \"slow\"\n[[route]]\npath = \"/health\"\nlua = \"slow\"\nshed = false\n"
        ),
    );
    let (door, ends, refused) = (operated.door, AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = Client::new(door);
                while !ends.load(Ordering::Relaxed) {
                    match client.get("/slow") {
                        (200, None) => {}
                        (503, Some(seconds)) => {
                            assert!(["1", "2", "3"].contains(&&seconds[..]), "{seconds}");
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
        let (began, mut client) = (Instant::now(), Client::new(door));
        let mut late = false;
        while refused.load(Ordering::Relaxed) < 20 && !late {
            assert_eq!(client.get("/health").0, 200, "`shed = false`");
            assert_eq!(client.get("/json").0, 200, "`respond`");
            late = began.elapsed() > WAIT_MAX;
        }
        ends.store(true, Ordering::Relaxed);
        assert!(!late, "no request is refused");
    });
    let info = operated.page("/metrics");
    let counter = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name)).expect("a counter");
        line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")
    };
    assert!(counter("tidegate_overload_refusals_total") >= 20.0);
    assert!(counter("tidegate_overload_intervals_total") >= 1.0);
    // The load is gone.
    let (began, mut client) = (Instant::now(), Client::new(door));
    while client.get("/slow").0 != 200 {
        assert!(began.elapsed() < WAIT_MAX, "requests are refused without load");
    }
}

#[test]
fn requests_are_refused_while_the_process_uses_too_much_memory() {
    let script = "local kept = {}\nreturn { on_request = function(request, response)\n\
                  if request.path == \"/fill\" then for i = 1, 64 do kept[i] = string.rep(\"x\", 1048576 + i) end end\n\
                  response:json({ kept = #kept })\nend }\n";
    let files = crate::process::Folder::new("memory-files");
    let script = files.file("keep.lua", script);
    let operated = Operated::start(
        "memory",
        &format!(
            "[lua.keep]\nscript = {script:?}\nmemory-max = \"256MiB\"\ntime-max = \"10s\"\n\
             [[route]]\npath = \"/work\"\nlua = \"keep\"\n\
             [[route]]\npath = \"/fill\"\nlua = \"keep\"\n[[route]]\npath = \"/health\"\nlua = \"keep\"\nshed = false\n\
             [server]\nworkers = 1\n"
        ),
    );
    let path = operated.folder.join("tidegate.toml");
    let plain = std::fs::read_to_string(&path).expect("the configuration");
    let limit = |value: &str| {
        let limited = format!("{plain}[server.overload]\nmemory-max = {value:?}\n");
        std::fs::write(&path, limited).expect("it is written");
        operated.ctl_well(&["reload"]);
    };
    let figure = |name: &str| {
        let page = operated.page("/metrics");
        let line = page.lines().find(|line| line.starts_with(&format!("{name} ")));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("no {name} in {page}"))
    };
    let resident = figure("process_resident_memory_bytes");
    let max_mib = resident as u64 / (1 << 20) + 24;
    limit(&format!("{max_mib}MiB"));
    let mut client = Client::new(operated.door);
    assert_eq!(client.get("/work"), (200, None));
    assert_eq!(client.get("/fill").0, 200);
    let mut wait_for = |status: u16| {
        let began = Instant::now();
        while client.get("/work").0 != status {
            assert!(began.elapsed() < WAIT_MAX, "no response with {status}");
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(client.get("/health").0, 200, "`shed = false`");
        assert_eq!(client.get("/json").0, 200, "`respond`");
    };
    wait_for(503);
    assert_eq!(figure("tidegate_memory_exceeded_now"), 1.0);
    assert_eq!(figure("tidegate_memory_max_bytes_now"), (max_mib << 20) as f64);
    assert!(figure("tidegate_memory_used_bytes_now") > (max_mib << 20) as f64);
    assert!(figure("tidegate_memory_refusals_total") >= 1.0);
    let info = operated.ctl_well(&["show", "info"]);
    assert!(info.contains(&format!("\nMemmax_MB: {max_mib}\n")), "{info}");
    // A share of the memory of the machine or of its container.
    limit("100%");
    wait_for(200);
    assert!(figure("tidegate_memory_max_bytes_now") > (max_mib << 20) as f64);
}
