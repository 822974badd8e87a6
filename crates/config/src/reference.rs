//! Writes the table of settings as Markdown: the reference part of `docs/configuration.md`.
//! In: `keys`. Out: text; a test checks that the document contains it.

use core::fmt::Write as _;

use crate::keys::{Preset, Section, sections};
use crate::table::describe;

/// The reference: every section and its settings.
#[must_use]
pub fn reference() -> String {
    let mut page = String::new();
    for section in sections() {
        // Writing to a String cannot fail.
        let _ = write_section(&mut page, section);
    }
    page
}

fn write_section(page: &mut String, section: &Section) -> core::fmt::Result {
    let title = match section.path.starts_with('[') {
        true => format!("`{}`", section.path),
        false => section.path.to_owned(),
    };
    writeln!(page, "### {title}\n\n{}\n", section.about)?;
    for key in section.keys {
        writeln!(page, "- **`{}`**: {}", key.name, key.about)?;
        match key.preset {
            Preset::Required => write!(page, "  Required. ")?,
            Preset::Absent => write!(page, "  Optional. ")?,
            Preset::Value(default) => write!(page, "  Default: `{default}`. ")?,
        }
        writeln!(page, "Allowed: {}.", describe(&key.shape))?;
        if !key.reason.is_empty() {
            writeln!(page, "  *Why:* {}", key.reason)?;
        }
    }
    writeln!(page)
}
