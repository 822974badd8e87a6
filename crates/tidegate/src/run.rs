//! `tidegate run`: serves until SIGTERM or SIGINT.
//! In: the path of a configuration (without one, the embedded configuration); an address that replaces the
//! configured one.
//! Out: exit code 0 after a graceful stop, 1 if the start failed, 2 if the configuration is invalid or an address is
//! in use.
//! Limits: `EMBEDDED_PORTS` ports are tried for the embedded configuration.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use tidegate_config::findings::Finding;
use tidegate_config::model::{Bind, Config};
use tidegate_server::{ConfigSource, RunOptions, StartError, ports};

use crate::source::{self, Refusal, Source};
use crate::{DONE, FAILED, USAGE, print_message};

/// How many ports above its default port the embedded configuration tries if ports are in use.
const EMBEDDED_PORTS: u16 = 20;

/// Arguments of `tidegate run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The configuration file; without it, the embedded configuration
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Worker threads; overrides `workers` of the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Address to listen on, in place of `bind` of the file's only listener
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<String>,
    /// Share the port with the process of the same user that listens on it, to replace that process without downtime
    #[arg(long)]
    takeover: bool,
}

/// Serves until a signal stops the process.
pub fn run(args: &RunArgs) -> ExitCode {
    if let Err(error) = tidegate_server::hold_reloads() {
        print_message(&error_line(format!("cannot block signals: {error}")));
        return ExitCode::from(FAILED);
    }
    let mut included = Vec::new();
    let loaded = match args.file.as_ref().or(args.config.as_ref()) {
        Some(path) => load(path, args.bind.as_deref(), &mut included),
        None => embedded(args),
    };
    let (config, notes, source) = match loaded {
        Ok(loaded) => loaded,
        Err(text) => {
            print_message(&text);
            return ExitCode::from(USAGE);
        }
    };
    let options = RunOptions { workers: args.workers, takeover: args.takeover, notes };
    let reread = source.as_ref().map(|source| Reread::boxed(source, included, args));
    match tidegate_server::run_from(reread, config, options) {
        Ok(()) => ExitCode::from(DONE),
        Err(error) => {
            print_message(&match (&error, source) {
                (StartError::Values(findings), Some(source)) => refusal(findings, &source),
                _ => error_line(error.to_string()),
            });
            ExitCode::from(match error {
                StartError::Taken(_) | StartError::Values(_) => USAGE,
                StartError::Listen(_) | StartError::Open(_) | StartError::System { .. } => FAILED,
            })
        }
    }
}

/// A configuration to serve, notes to print before its start, and the file that it is from.
type Served = (Config, String, Option<Source>);

/// The findings as `tidegate check` prints them: each at its place in the file.
fn refusal(findings: &[Finding], source: &Source) -> String {
    let errors = source.loaded.places.errors(findings.to_vec(), &source.text);
    Refusal::Wrong(errors).to_string()
}

/// Reads the configuration file again for a reload.
struct Reread {
    /// The path of the file.
    path: PathBuf,
    /// `--bind`.
    bind: Option<String>,
    /// The files that it includes, and the folders of its patterns, as they were at the last reading.
    included: Vec<PathBuf>,
    /// The file as it was read last.
    last: Option<Source>,
}

impl Reread {
    fn boxed(source: &Source, included: Vec<PathBuf>, args: &RunArgs) -> Box<dyn ConfigSource> {
        Box::new(Self {
            path: PathBuf::from(source.text.name()),
            bind: args.bind.clone(),
            included,
            last: None,
        })
    }
}

impl ConfigSource for Reread {
    fn read(&mut self) -> Result<(Config, String), String> {
        let (config, warnings, source) =
            load(&self.path, self.bind.as_deref(), &mut self.included)?;
        self.last = source;
        Ok((config, warnings))
    }

    fn paths(&self) -> Vec<PathBuf> {
        [&self.path].into_iter().chain(&self.included).cloned().collect()
    }

    fn explain(&self, findings: Vec<Finding>) -> String {
        self.last.as_ref().map_or_else(String::new, |source| refusal(&findings, source))
    }
}

/// The configuration in a file, and its warnings; the error is a string to print. `included`: as for `load_to_serve`.
fn load(path: &Path, bind: Option<&str>, included: &mut Vec<PathBuf>) -> Result<Served, String> {
    let source = source::load_to_serve(path, included).map_err(|refusal| refusal.to_string())?;
    let warnings = source.warnings_text();
    let mut config = source.loaded.config.clone();
    if let Some(address) = bind {
        tidegate_config::rebind(&mut config, address).map_err(error_line)?;
    }
    Ok((config, warnings, Some(source)))
}

/// The embedded configuration on a free port, and notes that state its address; the error is a string to print.
fn embedded(args: &RunArgs) -> Result<Served, String> {
    let mut config = tidegate_config::embedded();
    if let Some(address) = &args.bind {
        tidegate_config::rebind(&mut config, address).map_err(error_line)?;
    }
    let bind = match &config.listeners[0].bind {
        Bind::Unix(path) => Bind::Unix(path.clone()),
        Bind::Tcp(address) => {
            // An address that the user chose, or that of a process to be replaced, is not changed.
            let is_fixed = args.takeover || (args.bind.is_some() && address.port() != 0);
            let free = if is_fixed { None } else { ports::next_free(*address, EMBEDDED_PORTS) };
            // If no port is free, the start fails with an error that names the process on the first port.
            Bind::Tcp(free.unwrap_or(*address))
        }
    };
    let mut note = String::from(
        "tidegate: no configuration file given (tidegate run FILE): serving the embedded configuration\n",
    );
    if let (Bind::Tcp(wanted), Bind::Tcp(chosen)) = (&config.listeners[0].bind, &bind) {
        if wanted.port() != 0 && wanted != chosen {
            let holder = match ports::holder(*wanted) {
                Some(ports::Holder { pid, name }) => format!("process {pid} ({name})"),
                None => "another process".to_owned(),
            };
            note.push_str(&format!(
                "tidegate: {wanted} is in use by {holder}; listening on {chosen} instead\n"
            ));
        }
        note.push_str(&format!(
            "tidegate: open http://{chosen}/ or try /json /plaintext /synthetic?s=1k /proxied/json\n"
        ));
    }
    Ok((tidegate_config::embedded_at(&bind), note, None))
}

fn error_line(text: String) -> String {
    format!("tidegate: {text}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_refused_reading_are_watched() {
        let folder = std::env::temp_dir().join(format!("tidegate-reread-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            std::fs::write(folder.join(name), text).expect("the file can be written");
        };
        let route = "[[route]]\npath = \"/b\"\nrespond = { body = \"b\" }\n";
        let main = "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\npath = \"/a\"\nrespond = { body = \"a\" }\n";
        std::fs::create_dir_all(folder.join("more")).expect("the folder can be created");
        write("main.toml", main);
        let path = folder.join("main.toml");
        let mut reread = Reread { path, bind: None, included: Vec::new(), last: None };
        assert!(reread.read().is_ok());
        assert_eq!(reread.paths(), [folder.join("main.toml")]);

        // A missing file, a file with errors, and then a valid file.
        write("main.toml", &format!("include = \"more/new.toml\"\n{main}"));
        let watched = [folder.join("main.toml"), folder.join("more/new.toml")];
        assert!(reread.read().is_err());
        assert_eq!(reread.paths(), watched);
        write("more/new.toml", &route.replace("respond", "respnd"));
        assert!(reread.read().is_err());
        assert_eq!(reread.paths(), watched);
        write("more/new.toml", route);
        let routes = reread.read().map(|(config, _)| config.routes.len());
        assert_eq!(routes, Ok(2));

        // A main file that cannot be read names no files, so the earlier files are still watched.
        std::fs::remove_file(folder.join("main.toml")).expect("the file can be removed");
        assert!(reread.read().is_err());
        assert_eq!(reread.paths(), watched);
        let _ = std::fs::remove_dir_all(folder);
    }
}
