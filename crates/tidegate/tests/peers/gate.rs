//! Tidegate itself, started as a user would: a file, `run -c`, what it prints.
//! In: the text of a configuration with port 0. Out: the addresses that it announces, its memory, its end.

use std::io::{BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use crate::process::{Folder, Process};

/// A serving Tidegate.
pub struct Gate {
    process: Process,
    /// By `[[listener]]`, in file order; those on paths are not among them.
    addresses: Vec<SocketAddr>,
    rest: Option<JoinHandle<String>>,
}

impl Gate {
    /// Serves `config` and waits until it says where.
    pub fn start(folder: &Folder, config: &str) -> Self {
        Self::start_with(folder, config, &[])
    }

    /// The same with further arguments of `run`.
    pub fn start_with(folder: &Folder, config: &str, arguments: &[&str]) -> Self {
        let file = folder.file("tidegate.toml", config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["run", "-c", &file]).args(arguments).stderr(Stdio::piped());
        let mut process = Process::spawn(&mut command);
        let stderr = process.child().stderr.take().expect("its messages are piped");
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

    /// A listener on a port of the kernel's choice in front of one server.
    pub fn in_front_of(folder: &Folder, server: impl std::fmt::Display) -> Self {
        Self::start(folder, &proxy_config("127.0.0.1:0", server))
    }

    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// By `[[listener]]`, in file order.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub fn terminate(&self) {
        self.process.terminate();
    }

    /// Waits for its end; returns what it said after it began to serve.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let status = self.process.wait();
        let said = self.rest.take().map(|reader| reader.join().expect("its messages were read"));
        (status, said.unwrap_or_default())
    }

    /// Resident memory now; the peak is counted anew from here.
    pub fn mark_memory_kib(&self) -> u64 {
        let reset = format!("/proc/{}/clear_refs", self.process.pid());
        std::fs::write(reset, "5").expect("the peak can be reset (proc(5), clear_refs)");
        self.memory_kib("VmRSS:")
    }

    /// The most resident memory since the mark.
    pub fn memory_peak_kib(&self) -> u64 {
        self.memory_kib("VmHWM:")
    }

    fn memory_kib(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.process.pid());
        let status = std::fs::read_to_string(path).expect("the process lives");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let value = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
        value.and_then(|value| value.parse().ok()).expect("proc(5) has the field in kB")
    }
}

/// One listener, one server, nothing else said.
pub fn proxy_config(bind: impl std::fmt::Display, server: impl std::fmt::Display) -> String {
    format!(
        "[[listener]]\nname = \"web\"\nbind = \"{bind}\"\n\n[[route]]\nproxy = \"app\"\n\n\
         [pool.app]\nservers = [\"{server}\"]\n"
    )
}

/// Reads on to the next "listening on" line; `None` when it is about a path.
fn read_announcement(stderr: &mut impl std::io::BufRead) -> Option<SocketAddr> {
    let mut said = String::new();
    loop {
        let begin = said.len();
        let read = stderr.read_line(&mut said).expect("its messages can be read");
        assert!(read > 0, "tidegate ended instead of serving:\n{said}");
        let Some(place) = said[begin..].strip_prefix("tidegate: listening on ") else { continue };
        let address = place.strip_prefix("http://").or_else(|| place.strip_prefix("https://"))?;
        let (address, _) = address.split_once('/').expect("a URL ends with its path");
        return Some(address.parse().expect("an address is announced"));
    }
}
