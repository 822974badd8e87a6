//! HAProxy's conditions: ACLs, and `if` and `unless` with them.
//! In: the words of a condition, the ACLs of the section. Out: clauses, or why the condition cannot be expressed.
//! Limits: `NESTED_MAX` lines of one ACL.

use std::collections::BTreeMap;

use crate::condition::{Clause, Condition, Source, Test, network};
use crate::units;

use super::words::Line;

/// Maximum number of lines of an ACL of one name.
const NESTED_MAX: usize = 500;

/// The meaning of one term of a condition.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// The conditions, any of which makes it true.
    pub(super) any: Vec<Condition>,
    /// The conditions, any of which makes it false, if it can be written in this way.
    pub(super) none: Option<Vec<Condition>>,
}

impl Term {
    fn of(condition: Condition) -> Self {
        Self { any: vec![condition], none: None }
    }
}

/// The definitions that conditions refer to.
#[derive(Default)]
pub(super) struct Names {
    /// The lines of each ACL.
    pub(super) acls: BTreeMap<String, Vec<Line>>,
    /// The counts of each stick table, by the name of the table here: HAProxy's name, period and Tidegate's name.
    pub(super) counts: BTreeMap<String, Vec<(String, String)>>,
    /// The tables that `track-scN` uses, by N.
    pub(super) tracked: BTreeMap<String, String>,
    /// The tables of HAProxy's sections, by the section's name.
    pub(super) tables: BTreeMap<String, String>,
    /// Files with addresses that conditions name, and the set of each.
    pub(super) sets: BTreeMap<String, String>,
}

/// The meaning of a rule's condition, and remarks about it.
pub(super) struct Meaning {
    pub(super) clauses: Vec<Clause>,
    /// How the meaning differs from HAProxy's.
    pub(super) remarks: Vec<String>,
}

/// The meaning of the words from `if` or `unless` on; none of them means always.
pub(super) fn meaning(words: &[String], names: &mut Names) -> Result<Meaning, String> {
    let mut remarks = Vec::new();
    let clauses = match words.first().map(String::as_str) {
        None => vec![Clause::always()],
        Some("if") => disjunction(&words[1..], names, &mut remarks)?,
        Some("unless") => {
            let clauses = disjunction(&words[1..], names, &mut remarks)?;
            negated(&clauses)?
        }
        Some(word) => return Err(format!("the parameter {word:?}")),
    };
    Ok(Meaning { clauses, remarks })
}

/// The clauses that hold if none of `clauses` holds.
fn negated(clauses: &[Clause]) -> Result<Vec<Clause>, String> {
    match clauses {
        // Not (not A): A.
        [clause]
            if clause.any.len() == 1 && clause.any[0].is_empty() && !clause.unless.is_empty() =>
        {
            Ok(vec![Clause { any: clause.unless.clone(), unless: Vec::new() }])
        }
        clauses if clauses.iter().all(|clause| clause.unless.is_empty()) => {
            let unless: Vec<_> = clauses.iter().flat_map(|clause| clause.any.clone()).collect();
            // `unless { ssl_fc }` is `if !{ ssl_fc }`, which a listener decides.
            if let [only] = unless.as_slice()
                && let Some(none) = inverse(only)
            {
                return Ok(vec![Clause { any: none, unless: Vec::new() }]);
            }
            Ok(vec![Clause { unless, ..Clause::always() }])
        }
        _ => Err("`unless` with several terms, some of them negated".to_owned()),
    }
}

/// The conditions, one of which holds if `condition` does not, if it can be written without exceptions.
fn inverse(condition: &Condition) -> Option<Vec<Condition>> {
    let mut rest = condition.clone();
    if let Some(secure) = rest.secure.take() {
        let inverse = Condition { secure: Some(!secure), ..Condition::default() };
        return rest.is_empty().then(|| vec![inverse]);
    }
    let (key, test) = rest.tests.pop_first()?;
    let test = match test {
        Test::Present => Test::Absent,
        Test::Absent => Test::Present,
        Test::Is(..) => return None,
    };
    let inverse = Condition { tests: [(key, test)].into(), ..Condition::default() };
    rest.is_empty().then(|| vec![inverse])
}

fn disjunction(
    words: &[String],
    names: &mut Names,
    remarks: &mut Vec<String>,
) -> Result<Vec<Clause>, String> {
    let mut clauses = Vec::new();
    let mut clause = Clause::always();
    let mut index = 0;
    let mut is_negated = false;
    while let Some(word) = words.get(index) {
        index += 1;
        let mut word = word.as_str();
        if ["or", "||", "OR"].contains(&word) {
            clauses.push(core::mem::replace(&mut clause, Clause::always()));
            continue;
        }
        while let Some(rest) = word.strip_prefix('!') {
            is_negated = !is_negated;
            word = rest;
        }
        if word.is_empty() {
            continue;
        }
        let term = match word {
            "{" => {
                let rest = words.get(index..).unwrap_or_default();
                let length = rest.iter().position(|word| word == "}");
                let length = length.ok_or("a brace is not closed")?;
                index += length + 1;
                criterion(&rest[..length], names, remarks)?
            }
            name => named(name, names, remarks)?,
        };
        match (is_negated, term.none) {
            (false, _) => clause.require(&term.any)?,
            (true, Some(none)) => clause.require(&none)?,
            (true, None) => clause.unless.extend(term.any),
        }
        is_negated = false;
    }
    clauses.push(clause);
    Ok(clauses)
}

/// The meaning of an ACL.
fn named(name: &str, names: &mut Names, remarks: &mut Vec<String>) -> Result<Term, String> {
    let Some(lines) = names.acls.get(name).cloned() else { return predefined(name) };
    if lines.len() > NESTED_MAX {
        return Err(format!("ACL {name:?} has more than {NESTED_MAX} lines"));
    }
    let mut all = Term { any: Vec::new(), none: None };
    for line in &lines {
        let term = criterion(line.from(2), names, remarks)
            .map_err(|why| format!("ACL {name:?} (line {}): {why}", line.number))?;
        all.none = if lines.len() == 1 { term.none } else { None };
        all.any.extend(term.any);
    }
    all.any = joined(all.any);
    Ok(all)
}

/// Joins conditions on hosts only, and such on paths only, so that they become one list.
fn joined(conditions: Vec<Condition>) -> Vec<Condition> {
    let mut joined: Vec<Condition> = Vec::new();
    for condition in conditions {
        let bare = |own: &Condition| {
            let rest =
                Condition { hosts: None, paths: None, clients: None, methods: None, ..own.clone() };
            rest.is_empty()
        };
        let last = joined.last_mut().filter(|last| bare(last) && bare(&condition));
        let Some(last) = last else {
            joined.push(condition);
            continue;
        };
        let shape = |own: &Condition| {
            [own.hosts.is_some(), own.paths.is_some(), own.clients.is_some(), own.methods.is_some()]
        };
        if shape(last) != shape(&condition) || shape(last).iter().filter(|is| **is).count() != 1 {
            joined.push(condition);
            continue;
        }
        let pairs = [
            (&mut last.hosts, condition.hosts),
            (&mut last.paths, condition.paths),
            (&mut last.clients, condition.clients),
            (&mut last.methods, condition.methods),
        ];
        for (own, more) in pairs {
            if let (Some(own), Some(more)) = (own, more) {
                own.extend(more);
                own.sort_unstable();
                own.dedup();
            }
        }
    }
    joined
}

fn predefined(name: &str) -> Result<Term, String> {
    let methods = |list: &[&str]| {
        let list = list.iter().map(|method| (*method).to_owned()).collect();
        Ok(Term::of(Condition { methods: Some(list), ..Condition::default() }))
    };
    match name {
        "TRUE" | "HTTP" => Ok(Term { any: vec![Condition::default()], none: Some(Vec::new()) }),
        "FALSE" => Ok(Term { any: Vec::new(), none: Some(vec![Condition::default()]) }),
        "LOCALHOST" => {
            let clients = Some(vec!["127.0.0.0/8".to_owned(), "::1".to_owned()]);
            Ok(Term::of(Condition { clients, ..Condition::default() }))
        }
        "METH_GET" => methods(&["GET", "HEAD"]),
        "METH_POST" => methods(&["POST"]),
        "METH_HEAD" => methods(&["HEAD"]),
        "METH_OPTIONS" => methods(&["OPTIONS"]),
        "METH_PUT" => methods(&["PUT"]),
        "METH_DELETE" => methods(&["DELETE"]),
        "METH_TRACE" => methods(&["TRACE"]),
        "METH_CONNECT" => methods(&["CONNECT"]),
        _ => Err(format!("the ACL {name:?} is not defined in this section")),
    }
}

/// A criterion, its flags and its values.
struct Criterion<'w> {
    /// The name, such as `hdr`.
    fetch: &'w str,
    /// The text in parentheses.
    argument: &'w str,
    /// How values are compared: `str`, `beg`, `end`, `sub`, `reg`, `dir`, `dom`, `found` or another.
    way: &'w str,
    ignores_case: bool,
    /// Files whose lines are values.
    files: Vec<&'w str>,
    values: Vec<&'w str>,
}

impl<'w> Criterion<'w> {
    fn parse(words: &'w [String]) -> Result<Self, String> {
        let first = words.first().ok_or("no criterion")?;
        let (expression, converters) = split_converters(first);
        let (name, argument) = match expression.split_once('(') {
            Some((name, rest)) => (name, rest.strip_suffix(')').unwrap_or(rest)),
            None => (expression, ""),
        };
        let mut ignores_case = false;
        for converter in converters.split(',').filter(|converter| !converter.is_empty()) {
            match converter {
                "lower" | "upper" => ignores_case = true,
                _ => return Err(format!("the converter {converter:?}")),
            }
        }
        const WAYS: [&str; 9] = ["beg", "end", "sub", "reg", "dir", "dom", "str", "len", "cnt"];
        let suffix = name.rsplit_once('_').filter(|(_, suffix)| WAYS.contains(suffix));
        let (fetch, mut way) = suffix.unwrap_or((name, ""));
        let (mut files, mut values) = (Vec::new(), Vec::new());
        let mut index = 1;
        while let Some(word) = words.get(index) {
            index += 1;
            match word.as_str() {
                "-i" if values.is_empty() => ignores_case = true,
                "-m" if values.is_empty() => {
                    way = words.get(index).map_or("", String::as_str);
                    index += 1;
                }
                "-f" if values.is_empty() => {
                    files.push(words.get(index).map_or("", String::as_str));
                    index += 1;
                }
                "-n" | "-M" | "-u" if values.is_empty() => {
                    return Err(format!("the flag {word:?} of an ACL"));
                }
                "--" if values.is_empty() => {
                    values.extend(words[index..].iter().map(String::as_str));
                    break;
                }
                value => values.push(value),
            }
        }
        Ok(Self { fetch, argument, way, ignores_case, files, values })
    }

    fn no_files(&self) -> Result<(), String> {
        match self.files.first() {
            Some(file) => Err(format!("values from the file {file:?}")),
            None => Ok(()),
        }
    }
}

/// The sample fetch, and the converters after it.
pub(super) fn split_converters(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

fn criterion(
    words: &[String],
    names: &mut Names,
    remarks: &mut Vec<String>,
) -> Result<Term, String> {
    let own = Criterion::parse(words)?;
    match own.fetch {
        "always_true" => Ok(Term { any: vec![Condition::default()], none: Some(Vec::new()) }),
        "always_false" => Ok(Term { any: Vec::new(), none: Some(vec![Condition::default()]) }),
        "ssl_fc" => {
            let secure = |is| vec![Condition { secure: Some(is), ..Condition::default() }];
            Ok(Term { any: secure(true), none: Some(secure(false)) })
        }
        "path" | "url" => path(&own, remarks),
        "method" => {
            own.no_files()?;
            let methods = own.values.iter().map(|value| (*value).to_owned()).collect();
            Ok(Term::of(Condition { methods: Some(methods), ..Condition::default() }))
        }
        "src" => source(&own, names),
        "hdr" | "req.hdr" | "req.fhdr" | "hdr_ip" => {
            let name = own.argument.split(',').next().unwrap_or_default();
            match name.eq_ignore_ascii_case("host") {
                true => host(&own, remarks),
                false => test(&own, Source::Header, &name.to_ascii_lowercase()),
            }
        }
        "req.ssl_sni" | "req_ssl_sni" | "ssl_fc_sni" => {
            remarks.push(
                "the host of the request is compared in place of the server name of TLS".to_owned(),
            );
            host(&own, remarks)
        }
        "cook" | "req.cook" => test(&own, Source::Cookie, own.argument),
        "urlp" | "url_param" => test(&own, Source::Query, own.argument),
        fetch if fetch.starts_with("sc") || fetch.starts_with("src_") => count(&own, names),
        fetch => Err(format!("the sample fetch {fetch:?}")),
    }
}

fn path(own: &Criterion<'_>, remarks: &mut Vec<String>) -> Result<Term, String> {
    own.no_files()?;
    if own.ignores_case && own.way != "reg" {
        remarks.push("paths distinguish upper and lower case".to_owned());
    }
    let mut paths = Vec::new();
    let mut regexes = Vec::new();
    for value in &own.values {
        match own.way {
            "" | "str" => paths.push((*value).to_owned()),
            "beg" | "dir" => match value.strip_suffix('/') {
                Some(folder) => paths.push(format!("{folder}/*")),
                None => {
                    let value = value.strip_prefix('/').unwrap_or(value);
                    remarks.push(format!(
                        "\"/{value}/*\" matches /{value} and everything below it, but not /{value}x"
                    ));
                    paths.push(format!("/{value}/*"));
                }
            },
            "end" => regexes.push(format!("{}$", literal(value))),
            "sub" => regexes.push(literal(value)),
            "reg" => match simple_regex(value) {
                Some(path) => paths.push(path),
                None => regexes.push((*value).to_owned()),
            },
            way => return Err(format!("the comparison {way:?} of paths")),
        }
    }
    let mut any = Vec::new();
    if !paths.is_empty() {
        any.push(Condition { paths: Some(paths), ..Condition::default() });
    }
    if !regexes.is_empty() {
        let mut regex = regexes.join("|");
        if own.ignores_case {
            regex = format!("(?i:{regex})");
        }
        any.push(Condition { path_regex: Some(regex), ..Condition::default() });
    }
    if any.is_empty() {
        return Err("no value".to_owned());
    }
    Ok(Term { any, none: None })
}

/// `text` as a regular expression that matches it.
fn literal(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if ".+*?()|[]{}^$\\".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The path of a route that matches the same as a regular expression: `^/api/` is "/api/*", and `^/api$` is "/api".
pub(crate) fn simple_regex(regex: &str) -> Option<String> {
    let body = regex.strip_prefix('^')?;
    let (body, is_whole) = match body.strip_suffix('$') {
        Some(body) => (body, true),
        None => (body, false),
    };
    let (body, is_open) = match body.strip_suffix(".*").or_else(|| body.strip_suffix("(.*)")) {
        Some(body) => (body, true),
        None => (body, !is_whole),
    };
    let body = body.replace("\\.", "\u{0}").replace("\\/", "/").replace("\\-", "-");
    if body.contains(['\\', '(', ')', '[', ']', '|', '?', '+', '*', '.', '{', '}', '^', '$']) {
        return None;
    }
    let body = body.replace('\u{0}', ".");
    if !body.starts_with('/') {
        return None;
    }
    match is_open {
        true => body.strip_suffix('/').map(|folder| format!("{folder}/*")),
        false => Some(body),
    }
}

fn host(own: &Criterion<'_>, remarks: &mut Vec<String>) -> Result<Term, String> {
    own.no_files()?;
    let mut hosts = Vec::new();
    for value in &own.values {
        let value = value.to_ascii_lowercase();
        let bare = value.split(':').next().unwrap_or_default().to_owned();
        match own.way {
            "" | "str" => hosts.push(bare),
            "dom" => hosts.extend([bare.clone(), format!("*.{bare}")]),
            "end" => match bare.strip_prefix('.') {
                Some(below) => hosts.push(format!("*.{below}")),
                None => {
                    remarks.push(format!("a host such as x{bare} without a dot does not match"));
                    hosts.extend([bare.clone(), format!("*.{bare}")]);
                }
            },
            way => return Err(format!("the comparison {way:?} of hosts")),
        }
    }
    hosts.dedup();
    match hosts.is_empty() {
        true => Err("no value".to_owned()),
        false => Ok(Term::of(Condition { hosts: Some(hosts), ..Condition::default() })),
    }
}

fn test(own: &Criterion<'_>, source: Source, name: &str) -> Result<Term, String> {
    own.no_files()?;
    let of = |test| Condition {
        tests: [((source, name.to_owned()), test)].into(),
        ..Condition::default()
    };
    let counted = own.way == "cnt" && ["gt 0", "ge 1"].contains(&own.values.join(" ").as_str());
    if own.way == "found" || counted || own.values.is_empty() {
        return Ok(Term { any: vec![of(Test::Present)], none: Some(vec![of(Test::Absent)]) });
    }
    let key = match own.way {
        "" | "str" => "equals",
        "beg" => "prefix",
        "end" => "suffix",
        "sub" => "contains",
        "reg" => "regex",
        way => return Err(format!("the comparison {way:?}")),
    };
    let tests =
        own.values.iter().map(|value| of(Test::Is(key, (*value).to_owned(), own.ignores_case)));
    Ok(Term { any: tests.collect(), none: None })
}

fn source(own: &Criterion<'_>, names: &mut Names) -> Result<Term, String> {
    let mut clients = Vec::new();
    for value in &own.values {
        if network(value).is_none() {
            return Err(format!("{value:?} is not an address or a network"));
        }
        clients.push((*value).to_owned());
    }
    for file in &own.files {
        let stem =
            file.rsplit('/').next().unwrap_or_default().split('.').next().unwrap_or_default();
        let stem = crate::plan::clean_name(stem);
        let name = match names.sets.values().any(|own| *own == stem) {
            true => format!("{stem}-{}", names.sets.len() + 1),
            false => stem,
        };
        let set = names.sets.entry((*file).to_owned()).or_insert(name);
        clients.push(format!("set:{set}"));
    }
    match clients.is_empty() {
        true => Err("no address".to_owned()),
        false => Ok(Term::of(Condition { clients: Some(clients), ..Condition::default() })),
    }
}

/// A comparison with a count of a stick table.
fn count(own: &Criterion<'_>, names: &Names) -> Result<Term, String> {
    let fetch = own.fetch;
    let counter =
        fetch.strip_prefix("sc").and_then(|rest| rest.chars().next()).filter(char::is_ascii_digit);
    let (name, table) = match (fetch.strip_prefix("src_"), counter) {
        (Some(name), _) => (name, names.tables.get(own.argument)),
        (None, Some(digit)) => {
            (fetch.get(4..).unwrap_or_default(), names.tracked.get(&digit.to_string()))
        }
        (None, None) => {
            let number = own.argument.split(',').next().unwrap_or_default();
            (fetch.strip_prefix("sc_").unwrap_or_default(), names.tracked.get(number))
        }
    };
    // `conn_cur` and `http_req_cnt` end in a suffix that the parser of criteria has taken off.
    let name = match own.way {
        "cnt" => format!("{name}_cnt"),
        _ => name.to_owned(),
    };
    let table =
        table.ok_or_else(|| format!("{fetch:?} without a tracked table that counts {name:?}"))?;
    let counts = names.counts.get(table).map(Vec::as_slice).unwrap_or_default();
    let (_, count) = counts
        .iter()
        .find(|(own, _)| *own == name)
        .ok_or_else(|| format!("the table does not count {name:?} here"))?;
    let comparison = match own.values.as_slice() {
        [operator, number] if number.parse::<u64>().is_ok() => {
            let operator = match *operator {
                "gt" => ">",
                "ge" => ">=",
                "lt" => "<",
                "le" => "<=",
                "eq" => "=",
                other => return Err(format!("the comparison {other:?}")),
            };
            let number = match count.starts_with("bytes") {
                true => units::size(number.parse().unwrap_or_default()),
                false => (*number).to_owned(),
            };
            format!("{operator} {number}")
        }
        [number] if number.parse::<u64>().is_ok() => format!("= {number}"),
        _ => return Err("a comparison with more than one number".to_owned()),
    };
    let counts = [((table.clone(), count.clone()), comparison)].into();
    Ok(Term::of(Condition { counts, ..Condition::default() }))
}
