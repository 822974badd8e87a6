//! Who takes part in a comparison: how each is configured, started and named.
//! In: which work, which origin. Out: running servers, and why the others are not there.
//! Never: changes a system's own service; all run from a scratch folder, on free ports.

use crate::process::{self, Running};
use core::net::SocketAddr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the servers of a comparison do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Answer with 27 bytes of JSON.
    Json,
    /// Answer with 13 bytes of text.
    Plaintext,
    /// Forward to an origin.
    Proxy(SocketAddr),
}

/// A server that takes part.
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) address: SocketAddr,
    pub(crate) running: Running,
}

/// Where the programs are that are not peers.
#[derive(Clone, Debug)]
pub(crate) struct Ours {
    /// The `tidegate` binary; `None` when it is not built.
    pub(crate) tidegate: Option<PathBuf>,
    /// The program that runs this code, for `bench floor`.
    pub(crate) bench: PathBuf,
}

/// Names of all that can take part, in the order of the rounds.
pub(crate) const NAMES: [&str; 4] = ["tidegate", "floor", "nginx", "haproxy"];

/// Writes the configuration of `name`, starts it on `cpus` and waits until it listens.
///
/// # Errors
/// A sentence that says why it does not take part.
pub(crate) fn start(
    name: &'static str,
    work: Work,
    ours: &Ours,
    folder: &Path,
    cpus: &[usize],
) -> Result<Contender, String> {
    let failed = |error: std::io::Error| format!("{name}: {error}");
    let folder = folder.join(name);
    fs::create_dir_all(&folder).map_err(failed)?;
    let address = process::free_address().map_err(failed)?;
    let (mut command, version) = command(name, work, ours, &folder, address)?;
    let mut running = Running::start(&mut command, cpus).map_err(failed)?;
    running.wait_until_listening(address).map_err(|why| format!("{name}: {why}"))?;
    Ok(Contender { name, version, address, running })
}

/// The command line that starts `name` on `address`, and its version.
pub(crate) fn command(
    name: &str,
    work: Work,
    ours: &Ours,
    folder: &Path,
    address: SocketAddr,
) -> Result<(Command, String), String> {
    let is_proxy = matches!(work, Work::Proxy(_));
    let configuration = |file: &str, answer: &str, proxy: &str| {
        let text = fill(if is_proxy { proxy } else { answer }, work, folder, address);
        let path = folder.join(file);
        fs::write(&path, text).map(|()| path).map_err(|error| format!("{name}: {error}"))
    };
    let installed = |program: &str| {
        process::find_program(program)
            .ok_or_else(|| format!("{name} is not installed: apt-get install {program} brings it"))
    };
    match name {
        "tidegate" => {
            let program = ours.tidegate.clone().ok_or(
                "tidegate is not built (cargo build --release), or give its path with --ours",
            )?;
            let file = configuration("tidegate.toml", TIDEGATE_ANSWER, TIDEGATE_PROXY)?;
            let mut command = Command::new(&program);
            command.args(["run", "-c"]).arg(file);
            Ok((command, process::version_of(&program, "--version")))
        }
        "floor" => Ok((floor(work, ours, address), "receive and send alone".to_owned())),
        "nginx" => {
            let program = installed("nginx")?;
            let file = configuration("nginx.conf", NGINX_ANSWER, NGINX_PROXY)?;
            let mut command = Command::new(&program);
            command.arg("-p").arg(folder).arg("-c").arg(file);
            Ok((command, process::version_of(&program, "-v")))
        }
        "haproxy" => {
            let program = installed("haproxy")?;
            let file = configuration("haproxy.cfg", HAPROXY_ANSWER, HAPROXY_PROXY)?;
            let mut command = Command::new(&program);
            command.arg("-db").arg("-f").arg(file);
            Ok((command, process::version_of(&program, "-v")))
        }
        _ => Err(format!("unknown contender `{name}`; there are {}", NAMES.join(", "))),
    }
}

/// The command line of a floor server.
pub(crate) fn floor(work: Work, ours: &Ours, address: SocketAddr) -> Command {
    let mut command = Command::new(&ours.bench);
    command.args(["bench", "floor", "--listen", &address.to_string()]);
    match work {
        Work::Json => {}
        Work::Plaintext => {
            command.arg("--plaintext");
        }
        Work::Proxy(origin) => {
            command.args(["--proxy", &origin.to_string()]);
        }
    }
    command
}

fn fill(template: &str, work: Work, folder: &Path, address: SocketAddr) -> String {
    let origin = match work {
        Work::Proxy(origin) => origin.to_string(),
        Work::Json | Work::Plaintext => String::new(),
    };
    template
        .replace("{listen}", &address.to_string())
        .replace("{origin}", &origin)
        .replace("{dir}", &folder.to_string_lossy())
}

const TIDEGATE_ANSWER: &str = include_str!("../../../../benches/compare/tidegate-answer.toml");
const TIDEGATE_PROXY: &str = include_str!("../../../../benches/compare/tidegate-proxy.toml");
const NGINX_ANSWER: &str = include_str!("../../../../benches/compare/nginx-answer.conf");
const NGINX_PROXY: &str = include_str!("../../../../benches/compare/nginx-proxy.conf");
const HAPROXY_ANSWER: &str = include_str!("../../../../benches/compare/haproxy-answer.cfg");
const HAPROXY_PROXY: &str = include_str!("../../../../benches/compare/haproxy-proxy.cfg");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_filled() {
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let work = Work::Proxy("127.0.0.1:2".parse().unwrap());
        for template in [NGINX_PROXY, HAPROXY_PROXY, TIDEGATE_PROXY] {
            let text = fill(template, work, Path::new("/folder"), address);
            assert!(text.contains("127.0.0.1:1") && text.contains("127.0.0.1:2"), "{text}");
            assert!(!text.contains("{dir}") && !text.contains("{listen}"), "{text}");
        }
    }
}
