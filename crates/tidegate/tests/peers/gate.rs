//! Starts Tidegate as a user would: a configuration file and `run -c`.
//! In: the text of a configuration with port 0. Out: the listening addresses, memory use, exit status, messages.

use std::io::{BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::thread::JoinHandle;

use tidegate_testing::{Signal, command};

use crate::process::{Folder, Process};

/// A running Tidegate.
pub struct Gate {
    process: Process,
    /// Listening addresses, one for each TCP `[[listener]]`, in file order; unix listeners are left out.
    addresses: Vec<SocketAddr>,
    /// Collects the messages printed after the listening lines; taken by `wait`.
    rest: Option<JoinHandle<String>>,
}

impl Gate {
    /// Serves `config` and waits until the listening addresses are printed.
    pub fn start(folder: &Folder, config: &str) -> Self {
        Self::start_with(folder, config, &[])
    }

    /// As `start`, with additional arguments of `run`.
    pub fn start_with(folder: &Folder, config: &str, arguments: &[&str]) -> Self {
        let file = folder.file("tidegate.toml", config);
        let mut command = command(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["run", "-c", &file]).args(arguments).stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let stderr = process.child().stderr.take().expect("stderr is piped");
        let mut stderr = BufReader::new(stderr);
        let mut addresses = Vec::new();
        let parsed = tidegate_config::parse_with_warnings(config, "the test's file");
        for _ in 0..parsed.map_or(1, |(config, _)| config.listeners.len()) {
            addresses.extend(read_announcement(&mut stderr));
        }
        let rest = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Self { process, addresses, rest: Some(rest) }
    }

    /// One listener on a free port, forwarding to one server.
    pub fn in_front_of(folder: &Folder, server: impl std::fmt::Display) -> Self {
        Self::start(folder, &proxy_config("127.0.0.1:0", server))
    }

    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Listening addresses of the TCP listeners, in file order.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn terminate(&self) {
        self.process.terminate();
    }

    /// Waits for the exit; returns the status and the messages printed after the listening lines.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = self.process.wait();
        let messages = self.rest.take().map(|reader| reader.join().expect("stderr was read"));
        (status, messages.unwrap_or_default())
    }

    /// Resident memory now; resets the peak that `memory_peak_kib` reads.
    pub fn mark_memory_kib(&self) -> u64 {
        let reset = format!("/proc/{}/clear_refs", self.process.pid());
        std::fs::write(reset, "5").expect("the peak can be reset (proc(5), clear_refs)");
        self.memory_kib("VmRSS:")
    }

    /// Peak resident memory since `mark_memory_kib`.
    pub fn memory_peak_kib(&self) -> u64 {
        self.memory_kib("VmHWM:")
    }

    fn memory_kib(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.pid());
        let status = std::fs::read_to_string(path).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let value = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
        value.and_then(|value| value.parse().ok()).expect("proc(5) has the field in kB")
    }
}

/// A configuration of one listener and one server, with every other setting at its default.
pub fn proxy_config(bind: impl std::fmt::Display, server: impl std::fmt::Display) -> String {
    format!(
        "[[listener]]\nname = \"web\"\nbind = \"{bind}\"\n\n[[route]]\nproxy = \"app\"\n\n\
         [pool.app]\nservers = [\"{server}\"]\n"
    )
}

/// Reads up to the next "listening on" line; returns `None` if it names a unix socket.
fn read_announcement(stderr: &mut impl std::io::BufRead) -> Option<SocketAddr> {
    let mut messages = String::new();
    loop {
        let begin = messages.len();
        let read = stderr.read_line(&mut messages).expect("stderr can be read");
        assert!(read > 0, "tidegate exited instead of serving:\n{messages}");
        let Some(place) = messages[begin..].strip_prefix("tidegate: listening on ") else {
            continue;
        };
        let (scheme, address) = place.split_once("://")?;
        assert!(["http", "https", "tcp"].contains(&scheme), "{place}");
        let end = address.find(['/', ' ']).expect("the name of the listener follows");
        let address = &address[..end];
        return Some(address.parse().expect("an address is printed"));
    }
}
