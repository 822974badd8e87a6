//! Paths in the syntax of other programs, such as nginx's `= /x` and Traefik's rules.
//! In: a path. Out: the suggested fix.

use crate::pattern::{PATH_FORMS, parse_path};

/// The fix for a path in the syntax of another program; `None` if it is not in one that is known.
pub(crate) fn help(text: &str) -> Option<String> {
    let text = text.trim();
    if let Some(exact) = text.strip_prefix("= ") {
        return Some(written(exact.trim()));
    }
    // Traefik: PathPrefix(`/api`), possibly combined with other rules.
    let is_rule = ["Path(", "PathPrefix(", "PathRegexp(", "Host(", "HostRegexp(", "Method("]
        .iter()
        .any(|name| text.starts_with(name));
    if !is_rule {
        return None;
    }
    let argument = |name: &str| {
        let quoted = text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')?;
        let inner = quoted.strip_prefix(['`', '"', '\''])?.strip_suffix(['`', '"', '\''])?;
        (!inner.contains(['`', '"', '\''])).then(|| inner.to_owned())
    };
    if let Some(path) = argument("Path") {
        return Some(written(&path));
    }
    if let Some(prefix) = argument("PathPrefix") {
        return Some(written(&format!("{}/*", prefix.trim_end_matches('/'))));
    }
    Some(format!("{PATH_FORMS}; `host` and `method` are settings of their own"))
}

fn written(path: &str) -> String {
    match parse_path(path) {
        Ok(_) => format!("write {path:?}"),
        Err(_) => PATH_FORMS.to_owned(),
    }
}
