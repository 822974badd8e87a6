//! `lua eval`: code in the VM of a Lua application (`tidegate lua repl`).
//! In: the name of an application, a worker, percent-encoded code. Out: the values of the code, or what has failed.
//! Limits: `CODE_BYTES_MAX` of code; the budget of a callback.

use super::Operations;
use super::command::{Outcome, Reply};
use crate::inspection::{Question, Report, ask};

/// Bytes of code.
const CODE_BYTES_MAX: usize = 16 * 1024;
const USAGE: &str = "allowed: lua eval APPLICATION [worker NUMBER] CODE, with percent-encoded CODE";

/// Runs the code.
pub(super) fn evaluate(arguments: &[&str], operations: &Operations) -> Outcome {
    let (app, worker, code) = match arguments {
        [app, code] => (app, "0", code),
        [app, "worker", worker, code] => (app, *worker, code),
        _ => return Err(USAGE.to_owned()),
    };
    let worker = worker.parse().ok().filter(|at: &usize| *at < operations.workers.len());
    let worker = worker.ok_or_else(|| {
        format!("there are the workers 0 to {}", operations.workers.len().max(1) - 1)
    })?;
    let code = decoded(code).filter(|code| code.len() <= CODE_BYTES_MAX);
    let code = code.ok_or_else(|| {
        format!("the code must be percent-encoded, and have up to {CODE_BYTES_MAX} bytes")
    })?;
    let question = Question::Evaluate((*app).to_owned(), code);
    let reports = ask(&operations.workers, &[worker], question);
    match reports.reports.into_iter().next() {
        Some((_, Report::Evaluated(result))) => Ok(Reply::Ran(result)),
        // The code may run later.
        Some(_) | None => Ok(Reply::Ran(Err("the worker does not answer".to_owned()))),
    }
}

/// The bytes of a percent-encoded text; `None` if it is not one.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(core::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        };
        out.push(byte);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_decoded() {
        assert_eq!(decoded("a%20%3B%25"), Some(b"a ;%".to_vec()));
        for wrong in ["%", "%2", "%zz", "a%"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
