//! nginx's variables as placeholders.
//! In: a string such as `https://$host$request_uri`. Out: a string with placeholders.

use crate::placement::Placement;

/// The text with placeholders, or the variable that it cannot contain.
pub(super) fn template(text: &str, usage: Placement) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        usage.push(&mut out, &rest[..at]);
        rest = &rest[at + 1..];
        let name = match rest.strip_prefix('{') {
            Some(braced) => {
                let (name, after) = braced.split_once('}').ok_or("a brace is not closed")?;
                rest = after;
                name
            }
            None => {
                let end = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                let (name, after) = rest.split_at(end);
                rest = after;
                name
            }
        };
        let value = placeholder(name).filter(|_| usage != Placement::Plain);
        let value = value.ok_or_else(|| format!("the variable ${name}"))?;
        if value == "{query}" && out.ends_with('?') {
            // {query} contains the question mark.
            out.pop();
        }
        out.push_str(&value);
    }
    usage.push(&mut out, rest);
    Ok(out)
}

fn placeholder(name: &str) -> Option<String> {
    Some(match name {
        "host" | "http_host" | "server_name" => "{host}".to_owned(),
        "remote_addr" | "binary_remote_addr" | "realip_remote_addr" => "{client}".to_owned(),
        "scheme" => "{scheme}".to_owned(),
        "uri" | "document_uri" => "{path}".to_owned(),
        "request_uri" => "{path}{query}".to_owned(),
        "is_args" => String::new(),
        "args" | "query_string" => "{query}".to_owned(),
        "request_method" => "{method}".to_owned(),
        "ssl_server_name" => "{tls:sni}".to_owned(),
        "request_id" => "{id}".to_owned(),
        "remote_user" => "{user}".to_owned(),
        name => {
            if let Some(field) = name.strip_prefix("http_") {
                format!("{{header:{}}}", field.replace('_', "-"))
            } else if let Some(cookie) = name.strip_prefix("cookie_") {
                format!("{{cookie:{cookie}}}")
            } else {
                format!("{{query:{}}}", name.strip_prefix("arg_")?)
            }
        }
    })
}

/// The key by which requests are counted or hashed: the names of `by` of `rate`.
pub(super) fn key(text: &str) -> Option<String> {
    Some(match text {
        "$binary_remote_addr" | "$remote_addr" => "client-address".to_owned(),
        "$host" | "$http_host" | "$server_name" => "host".to_owned(),
        "$request_uri" | "$uri" => "path".to_owned(),
        "$request_method" => "method".to_owned(),
        name => {
            let name = name.strip_prefix('$')?;
            if let Some(field) = name.strip_prefix("http_") {
                format!("header:{}", field.replace('_', "-"))
            } else if let Some(cookie) = name.strip_prefix("cookie_") {
                format!("cookie:{cookie}")
            } else {
                format!("query:{}", name.strip_prefix("arg_")?)
            }
        }
    })
}
