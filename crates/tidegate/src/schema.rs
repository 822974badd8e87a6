//! `tidegate schema`: the JSON Schema of the configuration on stdout.

use std::process::ExitCode;

use crate::print_result;

/// Prints the JSON Schema.
pub fn run() -> ExitCode {
    print_result(&format!("{:#}\n", tidegate_config::schema()))
}
