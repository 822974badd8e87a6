//! Translates configuration files of HAProxy and nginx into a configuration of Tidegate.
//! In: the text of a file. Out: TOML, and a finding for each line that was not translated or that behaves differently.
//! Never: reads a file that the text names; reports a part that was left out as translated.
//! Limits: `INPUT_BYTES_MAX`, `ROUNDS_MAX`; `FINDINGS_MAX`, `ROUTES_MAX`, `RULES_MAX` and others in the modules.
//! Invariant: the TOML is one that the configuration reader accepts. A setting that it does not accept becomes a finding.
#![forbid(unsafe_code)]

mod condition;
mod document;
mod finding;
mod haproxy;
mod nginx;
mod placement;
mod plan;
mod route;
mod units;

use std::collections::BTreeSet;

use document::{Block, BlockKind, Document, Origin, Value};
use finding::Findings;
pub use finding::{Finding, LineResult};

/// The largest input.
pub const INPUT_BYTES_MAX: usize = 1 << 20;
/// How often the reader may refuse settings, which are then left out.
const ROUNDS_MAX: usize = 24;
/// Settings that a block needs: without them, it would serve other requests than before, or serve them with less protection.
const ESSENTIAL: [&str; 19] = [
    "bind", "proxy", "respond", "redirect", "listener", "host", "path", "method", "client",
    "headers", "query", "cookies", "table", "allow", "deny", "auth", "rate", "tls", "forward",
];

/// Settings of a route that refuse requests.
const PROTECTIONS: [&str; 4] = ["allow", "deny", "auth", "rate"];
/// Settings of a route that choose requests.
const CONDITIONS: [&str; 9] =
    ["listener", "host", "path", "method", "client", "headers", "query", "cookies", "table"];

/// Fields about clients that every request to a server has.
const OWN_FIELDS: [&str; 4] =
    ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "forwarded"];
/// The treatment of other values of these fields.
const OWN_VALUE: &str =
    "Tidegate sets this field by itself, from the connection or from a proxy in `trusted`";
/// The advice for a listener whose proxies are not known.
const PROXIES: &str = "list the addresses of your proxies in `from`: every client of a listed address must send the header";
/// The treatment of lists of TLS algorithms.
const ALGORITHMS: &str = "all algorithms that Tidegate offers are considered secure; `ciphers` and `curves` of TLS choose among them";

/// The program that a file is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// HAProxy.
    Haproxy,
    /// nginx.
    Nginx,
}

impl Program {
    /// The name of the program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Haproxy => "HAProxy",
            Self::Nginx => "nginx",
        }
    }

    /// The program for which `text` seems to be a configuration.
    #[must_use]
    pub fn of(text: &str) -> Option<Self> {
        const SECTIONS: [&str; 5] = ["global", "defaults", "frontend", "backend", "listen"];
        for line in text.lines() {
            let line = line.trim();
            let first = line.split([' ', '\t']).next().unwrap_or_default();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.ends_with([';', '{', '}']) || line.contains("; #") {
                return Some(Self::Nginx);
            }
            if SECTIONS.contains(&first) {
                return Some(Self::Haproxy);
            }
        }
        None
    }
}

/// The result of a translation.
#[derive(Debug)]
pub struct Conversion {
    /// The configuration, with a comment for each line that was not translated or that behaves differently.
    pub toml: String,
    /// How the lines were translated, in their order.
    pub findings: Vec<Finding>,
    /// Whether the configuration reader accepts the TOML. Only a file without a listener or with very many errors is not
    /// accepted.
    pub is_accepted: bool,
}

impl Conversion {
    /// The number of findings of this kind.
    #[must_use]
    pub fn count(&self, result: LineResult) -> usize {
        self.findings.iter().filter(|finding| finding.result == result).count()
    }
}

/// Translates `text`, which is named `name` in comments. The text may have up to [`INPUT_BYTES_MAX`] bytes; the rest of a
/// longer one is not read, which is a finding.
#[must_use]
pub fn convert(text: &str, name: &str, program: Program) -> Conversion {
    let mut end = text.len().min(INPUT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let (read, rest) = text.split_at(end);
    let mut findings = Findings::new(read);
    if !rest.is_empty() {
        let why = format!("only the first {} MiB of the file were read", INPUT_BYTES_MAX >> 20);
        findings.untranslated(0, why);
    }
    let plan = match program {
        Program::Haproxy => haproxy::read(read, &mut findings),
        Program::Nginx => nginx::read(read, &mut findings),
    };
    let document = plan.document(&mut findings);
    let name: String = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    accept(document, &name, program, findings)
}

/// Omits the parts that the configuration reader does not accept.
fn accept(
    mut document: Document,
    name: &str,
    program: Program,
    mut findings: Findings<'_>,
) -> Conversion {
    let head = format!(
        "# Translated from {name} ({}). Comments name the lines that were not translated.\n",
        program.name()
    );
    let mut rounds = 0;
    loop {
        let noted = findings.sorted();
        let (toml, origins) = document.render(&head, name, &noted);
        let errors = match tidegate_config::parse(&toml, "") {
            Ok(_) => Vec::new(),
            Err(errors) => errors
                .mistakes()
                .iter()
                .map(|mistake| (mistake.line, mistake.what.clone()))
                .collect(),
        };
        rounds += 1;
        if errors.is_empty() || rounds > ROUNDS_MAX {
            let is_accepted = errors.is_empty();
            return Conversion { toml, findings: noted, is_accepted };
        }
        let mut refused: BTreeSet<Origin> = BTreeSet::new();
        for (line, what) in errors {
            let Some(origin) = origins.get(&line) else { continue };
            if let Some(source) =
                source_line(&document, *origin).filter(|_| !is_unclear(&document, *origin))
            {
                let loss = Loss::of(&document, *origin);
                let effect = loss.effect();
                findings
                    .untranslated(source, format!("Tidegate does not accept this: {what}{effect}"));
            }
            refused.insert(*origin);
        }
        if refused.is_empty() {
            return Conversion { toml, findings: noted, is_accepted: false };
        }
        // From the end, so that earlier indexes remain valid.
        let mut removed = None;
        for origin in refused.into_iter().rev() {
            if removed != Some(origin.block) && leave_out(&mut document, origin) {
                removed = Some(origin.block);
            }
        }
    }
}

/// The line of the input that `origin` came from.
fn source_line(document: &Document, origin: Origin) -> Option<usize> {
    let block = document.blocks.get(origin.block)?;
    let setting = origin.setting.and_then(|index| block.settings.get(index));
    Some(setting.map_or(block.line, |setting| setting.line))
}

/// The treatment of a block of which a part is omitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// Only the part is left out.
    Part,
    /// The block is left out, because without the part it would do something else.
    Block,
    /// A route that refuses requests is left out.
    Refusal,
    /// The route refuses all requests: without it, they would reach the next route that matches, without its protection.
    Closed,
}

impl Loss {
    fn of(document: &Document, origin: Origin) -> Self {
        let Some(block) = document.blocks.get(origin.block) else { return Self::Part };
        let key = origin.setting.and_then(|at| block.settings.get(at)).map(|own| own.key.as_str());
        if key.is_some_and(|key| !ESSENTIAL.contains(&key)) {
            return Self::Part;
        }
        let is_condition = key.is_none_or(|key| CONDITIONS.contains(&key));
        let status = block.get("respond").and_then(|own| own.entry("status"));
        let refuses = matches!(status, Some(Value::Number(400..)));
        let is_protected = PROTECTIONS.iter().any(|own| block.has(own));
        match block.kind {
            BlockKind::Route if refuses && key == Some("client") => Self::Closed,
            BlockKind::Route if refuses => Self::Refusal,
            BlockKind::Route if is_protected && !is_condition => Self::Closed,
            BlockKind::Process
            | BlockKind::Listener
            | BlockKind::Route
            | BlockKind::Pool
            | BlockKind::Lookup => Self::Block,
        }
    }

    /// The end of a message about the part.
    const fn effect(self) -> &'static str {
        match self {
            Self::Part | Self::Block => "",
            Self::Refusal => "; without this rule, the requests that it refuses are served",
            Self::Closed => "; until this is corrected, the route refuses every request",
        }
    }
}

/// Removes an element, a setting or a block, and returns whether other parts of the block were moved or removed, too. A
/// block without an essential setting is removed as a whole. A table is first written in several lines, so that the next error
/// names the entry.
fn leave_out(document: &mut Document, origin: Origin) -> bool {
    let loss = Loss::of(document, origin);
    let Some(block) = document.blocks.get_mut(origin.block) else { return false };
    match loss {
        Loss::Part => {
            leave_out_part(block, origin);
            return false;
        }
        Loss::Closed => {
            let refused = origin.setting.map(|at| block.settings.remove(at));
            block.settings.retain(|own| CONDITIONS.contains(&own.key.as_str()));
            let line = refused.map_or(block.line, |own| own.line);
            block.set_in("respond", "status", Value::Number(403), line);
        }
        Loss::Block | Loss::Refusal => {
            document.blocks.remove(origin.block);
        }
    }
    true
}

/// Removes an element or a setting that is not essential.
fn leave_out_part(block: &mut Block, origin: Origin) {
    let Some(at) = origin.setting else { return };
    let Some(setting) = block.settings.get_mut(at) else { return };
    let is_spread = core::mem::replace(&mut setting.is_spread, true);
    let is_kept = match (&mut setting.value, origin.element) {
        (Value::List(all), Some(element)) if all.len() > 1 && element < all.len() => {
            all.remove(element);
            true
        }
        (Value::Table(all), Some(element)) if element < all.len() => {
            all.remove(element);
            true
        }
        (Value::Table(all), None) => !is_spread && all.len() > 1,
        (Value::Text(_) | Value::Number(_) | Value::Flag(_) | Value::List(_), _)
        | (Value::Table(_), Some(_)) => false,
    };
    if !is_kept {
        block.settings.remove(at);
    }
}

/// Whether the next rendering shows more precisely what was refused.
fn is_unclear(document: &Document, origin: Origin) -> bool {
    let block = document.blocks.get(origin.block);
    let setting = origin.setting.and_then(|at| block?.settings.get(at));
    setting.is_some_and(|setting| {
        let is_several = matches!(&setting.value, Value::Table(all) if all.len() > 1);
        is_several
            && !setting.is_spread
            && origin.element.is_none()
            && !ESSENTIAL.contains(&setting.key.as_str())
    })
}
