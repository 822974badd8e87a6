//! Routes before they are written, and rules that are evaluated before them.
//! In: routes in their order; a rule with a condition. Out: routes that do the same as the rule followed by the routes.
//! Limits: `ROUTES_MAX` routes after a rule.
//! Invariant: the first route that matches decides, as in Tidegate; a rule that ends the evaluation becomes a separate route,
//! and a rule that changes something becomes copies of the later routes that are restricted to its condition.

use crate::condition::{Clause, Condition, is_path_below};
use crate::document::{Block, BlockKind, Value};

/// Maximum number of routes after the translation of a rule.
const ROUTES_MAX: usize = 500;

/// The action of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Respond { status: u16, headers: Vec<(String, String)>, body: String },
    Redirect { to: String, status: u16 },
    Proxy { pool: Target, host: Option<String> },
}

/// How the pool of a route is chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    Pool(String),
    Map { map: String, key: &'static str, default: Option<String> },
}

/// The target of redirects to the same URL with https.
pub(crate) const TO_HTTPS: &str = "https://{host}{path}{query}";

/// A change of the path that the server receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rewrite {
    /// The whole path, with placeholders.
    To(String),
    /// A prefix without a slash at its end, and what replaces it.
    Prefix { from: String, to: String },
}

/// A change of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Edit {
    /// An entry of `request-headers` or `response-headers`: `set` or `add`, name and value.
    Field(&'static str, &'static str, String, String),
    /// An entry of `remove`.
    Remove(&'static str, String),
    Rewrite(Rewrite),
    /// Any other setting.
    Setting(&'static str, Value),
}

/// A route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Route {
    pub(crate) condition: Condition,
    pub(crate) action: Action,
    pub(crate) edits: Vec<Edit>,
    /// The line of the input that names the action.
    pub(crate) line: usize,
}

impl Route {
    pub(crate) fn new(condition: Condition, action: Action, line: usize) -> Self {
        Self { condition, action, edits: Vec::new(), line }
    }

    pub(crate) fn proxy(pool: &str, line: usize) -> Self {
        let pool = Target::Pool(pool.to_owned());
        Self::new(Condition::default(), Action::Proxy { pool, host: None }, line)
    }

    /// Inserts `edit` before the edits that the route already has, if the action takes it.
    pub(crate) fn perform(&mut self, edit: &Edit) {
        let is_proxy = matches!(self.action, Action::Proxy { .. });
        let is_for_servers = match edit {
            Edit::Field(direction, ..) | Edit::Remove(direction, _) => *direction == REQUESTS,
            Edit::Rewrite(_) => true,
            Edit::Setting(key, _) => *key == "timeouts",
        };
        if !is_proxy && is_for_servers {
            return;
        }
        // A rule that comes later decides.
        let is_overridden = self.edits.iter().any(|own| match (own, edit) {
            (
                Edit::Field(d, "set", n, _) | Edit::Remove(d, n),
                Edit::Field(direction, _, name, _) | Edit::Remove(direction, name),
            ) => d == direction && n == name,
            (Edit::Setting(own, _), Edit::Setting(key, _)) => own == key,
            (Edit::Rewrite(_), Edit::Rewrite(_)) => true,
            // A field that is added takes nothing away from those that are added before it.
            (Edit::Field(..) | Edit::Remove(..) | Edit::Setting(..) | Edit::Rewrite(_), _) => false,
        });
        if !is_overridden {
            self.edits.insert(0, edit.clone());
        }
    }
}

/// The tables of a route that change fields.
pub(crate) const REQUESTS: &str = "request-headers";
pub(crate) const RESPONSES: &str = "response-headers";

/// The effect of a rule.
pub(crate) enum Act<'a> {
    /// Ends the evaluation with these routes.
    End(&'a [Route]),
    /// Changes the routes that follow.
    Change(&'a Edit),
}

/// The routes that do what a rule followed by `routes` does: the rule applies if any of `clauses` holds.
pub(crate) fn apply(
    routes: &[Route],
    clauses: &[Clause],
    act: &Act<'_>,
) -> Result<Vec<Route>, String> {
    let result = match act {
        Act::End(ends) => expand(routes, clauses, |any| restrict(ends, any))?,
        Act::Change(edit) => {
            let mut all = Vec::new();
            for route in routes {
                if !matches!(route.action, Action::Proxy { .. }) {
                    all.push(route.clone());
                    continue;
                }
                let changed = |any: &Condition| {
                    let mut changed = restrict(core::slice::from_ref(route), any)?;
                    changed.iter_mut().for_each(|route| route.perform(edit));
                    Ok(changed)
                };
                all.extend(expand(core::slice::from_ref(route), clauses, changed)?);
            }
            all
        }
    };
    match result.len() > ROUTES_MAX {
        true => Err(format!("this would take more than {ROUTES_MAX} routes")),
        false => Ok(pruned(result)),
    }
}

/// `routes`, preceded by the routes that `matching` makes for the conditions of `clauses`.
fn expand(
    routes: &[Route],
    clauses: &[Clause],
    matching: impl Fn(&Condition) -> Result<Vec<Route>, &'static str>,
) -> Result<Vec<Route>, String> {
    let mut result = routes.to_vec();
    for clause in clauses.iter().rev() {
        let mut head = Vec::new();
        for unless in &clause.unless {
            for any in &clause.any {
                if let Some(condition) = any.and(unless)? {
                    head.extend(restrict(&result, &condition)?);
                }
            }
        }
        for any in &clause.any {
            head.extend(matching(any)?);
        }
        head.extend(result);
        if head.len() > ROUTES_MAX * 4 {
            return Err(format!("this would take more than {ROUTES_MAX} routes"));
        }
        result = pruned(head);
    }
    Ok(result)
}

/// The routes for requests for which `condition` holds.
pub(crate) fn restrict(
    routes: &[Route],
    condition: &Condition,
) -> Result<Vec<Route>, &'static str> {
    let mut restricted = Vec::new();
    for route in routes {
        if let Some(both) = route.condition.and(condition)? {
            restricted.push(Route { condition: both, ..route.clone() });
        }
    }
    Ok(restricted)
}

/// `routes` without those that no request reaches.
pub(crate) fn pruned(routes: Vec<Route>) -> Vec<Route> {
    let mut kept: Vec<Route> = Vec::new();
    for route in routes {
        if !kept.iter().any(|earlier| earlier.condition.covers(&route.condition)) {
            kept.push(route);
        }
    }
    kept
}

/// The routes of a listener that speaks TLS or does not.
pub(crate) fn for_listener(routes: &[Route], is_secure: bool) -> Vec<Route> {
    let fitting =
        routes.iter().filter(|route| route.condition.secure.is_none_or(|s| s == is_secure));
    pruned(
        fitting
            .map(|route| {
                let mut route = route.clone();
                route.condition.secure = None;
                route
            })
            .collect(),
    )
}

/// The blocks of `route`: several if its paths need different values of `path` of `proxy`.
pub(crate) fn blocks(route: &Route, listener: Option<&str>) -> Vec<Block> {
    let rewrite = route.edits.iter().find_map(|edit| match edit {
        Edit::Rewrite(rewrite) => Some(rewrite),
        Edit::Field(..) | Edit::Remove(..) | Edit::Setting(..) => None,
    });
    let Some(rewrite) = rewrite else { return vec![block(route, listener, None)] };
    let any = vec!["/*".to_owned()];
    let mut groups: Vec<(Option<String>, Vec<String>)> = Vec::new();
    for path in route.condition.paths.as_ref().unwrap_or(&any) {
        let new = new_path(rewrite, path);
        match groups.iter_mut().find(|(own, _)| *own == new) {
            Some((_, paths)) => paths.push(path.clone()),
            None => groups.push((new, vec![path.clone()])),
        }
    }
    let mut blocks = Vec::new();
    for (new, paths) in groups {
        let mut route = route.clone();
        let needs_paths = new.as_ref().is_some_and(|new| new.contains("{rest}"));
        if route.condition.paths.is_some() || needs_paths {
            route.condition.paths = Some(paths);
        }
        blocks.push(block(&route, listener, new));
    }
    blocks
}

/// The path that the server receives for requests whose path matches `path`.
fn new_path(rewrite: &Rewrite, path: &str) -> Option<String> {
    let (from, to) = match rewrite {
        Rewrite::To(new) => return Some(new.clone()),
        Rewrite::Prefix { from, to } => (from, to),
    };
    if !is_path_below(path, &format!("{from}/*")) {
        return None;
    }
    let rest = path.strip_prefix(from.as_str()).unwrap_or_default();
    let rest = match rest.strip_suffix('*') {
        Some(folder) => format!("{}{{rest}}", escaped(folder)),
        None => escaped(rest),
    };
    let new = format!("{to}{rest}");
    Some(if new.is_empty() { "/".to_owned() } else { new })
}

/// `text` with doubled braces, which are literal in strings with placeholders.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

fn block(route: &Route, listener: Option<&str>, path: Option<String>) -> Block {
    let line = route.line;
    let mut block = Block::new(BlockKind::Route, "[[route]]", line);
    if let Some(listener) = listener {
        block.set("listener", listener, line);
    }
    for (key, value) in route.condition.settings() {
        block.set(key, value, line);
    }
    let mut removed: Vec<(&'static str, Vec<Value>)> = Vec::new();
    for edit in &route.edits {
        match edit {
            Edit::Rewrite(_) => {}
            Edit::Setting(key, value) => block.set(key, value.clone(), line),
            Edit::Remove(direction, name) => {
                let name = Value::Text(name.clone());
                match removed.iter_mut().find(|(own, _)| own == direction) {
                    Some((_, names)) => names.push(name),
                    None => removed.push((direction, vec![name])),
                }
            }
            Edit::Field(direction, key, name, value) => {
                block_field(&mut block, direction, key, (name, value), line);
            }
        }
    }
    for (direction, names) in removed {
        block.set_in(direction, "remove", Value::List(names), line);
    }
    match &route.action {
        Action::Respond { status, headers, body } => {
            let mut entries = vec![("status".to_owned(), Value::Number((*status).into()))];
            if !headers.is_empty() {
                let headers = headers.iter().map(|(n, v)| (n.clone(), Value::Text(v.clone())));
                entries.push(("headers".to_owned(), Value::Table(headers.collect())));
            }
            if !body.is_empty() {
                entries.push(("body".to_owned(), Value::Text(body.clone())));
            }
            block.set("respond", Value::Table(entries), line);
        }
        Action::Redirect { to, status } => {
            let entries =
                [("to", Value::Text(to.clone())), ("status", Value::Number((*status).into()))];
            let entries = entries.map(|(key, value)| (key.to_owned(), value)).to_vec();
            block.set("redirect", Value::Table(entries), line);
        }
        Action::Proxy { pool, host } => {
            let value = proxy(pool, host.as_deref(), path);
            block.set("proxy", value, line);
        }
    }
    block
}

fn block_field(
    block: &mut Block,
    direction: &str,
    key: &str,
    (name, value): (&str, &str),
    line: usize,
) {
    if !matches!(block.get(direction), Some(Value::Table(entries)) if entries.iter().any(|(k, _)| k == key))
    {
        block.set_in(direction, key, Value::Table(Vec::new()), line);
    }
    let Some(setting) = block.settings.iter_mut().find(|own| own.key == direction) else { return };
    let Value::Table(entries) = &mut setting.value else { return };
    let Some((_, Value::Table(fields))) = entries.iter_mut().find(|(own, _)| own == key) else {
        return;
    };
    let value = Value::Text(value.to_owned());
    match fields.iter_mut().find(|(own, _)| own.eq_ignore_ascii_case(name)) {
        Some((_, Value::List(values))) => values.push(value),
        Some((_, own)) => *own = Value::List(vec![own.clone(), value]),
        None => fields.push((name.to_owned(), value)),
    }
}

fn proxy(pool: &Target, host: Option<&str>, path: Option<String>) -> Value {
    let target = match pool {
        Target::Pool(name) => Value::Text(name.clone()),
        Target::Map { map, key, default } => {
            let mut entries = vec![
                ("map".to_owned(), Value::Text(map.clone())),
                ("key".to_owned(), Value::from(*key)),
            ];
            if let Some(default) = default {
                entries.push(("default".to_owned(), Value::Text(default.clone())));
            }
            Value::Table(entries)
        }
    };
    if host.is_none() && path.is_none() && matches!(pool, Target::Pool(_)) {
        return target;
    }
    let mut entries = vec![("pool".to_owned(), target)];
    if let Some(host) = host {
        entries.push(("host".to_owned(), Value::from(host)));
    }
    if let Some(path) = path {
        entries.push(("path".to_owned(), Value::Text(path)));
    }
    Value::Table(entries)
}

/// Expresses regular expressions for paths by maps, which choose the pool: only possible if all later routes for these requests
/// forward with the same edits. Returns the maps, and the lines of routes that cannot be expressed.
pub(crate) fn express_regexes(routes: &mut Vec<Route>, prefix: &str) -> (Vec<Block>, Vec<usize>) {
    let (mut maps, mut lost): (Vec<Block>, Vec<usize>) = (Vec::new(), Vec::new());
    let mut at = routes.len();
    while at > 0 {
        at -= 1;
        let Some(regex) = routes[at].condition.path_regex.clone() else { continue };
        let route = routes.remove(at);
        let mut plain = route.condition.clone();
        plain.path_regex = None;
        let later = routes.get(at..).unwrap_or_default();
        let count =
            later.iter().position(|later| later.condition.covers(&plain)).map(|last| last + 1);
        let is_own = |map: &str| maps.iter().any(|own| own.header == map_block(map, 0).header);
        let pool = match &route.action {
            Action::Proxy { pool: Target::Pool(pool), .. } => Some(pool.clone()),
            Action::Proxy { pool: Target::Map { .. }, .. }
            | Action::Respond { .. }
            | Action::Redirect { .. } => None,
        };
        let fits = |later: &Route| {
            let is_same = match (&later.action, &route.action) {
                (Action::Proxy { host: a, pool }, Action::Proxy { host: b, .. }) => {
                    a == b
                        && (matches!(pool, Target::Pool(_))
                            || matches!(pool, Target::Map { map, .. } if is_own(map)))
                }
                (Action::Proxy { .. } | Action::Respond { .. } | Action::Redirect { .. }, _) => {
                    false
                }
            };
            let is_apart = later.condition.and(&plain).is_ok_and(|both| both.is_none());
            is_apart || is_same && later.edits == route.edits && plain.covers(&later.condition)
        };
        let fitting =
            count.and_then(|count| later.get(..count)).filter(|later| later.iter().all(fits));
        let (Some(pool), Some(fitting)) = (pool, fitting) else {
            lost.push(route.line);
            continue;
        };
        let end = at + fitting.len();
        for later in routes.get_mut(at..end).unwrap_or_default() {
            if plain.covers(&later.condition) {
                choose_by_regex(later, (&regex, &pool), prefix, route.line, &mut maps);
            }
        }
    }
    lost.sort_unstable();
    lost.dedup();
    (maps, lost)
}

fn map_block(name: &str, line: usize) -> Block {
    Block::named(BlockKind::Lookup, "map", name, line)
}

/// Lets `route` send requests whose path matches a regular expression to a pool.
fn choose_by_regex(
    route: &mut Route,
    (regex, pool): (&str, &str),
    prefix: &str,
    line: usize,
    maps: &mut Vec<Block>,
) {
    let Action::Proxy { pool: target, .. } = &mut route.action else { return };
    if let Target::Pool(default) = target {
        let name = format!("{prefix}-paths-{}", maps.len() + 1);
        let mut map = map_block(&name, line);
        map.set("kind", "regex", line);
        map.set("entries", Value::Table(Vec::new()), line);
        maps.push(map);
        let default = Some(default.clone());
        *target = Target::Map { map: name, key: "{path}", default };
    }
    let Target::Map { map, .. } = target else { return };
    let header = map_block(map, 0).header;
    let block = maps.iter_mut().find(|own| own.header == header);
    let entries = block.and_then(|map| map.settings.iter_mut().find(|own| own.key == "entries"));
    if let Some(Value::Table(entries)) = entries.map(|entries| &mut entries.value) {
        // The routes are read from the last to the first, and the first expression of a map wins.
        if !entries.iter().any(|(own, _)| own == regex) {
            entries.insert(0, (regex.to_owned(), Value::Text(pool.to_owned())));
        }
    }
}
