//! The Tidegate process under test: the binary, started as an operator would, on free ports.
//! In: the origin's address. Out: the listeners' addresses, and the process's use of resources.
//! Limits: one worker, so that all vectors share the same pools and buffers.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_testing::{Started, command, start};

/// A running Tidegate process. Dropping it kills the process and removes its folder.
pub struct Gate {
    /// Listener whose requests are all proxied to the origin.
    pub proxy: SocketAddr,
    /// Listener whose requests are all answered by `respond`.
    pub respond: SocketAddr,
    /// Listener with a route for each kind of local response: `/synthetic`, `/to` (a redirect), `/get` (for
    /// GET only), `/empty`, `/unmodified`, and `/limited`, which is proxied.
    pub local: SocketAddr,
    child: Started,
    /// Holds the configuration file.
    folder: PathBuf,
}

/// The body that the `respond` route sends.
pub const RESPOND_BODY: &str = "answered here";

impl Gate {
    pub fn start(origin: SocketAddr) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-probe-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("the folder can be created");
        let file = folder.join("probe.toml");
        std::fs::write(&file, configuration(origin)).expect("the file can be written");
        let mut child = start(
            command(env!("CARGO_BIN_EXE_tidegate"))
                .args(["run", "--workers", "1", "-c"])
                .arg(&file)
                .stderr(Stdio::piped()),
        );
        let stderr = child.stderr.take().expect("stderr is piped");
        let mut lines = BufReader::new(stderr).lines();
        let mut find = |name: &str| -> SocketAddr {
            for line in lines.by_ref() {
                let line = line.expect("stderr is text");
                if line.contains(&format!("({name})")) {
                    let (_, rest) =
                        line.split_once("http://").expect("the process prints the address");
                    let (address, _) =
                        rest.split_once('/').expect("the process prints the address");
                    return address.parse().expect("the process prints the address");
                }
            }
            panic!("the process ended before it listened on {name}");
        };
        let (proxy, respond, local) = (find("proxy"), find("respond"), find("local"));
        std::thread::spawn(move || lines.for_each(drop));
        Self { proxy, respond, local, child, folder }
    }

    /// The open descriptors, summed over all threads, because a worker has a descriptor table of its own.
    pub fn descriptors(&self) -> usize {
        let tasks = format!("/proc/{}/task", self.child.id());
        let tasks = std::fs::read_dir(tasks).expect("the process runs");
        let count = |task: std::fs::DirEntry| {
            std::fs::read_dir(task.path().join("fd")).map_or(0, Iterator::count)
        };
        tasks.flatten().map(count).sum()
    }

    /// The CPU time that the process has used so far.
    pub fn cpu_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("the process runs");
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let words: Vec<&str> = after_name.split_whitespace().collect();
        let ticks = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let ticks = ticks(11).unwrap_or(0) + ticks(12).unwrap_or(0);
        Duration::from_millis(ticks * 10)
    }

    /// Resident memory in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.child.id()));
        let statm = statm.expect("the process runs");
        let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        pages.unwrap_or(0) * 4096
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn configuration(origin: SocketAddr) -> String {
    format!(
        "[[listener]]\nname = \"proxy\"\nbind = \"127.0.0.1:0\"\n\
         [[listener]]\nname = \"respond\"\nbind = \"127.0.0.1:0\"\n\
         [[listener]]\nname = \"local\"\nbind = \"127.0.0.1:0\"\nlimits = {{ body = \"1KiB\" }}\n\
         [[route]]\nlistener = \"proxy\"\nproxy = \"origin\"\n\
         [[route]]\nlistener = \"respond\"\nrespond = {{ body = \"{RESPOND_BODY}\" }}\n\
         [[route]]\nlistener = \"local\"\npath = \"/synthetic\"\nsynthetic = true\n\
         [[route]]\nlistener = \"local\"\npath = \"/echo\"\necho = true\n\
         [[route]]\nlistener = \"local\"\npath = \"/to/*\"\n\
         redirect = \"https://{{host}}{{path}}{{query}}\"\n\
         [[route]]\nlistener = \"local\"\npath = \"/get\"\nmethod = \"GET\"\nrespond = {{ body = \"g\" }}\n\
         [[route]]\nlistener = \"local\"\npath = \"/limited\"\nproxy = \"origin\"\n\
         [[route]]\nlistener = \"local\"\npath = \"/empty\"\nrespond = {{ status = 204 }}\n\
         [[route]]\nlistener = \"local\"\npath = \"/unmodified\"\nrespond = {{ status = 304 }}\n\
         [pool.origin]\nservers = [\"{origin}\"]\nrequest-buffer = \"0B\"\n"
    )
}
