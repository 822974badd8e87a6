//! HAProxy's rules for requests and responses: `http-request`, `http-response`, `redirect`, `use_backend`.
//! In: a line. Out: the effect of the rule, and its condition.

use crate::condition::{Clause, Condition};
use crate::document::Value;
use crate::finding::Findings;
use crate::placement::Placement;
use crate::route::{Action, Edit, REQUESTS, RESPONSES, Rewrite, Route, TO_HTTPS};

use super::expression::{self, Names};
use super::format;
use super::words::{Line, Section};

/// The effect of a rule.
pub(crate) enum Effect {
    /// Ends the evaluation.
    End(Action),
    Change(Vec<Edit>),
    /// Changes requests whose path is below a folder.
    ChangeBelow(String, Edit),
}

/// A rule.
pub(super) struct Rule {
    pub(super) effect: Effect,
    pub(super) clauses: Vec<Clause>,
    pub(super) line: usize,
}

impl Rule {
    /// The routes of the end of the evaluation.
    pub(super) fn end(&self, action: &Action) -> Vec<Route> {
        vec![Route::new(Condition::default(), action.clone(), self.line)]
    }
}

/// Splits the words of a rule at `if` or `unless`.
pub(super) fn split_condition(words: &[String]) -> (&[String], &[String]) {
    let at = words.iter().position(|word| word == "if" || word == "unless");
    words.split_at(at.unwrap_or(words.len()))
}

/// The clauses of a condition, with its remarks noted.
pub(super) fn clauses(
    condition: &[String],
    line: usize,
    names: &mut Names,
    findings: &mut Findings<'_>,
) -> Option<Vec<Clause>> {
    match expression::meaning(condition, names) {
        Ok(meaning) => {
            for remark in meaning.remarks {
                findings.differs(line, remark);
            }
            Some(meaning.clauses)
        }
        Err(why) => {
            findings.untranslated(
                line,
                format!("the condition uses something that routes do not have: {why}"),
            );
            None
        }
    }
}

/// The rule of `http-request`, `http-response` or `redirect`; `None` if it was not translated or is not needed.
pub(super) fn rule(
    line: &Line,
    section: &Section,
    names: &mut Names,
    findings: &mut Findings<'_>,
) -> Option<Rule> {
    let start = if line.word(0) == "redirect" { 0 } else { 1 };
    let (words, condition) = split_condition(line.from(start));
    if line.word(0) == "http-request" && line.word(1) == "auth" {
        return auth(line, words, condition, names, findings);
    }
    if line.word(0) == "http-request" && names_own_field(words) {
        let clauses = expression::meaning(condition, names).map(|meaning| meaning.clauses);
        match clauses.is_ok_and(|clauses| is_own_value(words, &clauses, section)) {
            true => findings.unneeded(line.number, "Tidegate does this for every request"),
            false => findings.differs(line.number, crate::OWN_VALUE),
        }
        return None;
    }
    let result = match line.word(0) {
        "http-response" | "http-after-response" => response_effect(words),
        _ => request_effect(words),
    };
    let effect = match result {
        Ok(Some(effect)) => effect,
        Ok(None) => {
            findings.unneeded(line.number, "Tidegate does this for every request");
            return None;
        }
        Err(why) => {
            findings.untranslated(line.number, why);
            return None;
        }
    };
    let refuses = matches!(&effect, Effect::End(Action::Respond { status, .. }) if *status >= 400);
    let Some(clauses) = clauses(condition, line.number, names, findings) else {
        if refuses {
            findings.untranslated(
                line.number,
                "without this rule, the requests that it refuses are served",
            );
        }
        return None;
    };
    if words
        .first()
        .is_some_and(|word| ["tarpit", "silent-drop", "reject"].contains(&word.as_str()))
    {
        findings
            .differs(line.number, "the response is sent at once; only `rate` can delay or drop");
    }
    Some(Rule { effect, clauses, line: line.number })
}

/// `http-request auth`, whose condition usually is `unless { http_auth(LIST) }`. The file of users does not exist yet, so
/// the configuration cannot be used before it was written.
fn auth(
    line: &Line,
    words: &[String],
    condition: &[String],
    names: &mut Names,
    findings: &mut Findings<'_>,
) -> Option<Rule> {
    let realm = words.iter().position(|word| word == "realm").and_then(|at| words.get(at + 1));
    let mut list = None;
    let mut rest: Vec<String> = Vec::new();
    let mut index = 0;
    while let Some(word) = condition.get(index) {
        index += 1;
        let bare = word.trim_start_matches('!');
        let first = match bare {
            "{" => condition.get(index).cloned(),
            name => names
                .acls
                .get(name)
                .and_then(|lines| lines.first())
                .map(|line| line.word(2).to_owned()),
        };
        let users = first.as_deref().and_then(|first| first.strip_prefix("http_auth"));
        match users {
            Some(users) => {
                let end = users.find(')').unwrap_or(users.len());
                list = Some(users.get(1..end).unwrap_or("users").to_owned());
                if bare == "{" {
                    index += condition[index..]
                        .iter()
                        .position(|word| word == "}")
                        .map_or(0, |at| at + 1);
                }
            }
            None => rest.push(word.clone()),
        }
    }
    let is_bare = rest.len() == 1;
    let clauses = match is_bare || rest.is_empty() {
        true => vec![Clause::always()],
        false if rest.first().is_some_and(|word| word == "if") => {
            clauses(&rest, line.number, names, findings)?
        }
        false => {
            findings.untranslated(line.number, "write auth = { basic = \"FILE\" } into the routes");
            return None;
        }
    };
    let file = format!("{}.htpasswd", crate::plan::clean_name(list.as_deref().unwrap_or("users")));
    findings.differs(line.number, format!("write the users to {file:?}, as `htpasswd -B` does"));
    let mut entries = vec![("basic".to_owned(), Value::Text(file))];
    if let Some(realm) = realm {
        entries.push(("realm".to_owned(), Value::Text(realm.clone())));
    }
    let effect = Effect::Change(vec![Edit::Setting("auth", Value::Table(entries))]);
    Some(Rule { effect, clauses, line: line.number })
}

fn request_effect(words: &[String]) -> Result<Option<Effect>, String> {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    let after =
        |name: &str| words.iter().position(|own| own == name).and_then(|at| words.get(at + 1));
    let status = || {
        let text = after("deny_status").or_else(|| after("status")).or_else(|| after("code"));
        text.map(|text| text.parse::<u16>().map_err(|_| format!("the status {text:?}"))).transpose()
    };
    let respond =
        |status, headers, body| Ok(Some(Effect::End(Action::Respond { status, headers, body })));
    match word(0) {
        "deny" => respond(status()?.unwrap_or(403), Vec::new(), String::new()),
        "reject" | "silent-drop" => respond(403, Vec::new(), String::new()),
        "tarpit" => respond(status()?.unwrap_or(500), Vec::new(), String::new()),
        "return" => {
            let mut headers = Vec::new();
            if let Some(kind) = after("content-type") {
                headers.push(("content-type".to_owned(), kind.clone()));
            }
            for (at, _) in words.iter().enumerate().filter(|(_, word)| *word == "hdr") {
                headers.push((word(at + 1).to_ascii_lowercase(), word(at + 2).to_owned()));
            }
            if after("file").is_some() || after("errorfile").is_some() || after("lf-file").is_some()
            {
                return Err(
                    "the body of `respond` is a string; write the content of the file there"
                        .to_owned(),
                );
            }
            let body = after("string").or_else(|| after("lf-string")).cloned().unwrap_or_default();
            respond(status()?.unwrap_or(200), headers, body)
        }
        "redirect" => redirect(words, status()?),
        "set-header" | "add-header" | "del-header" => field(words, REQUESTS),
        "replace-header" | "replace-value" => {
            Err("values of fields are replaced as a whole".to_owned())
        }
        "set-path" => {
            let path = format::template(word(1), Placement::Template)?;
            Ok(Some(Effect::Change(vec![Edit::Rewrite(Rewrite::To(path))])))
        }
        "set-uri" => {
            let text = word(1).trim_end_matches("?%[query]");
            let path = format::template(text, Placement::Template)?;
            Ok(Some(Effect::Change(vec![Edit::Rewrite(Rewrite::To(path))])))
        }
        "replace-path" | "replace-uri" | "replace-pathq" => {
            replace_path(word(1), word(2)).map(Some)
        }
        "normalize-uri" | "allow" | "capture" | "set-log-level" | "disable-l7-retry" => {
            match word(0) {
                "allow" => Err("write a route for these requests before the others".to_owned()),
                "capture" => Err("the access log has `request-headers` and `cookies`".to_owned()),
                "set-log-level" => Err("the access log has `only`, `slow` and `sample`".to_owned()),
                "disable-l7-retry" => Err("`retries` and `retry-on` belong to a pool".to_owned()),
                _ => Ok(None),
            }
        }
        "lua.http_req" => {
            Err("Lua applications are written for Tidegate's interface: docs/lua.md".to_owned())
        }
        "cache-use" => Err("Tidegate has no cache".to_owned()),
        "use-service" => Err("[admin] serves metrics at /metrics".to_owned()),
        name => Err(format!("Tidegate has no counterpart of {name:?}")),
    }
}

fn response_effect(words: &[String]) -> Result<Option<Effect>, String> {
    let name = words.first().map_or("", String::as_str);
    match name {
        "set-header" | "add-header" | "del-header" => field(words, RESPONSES),
        "cache-store" => Err("Tidegate has no cache".to_owned()),
        name => Err(format!("Tidegate has no counterpart of {name:?} for responses")),
    }
}

/// Whether a rule for requests sets, adds to or removes a field that Tidegate sets by itself.
fn names_own_field(words: &[String]) -> bool {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    ["set-header", "add-header", "del-header"].contains(&word(0))
        && crate::OWN_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(word(1)))
}

/// Whether Tidegate's value of such a field is that of the rule.
fn is_own_value(words: &[String], clauses: &[Clause], section: &Section) -> bool {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    let is_always = clauses == [Clause::always()];
    let name = word(1).to_ascii_lowercase();
    if word(0) == "del-header" {
        // HAProxy adds its own value after the rules.
        return name == "x-forwarded-for" && section.option("forwardfor").is_some();
    }
    let value = format::template(word(2), Placement::Template).unwrap_or_default();
    match name.as_str() {
        "x-forwarded-for" => is_always && value == "{client}",
        "x-forwarded-host" => is_always && value == "{host}",
        "x-forwarded-proto" if word(2) == "%[ssl_fc,iif(https,http)]" => is_always,
        "x-forwarded-proto" => {
            let stated = match clauses {
                [Clause { any, unless }] if unless.is_empty() => match any.as_slice() {
                    [only] if only.is_empty() => is_secure(section),
                    [only] => only.secure.filter(|secure| {
                        *only == Condition { secure: Some(*secure), ..Condition::default() }
                    }),
                    _ => None,
                },
                _ => None,
            };
            stated.is_some_and(|secure| value == if secure { "https" } else { "http" })
        }
        _ => false,
    }
}

/// Whether all clients of a section use TLS, or none does.
fn is_secure(section: &Section) -> Option<bool> {
    let mut binds = section.lines.iter().filter(|line| line.word(0) == "bind");
    let has_tls = |line: &Line| line.words.iter().any(|word| word == "ssl");
    let first = has_tls(binds.next()?);
    binds.all(|line| has_tls(line) == first).then_some(first)
}

/// `set-header`, `add-header` or `del-header`.
fn field(words: &[String], direction: &'static str) -> Result<Option<Effect>, String> {
    let name = words.get(1).map_or("", String::as_str).to_ascii_lowercase();
    let value = words.get(2).map_or("", String::as_str);
    let key = match words.first().map(String::as_str) {
        Some("del-header") if words.len() > 2 => {
            return Err("fields are removed by their whole names".to_owned());
        }
        Some("del-header") => return Ok(Some(Effect::Change(vec![Edit::Remove(direction, name)]))),
        Some("add-header") => "add",
        _ => "set",
    };
    if direction == REQUESTS && name == "host" {
        return Err("the Host field is set by `host` of `proxy`".to_owned());
    }
    if name == "strict-transport-security" {
        return hsts(value).map(|value| Some(Effect::Change(vec![Edit::Setting("hsts", value)])));
    }
    let value = format::template(value, Placement::Template)?;
    if value.is_empty() {
        return Err("a field without a value".to_owned());
    }
    Ok(Some(Effect::Change(vec![Edit::Field(direction, key, name, value)])))
}

/// The value of `hsts` for a field Strict-Transport-Security.
pub(crate) fn hsts(text: &str) -> Result<Value, String> {
    let mut entries = Vec::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        let part = part.to_ascii_lowercase();
        match part.split_once('=') {
            Some(("max-age", seconds)) => {
                let seconds: u64 = seconds
                    .trim_matches('"')
                    .parse()
                    .map_err(|_| "not a number of seconds".to_owned())?;
                let text = match seconds % 86_400 {
                    0 => format!("{}d", seconds / 86_400),
                    _ => format!("{seconds}s"),
                };
                entries.push(("max-age".to_owned(), Value::Text(text)));
            }
            None if part == "includesubdomains" => {
                entries.push(("include-subdomains".to_owned(), Value::Flag(true)))
            }
            None if part == "preload" => entries.push(("preload".to_owned(), Value::Flag(true))),
            _ => return Err(format!("{part:?} of Strict-Transport-Security")),
        }
    }
    match entries.as_slice() {
        [(key, Value::Text(age))] if key == "max-age" => Ok(Value::Text(age.clone())),
        _ => Ok(Value::Table(entries)),
    }
}

/// `redirect scheme|prefix|location TARGET`.
fn redirect(words: &[String], status: Option<u16>) -> Result<Option<Effect>, String> {
    let target = words.get(2).map_or("", String::as_str);
    for option in words.iter().skip(3) {
        if ["set-cookie", "clear-cookie", "append-slash", "ignore-empty"].contains(&option.as_str())
        {
            return Err(format!("{option:?} of a redirect"));
        }
    }
    let drops_query = words.iter().any(|word| word == "drop-query");
    let query = if drops_query { "" } else { "{query}" };
    let to = match words.get(1).map(String::as_str) {
        Some("scheme") if target == "https" && !drops_query => TO_HTTPS.to_owned(),
        Some("scheme") => {
            format!("{}://{{host}}{{path}}{query}", format::template(target, Placement::Redirect)?)
        }
        Some("prefix") => {
            let prefix = format::template(target, Placement::Redirect)?;
            if prefix.is_empty() || prefix == "/" {
                return Err("a redirect to the same path".to_owned());
            }
            format!("{}{{path}}{query}", prefix.trim_end_matches('/'))
        }
        Some("location") => format::template(target, Placement::Redirect)?,
        _ => return Err("a redirect without a target".to_owned()),
    };
    Ok(Some(Effect::End(Action::Redirect { to, status: status.unwrap_or(302) })))
}

/// `replace-path REGEX FORMAT`, if it replaces a prefix.
pub(crate) fn replace_path(regex: &str, format: &str) -> Result<Effect, String> {
    let why = || {
        "only a prefix can be replaced: replace-path ^/old/(.*) /new/\\1; see `path` of `proxy` for other changes".to_owned()
    };
    let body = regex.strip_prefix('^').unwrap_or(regex);
    let body = body.strip_suffix('$').unwrap_or(body);
    let format = format.replace("\\1", "\u{1}").replace("\\2", "\u{2}");
    // The forms that are used for removing or replacing a prefix.
    let (from, group) = [
        ("/(.*)", '\u{1}'),
        ("(/)?(.*)", '\u{2}'),
        ("(/.*)", '\u{1}'),
        ("/?(.*)", '\u{1}'),
        ("(.*)", '\u{1}'),
    ]
    .into_iter()
    .find_map(|(end, group)| Some((body.strip_suffix(end)?, (end, group))))
    .ok_or_else(why)?;
    let (end, group) = group;
    let from = from.replace("\\.", ".").replace("\\/", "/");
    let from = from.strip_suffix('/').unwrap_or(&from);
    if !from.starts_with('/') && !from.is_empty()
        || from.contains(['\\', '(', '[', '|', '*', '+', '?'])
    {
        return Err(why());
    }
    let to = format.strip_suffix(group).ok_or_else(why)?;
    let keeps_slash = matches!(end, "(/.*)" | "(.*)");
    let to = match keeps_slash {
        true => to,
        false => to.strip_suffix('/').ok_or_else(why)?,
    };
    if to.contains(['\u{1}', '\u{2}']) {
        return Err(why());
    }
    let to = format::template(to, Placement::Template)?;
    Ok(Effect::ChangeBelow(
        format!("{from}/*"),
        Edit::Rewrite(Rewrite::Prefix { from: from.to_owned(), to }),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::haproxy::expression::simple_regex;

    #[test]
    fn prefixes_are_replaced_and_other_changes_are_refused() {
        for (regex, format, expected) in [
            ("/api/(.*)", "/v1/\\1", Some(("/api", "/v1"))),
            ("^/api(/.*)$", "\\1", Some(("/api", ""))),
            ("^/api(/)?(.*)", "/\\2", Some(("/api", ""))),
            ("(.*)", "/base\\1", Some(("", "/base"))),
            ("^/([^/]*)/(.*)", "/\\2/\\1", None),
            ("/api/(.*)", "/v1/\\1/x", None),
            ("/a.*", "/b", None),
        ] {
            let found = match replace_path(regex, format) {
                Ok(Effect::ChangeBelow(_, Edit::Rewrite(Rewrite::Prefix { from, to }))) => {
                    Some((from, to))
                }
                _ => None,
            };
            let expected = expected.map(|(from, to)| (from.to_owned(), to.to_owned()));
            assert_eq!(found, expected, "{regex} {format}");
        }
    }

    #[test]
    fn simple_expressions_are_paths() {
        for (regex, path) in [
            ("^/api/", Some("/api/*")),
            ("^/api/.*$", Some("/api/*")),
            ("^/a\\.b$", Some("/a.b")),
            ("^/api", None),
            ("/api/", None),
            ("^/(a|b)/", None),
        ] {
            assert_eq!(simple_regex(regex).as_deref(), path, "{regex}");
        }
    }

    #[test]
    fn strict_transport_security_becomes_hsts() {
        assert_eq!(hsts("max-age=86400"), Ok(Value::from("1d")));
        assert!(
            matches!(hsts("max-age=1; includeSubDomains; preload"), Ok(Value::Table(all)) if all.len() == 3)
        );
        assert!(hsts("max-age=x").is_err() && hsts("other").is_err());
    }
}
