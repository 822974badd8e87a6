//! Reads the files that the command line and the configuration name.
//! In: a path, and the most bytes that the file may have. Out: its content.
//! Never: waits for the other end of a fifo, or for a device that sends nothing.
//! Limits: the caller's number of bytes; `WAIT_MAX` for a fifo, a terminal or another device.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

/// Why a file is refused from which a thread that must not wait would read.
pub(crate) const NOT_REGULAR: &str = "the path is not that of a regular file; name a regular file";

/// How long a file that is not a regular file may take to be complete, such as the output of another program.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The flags of open(2) with which no kind of file makes the caller wait or becomes its terminal.
pub(crate) fn open_flags() -> i32 {
    (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed()
}

/// Reads the file at `path`: all of it, or its first `bytes_max` bytes and one more, so that the caller notices a file
/// that is too large.
///
/// # Errors
/// The file cannot be opened or read, or its end is not reached within `WAIT_MAX`.
pub fn read(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(open_flags()).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return read_whole(file, bytes_max);
    }
    let mut bytes = Vec::new();
    read_stream(&file, kind, bytes_max, Instant::now() + WAIT_MAX, &mut bytes)?;
    match bytes.is_empty() && kind.is_fifo() {
        true => Err(io::Error::other(
            "the path is a fifo that no program writes to; name a regular file",
        )),
        false => Ok(bytes),
    }
}

/// As `read`, only of regular files: for a thread that must not wait.
///
/// # Errors
/// As those of `read`; the path is not that of a regular file.
pub(crate) fn read_regular(path: impl AsRef<Path>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().read(true).custom_flags(open_flags()).open(path)?;
    if !file.metadata()?.file_type().is_file() {
        return Err(io::Error::other(NOT_REGULAR));
    }
    read_whole(file, bytes_max)
}

fn read_whole(file: File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a file whose bytes may arrive later.
fn read_stream(
    mut file: &File,
    kind: FileType,
    bytes_max: u64,
    deadline: Instant,
    bytes: &mut Vec<u8>,
) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    while bytes.len() as u64 <= bytes_max {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    let what = if kind.is_fifo() { "fifo" } else { "device" };
                    let seconds = WAIT_MAX.as_secs();
                    return Err(io::Error::other(format!(
                        "the path is a {what} that did not end within {seconds} s; name a regular file"
                    )));
                }
                let left = Timespec {
                    tv_sec: left.as_secs().cast_signed(),
                    tv_nsec: i64::from(left.subsec_nanos()),
                };
                // Reads again after the wait, whatever its result.
                let _ = poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&left));
            }
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(usize::try_from(bytes_max).map_or(usize::MAX, |most| most.saturating_add(1)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn fifo_without_a_writer_is_refused_at_once() {
        let path = std::env::temp_dir().join(format!("tidegate-fifo-{}", std::process::id()));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .expect("a fifo");
        let error = read(&path, 10).expect_err("no program writes to it");
        assert!(error.to_string().contains("a fifo that no program writes to"), "{error}");
        // A program writes to it, and sends nothing.
        let _writer = OpenOptions::new().read(true).write(true).open(&path).expect("it exists");
        let began = Instant::now();
        let error = read_regular(&path, 10).expect_err("it is no regular file");
        assert!(error.to_string().contains("name a regular file"), "{error}");
        assert!(began.elapsed() < WAIT_MAX / 2);
        std::fs::remove_file(&path).expect("it is ours");
    }

    #[test]
    fn pipe_is_read_to_its_end_and_not_beyond_the_limit() {
        let content = |bytes: &[u8], bytes_max| {
            let (reader, mut writer) = io::pipe().expect("a pipe");
            writer.write_all(bytes).expect("room");
            drop(writer);
            read(format!("/dev/fd/{}", reader.as_raw_fd()), bytes_max)
        };
        assert_eq!(content(b"text", 4).ok().as_deref(), Some(&b"text"[..]));
        assert_eq!(content(b"text and more", 4).ok().as_deref(), Some(&b"text "[..]));
        assert_eq!(read("/dev/zero", 3).ok().as_deref(), Some(&[0; 4][..]));
        assert_eq!(read("/dev/null", 3).ok().as_deref(), Some(&[][..]));
        assert!(read("/", 3).is_err() && read("/nothing/here", 3).is_err());
        assert!(read_regular("/dev/null", 3).is_err() && read_regular("/nothing/here", 3).is_err());
        assert_eq!(read_regular("/proc/self/status", 0).ok().map(|read| read.len()), Some(1));
    }

    #[test]
    fn pipe_whose_writer_is_silent_is_given_up_at_the_deadline() {
        let (reader, _writer) = io::pipe().expect("a pipe");
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        let file =
            OpenOptions::new().read(true).custom_flags(open_flags()).open(path).expect("a file");
        let kind = file.metadata().expect("it is open").file_type();
        let error =
            read_stream(&file, kind, 3, Instant::now(), &mut Vec::new()).expect_err("it is silent");
        assert!(error.to_string().contains("did not end within"), "{error}");
    }
}
