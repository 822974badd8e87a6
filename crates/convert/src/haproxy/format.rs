//! HAProxy's log formats in rules, such as `%[src]`, as strings with placeholders.
//! In: a string. Out: a string of Tidegate, or the expression that it cannot contain.

use crate::placement::Placement;

use super::expression::split_converters;

/// The text with placeholders.
pub(super) fn template(text: &str, usage: Placement) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        usage.push(&mut out, &rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            usage.push(&mut out, "%");
            rest = after;
            continue;
        }
        // Flags such as {+Q} precede the expression.
        if let Some(after) = rest.strip_prefix('{').and_then(|flags| flags.split_once('}')) {
            rest = after.1;
        }
        let Some(body) = rest.strip_prefix('[') else {
            let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let (alias, after) = rest.split_at(end);
            out.push_str(match alias {
                "ci" => "{client}",
                "HM" => "{method}",
                "HP" | "HPO" => "{path}",
                "HQ" => "{query}",
                "HU" => "{path}{query}",
                "ID" => "{id}",
                other => return Err(format!("the format %{other}")),
            });
            rest = after;
            continue;
        };
        let end = closing(body).ok_or("a bracket is not closed")?;
        let value = placeholder(&body[..end])?;
        if value == "{query}" && out.ends_with('?') {
            // {query} contains the question mark.
            out.pop();
        }
        out.push_str(&value);
        rest = &body[end + 1..];
    }
    usage.push(&mut out, rest);
    Ok(out)
}

/// The offset at which the bracket that encloses `text` closes.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' if depth == 0 => return Some(at),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The placeholder for a sample expression.
fn placeholder(expression: &str) -> Result<String, String> {
    let (fetch, converters) = split_converters(expression.trim());
    let (name, argument) = match fetch.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')').unwrap_or(rest)),
        None => (fetch, ""),
    };
    let argument = argument.split(',').next().unwrap_or_default().trim();
    let is_host = argument.eq_ignore_ascii_case("host");
    if !(converters.is_empty() || is_host && converters == "lower") {
        return Err(format!("the expression %[{expression}]"));
    }
    Ok(match name {
        "src" => "{client}".to_owned(),
        "hdr" | "req.hdr" | "req.fhdr" if is_host => "{host}".to_owned(),
        "hdr" | "req.hdr" | "req.fhdr" if !argument.is_empty() => {
            format!("{{header:{}}}", argument.to_ascii_lowercase())
        }
        "req.cook" | "cook" if !argument.is_empty() => format!("{{cookie:{argument}}}"),
        "urlp" | "url_param" if !argument.is_empty() => format!("{{query:{argument}}}"),
        "path" => "{path}".to_owned(),
        "query" => "{query}".to_owned(),
        "pathq" | "url" | "capture.req.uri" => "{path}{query}".to_owned(),
        "method" | "capture.req.method" => "{method}".to_owned(),
        "ssl_fc_sni" => "{tls:sni}".to_owned(),
        "unique-id" | "uuid" | "uuid()" => "{id}".to_owned(),
        _ => return Err(format!("the expression %[{expression}]")),
    })
}
