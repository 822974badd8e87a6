//! `tidegate ctl set tls cert NAME FILE...`: sends a certificate and its key, whose lines follow the command.
//! In: the words of a command; files with PEM. Out: the command with its lines.
//! Never: sends anything of the files but certificates and keys.
//! Limits: `FILE_BYTES_MAX` bytes of a file.

use tidegate_server::files;

/// Bytes of a file. The process takes fewer bytes of certificates and keys.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The command and the lines that follow it, if the words are a command with files.
///
/// # Errors
/// A string to print: a file cannot be used.
pub(super) fn with_lines(words: &str) -> Result<Option<(String, String)>, String> {
    let words: Vec<&str> = words.split_ascii_whitespace().collect();
    let ["set", kind @ ("tls" | "ssl"), "cert", name, paths @ ..] = words.as_slice() else {
        return Ok(None);
    };
    if paths.is_empty() || *paths == ["<<"] {
        return Ok(None);
    }
    let mut lines = String::new();
    for path in paths {
        let fault = |what: &str| format!("tidegate: {path}: {what}\n");
        let bytes = files::read(path, FILE_BYTES_MAX)
            .map_err(|error| fault(&format!("cannot be read: {error}")))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(fault("larger than 1 MiB"));
        }
        let blocks = blocks_of(&String::from_utf8_lossy(&bytes));
        if blocks.is_empty() {
            return Err(fault(
                "contains no PEM; help: name the files of the certificate and of its key",
            ));
        }
        lines.push_str(&blocks);
    }
    Ok(Some((format!("set {kind} cert {name} <<"), lines)))
}

/// The blocks of PEM, without empty lines, which would end the lines, and without the text between blocks.
fn blocks_of(text: &str) -> String {
    let (mut blocks, mut is_inside) = (String::new(), false);
    for line in text.lines().map(str::trim) {
        is_inside |= line.starts_with("-----BEGIN ");
        if is_inside && !line.is_empty() {
            blocks.push_str(line);
            blocks.push('\n');
        }
        is_inside &= !line.starts_with("-----END ");
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_of_pem_are_sent() {
        let text = "subject=CN=é\n-----BEGIN A-----\r\nMII\n\n  x=\n-----END A-----\n\ntext\n-----BEGIN B-----\ny\n-----END B-----";
        assert_eq!(
            blocks_of(text),
            "-----BEGIN A-----\nMII\nx=\n-----END A-----\n-----BEGIN B-----\ny\n-----END B-----\n"
        );
        assert_eq!(blocks_of("text\n-----END A-----\nshutdown\n"), "");
    }

    #[test]
    fn files_are_read_for_this_command_only() {
        for words in ["show stat", "set tls cert a.pem", "set tls cert a.pem <<", "set map a b /c"]
        {
            assert_eq!(with_lines(words), Ok(None), "{words}");
        }
        let refusal = with_lines("set tls cert a.pem /nothing/here").expect_err("no such file");
        assert!(refusal.starts_with("tidegate: /nothing/here: cannot be read"), "{refusal}");
    }
}
