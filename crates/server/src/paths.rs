//! Checks of paths that the parser of the configuration does not check: the token of the admin interface, unix sockets, the
//! access log.
//! In: a configuration, and the path of its file. Out: findings, as `tidegate check` and `tidegate run` print them.
//! Never: creates a file; waits for the other end of a fifo.
//! Limits: a change between the check and the start is an error of the start.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;
use tidegate_config::findings::{Finding, Owner};
use tidegate_config::model::{AccessTarget, Bind, Config};
use tidegate_config::report::Kind;

use crate::admin::token::Tokens;
use crate::files;

/// What is wrong with a path, and the fix.
type Fault = (String, String);

/// Checks the paths of `config`, which was read from `file`.
#[must_use]
pub fn check(config: &Config, file: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut note = |owner, subject: &str, (what, help): Fault| {
        let (kind, subject, help) = (Kind::File, subject.to_owned(), Some(help));
        findings.push(Finding { kind, owner, subject, what, help });
    };
    for (index, listener) in config.listeners.iter().enumerate() {
        if let Err(fault) = check_socket(&listener.bind) {
            note(Owner::Listener(index), &listener.bind.to_string(), fault);
        }
    }
    if let Some(admin) = &config.admin {
        if let Err(fault) = check_socket(&admin.bind) {
            note(Owner::Admin, &admin.bind.to_string(), fault);
        }
        if let Err((path, fault)) = Tokens::read(admin) {
            note(Owner::Admin, &path, fault);
        }
    }
    if let Some(AccessTarget::File(path)) = config.log.access.as_ref().map(|access| &access.to)
        && let Err(fault) = check_log(Path::new(path), file)
    {
        note(Owner::Log, path, fault);
    }
    findings
}

/// A unix socket needs a folder in which it can be created.
fn check_socket(bind: &Bind) -> Result<(), Fault> {
    let Bind::Unix(path) = bind else { return Ok(()) };
    let path = Path::new(path);
    match fs::symlink_metadata(path) {
        Ok(meta) if !meta.file_type().is_socket() => Err((
            "a file that is not a socket exists at this path".to_owned(),
            "use another path for the socket".to_owned(),
        )),
        _ => check_folder(path),
    }
}

/// The access log must be a file, or a fifo or device, that can be opened or created, and not the configuration.
fn check_log(path: &Path, config: &Path) -> Result<(), Fault> {
    let help = |text: &str| text.to_owned();
    let Ok(meta) = fs::metadata(path) else { return check_folder(path) };
    if meta.is_dir() {
        return Err((
            help("the access log cannot be opened: the path is a folder"),
            format!("name a file in it: \"file:{}\"", path.join("access.log").display()),
        ));
    }
    let is_config = fs::metadata(config)
        .is_ok_and(|config| (config.dev(), config.ino()) == (meta.dev(), meta.ino()));
    if is_config {
        return Err((
            help("this is the configuration file itself: lines of the log would be appended to it"),
            help("name another file"),
        ));
    }
    let opened = OpenOptions::new().append(true).custom_flags(files::open_flags()).open(path);
    match opened {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => Err((
            help("the access log cannot be opened: it is a fifo that no program reads"),
            help("start the reader first, or name a file"),
        )),
        Err(error) => Err((
            format!("the access log cannot be opened: {error}"),
            help("name a file that the user of the process may write"),
        )),
    }
}

/// A file is created in a folder that exists and that the process may write.
fn check_folder(path: &Path) -> Result<(), Fault> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    let shown = folder.display();
    match fs::metadata(&folder) {
        Ok(meta) if !meta.is_dir() => Err((
            format!("{shown} is not a folder"),
            "name a file in an existing folder".to_owned(),
        )),
        Ok(_) => access(&folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
            let what = format!("no file can be created in {shown}: {error}");
            (what, "name a folder that the user of the process may write".to_owned())
        }),
        Err(error) => Err((
            format!("the folder {shown} cannot be used: {error}"),
            format!("mkdir -p {shown}"),
        )),
    }
}
