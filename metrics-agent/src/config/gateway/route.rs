//! `HTTPRoute`: which pool a request goes to, by host, path, headers, query and method.
//!
//! What Warmroute does not do is refused by name, not passed over: a redirect that does not happen is worse than
//! an error at load. `parentRefs` are read and not used: there is one listener.

use super::pool;
use super::ranged;
use super::route_match::{self, RawMatch};
use crate::config::document::Document;
use crate::config::error::{Issue, Problem};
use crate::config::object::{self, Fault, Head, Place};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;
use warmroute_shared_state::policy::routing::RouteMatch;

/// Rules of a route, and matches and backends of a rule, at most.
const MAX_ENTRIES: usize = 64;
/// Header changes of a rule at most.
const MAX_HEADERS: usize = 64;

/// One route.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteSpec {
    /// Its name.
    pub head: Head,
    /// Hosts in lower case; empty: any.
    pub hosts: Vec<String>,
    /// Its rules, in order.
    pub rules: Vec<RuleSpec>,
    /// What is strange, but allowed.
    pub warnings: Vec<Issue>,
}

/// One rule of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RuleSpec {
    /// At least one.
    pub matches: Vec<RouteMatch>,
    /// Where requests go.
    pub backends: Vec<BackendSpec>,
    /// `timeouts.request` in ms; 0 = none.
    pub timeout_ms: Option<u64>,
    /// Request headers to set.
    pub set: Vec<(String, String)>,
    /// Request headers to add.
    pub add: Vec<(String, String)>,
    /// Request headers to remove.
    pub remove: Vec<String>,
}

/// One backend of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendSpec {
    /// `namespace/name`, with its kind in front if that is not a pool's.
    pub name: String,
    /// Whether it is an `InferencePool`.
    pub is_pool: bool,
    /// Its weight.
    pub weight: u32,
    /// Where it is written.
    pub place: Place,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Raw {
    #[serde(default, rename = "parentRefs")]
    _parent_refs: Option<Vec<ParentRef>>,
    #[serde(default)]
    hostnames: Option<Vec<Spanned<String>>>,
    rules: Option<Spanned<Vec<RawRule>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ParentRef {
    #[serde(rename = "group")]
    _group: Option<IgnoredAny>,
    #[serde(rename = "kind")]
    _kind: Option<IgnoredAny>,
    #[serde(rename = "namespace")]
    _namespace: Option<IgnoredAny>,
    #[serde(rename = "name")]
    _name: IgnoredAny,
    #[serde(rename = "sectionName")]
    _section_name: Option<IgnoredAny>,
    #[serde(rename = "port")]
    _port: Option<IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawRule {
    #[serde(rename = "name")]
    _name: Option<IgnoredAny>,
    matches: Option<Spanned<Vec<RawMatch>>>,
    #[serde(default)]
    filters: Option<Vec<Filter>>,
    backend_refs: Option<Spanned<Vec<BackendRef>>>,
    timeouts: Option<Timeouts>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Filter {
    #[serde(rename = "type")]
    kind: Spanned<String>,
    request_header_modifier: Option<Spanned<Modifier>>,
    // Their type is refused; named here so that the message is about the type.
    #[serde(rename = "responseHeaderModifier")]
    _response: Option<IgnoredAny>,
    #[serde(rename = "requestMirror")]
    _mirror: Option<IgnoredAny>,
    #[serde(rename = "requestRedirect")]
    _redirect: Option<IgnoredAny>,
    #[serde(rename = "urlRewrite")]
    _rewrite: Option<IgnoredAny>,
    #[serde(rename = "extensionRef")]
    _extension: Option<IgnoredAny>,
    #[serde(rename = "cors")]
    _cors: Option<IgnoredAny>,
    #[serde(rename = "externalAuth")]
    _auth: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Modifier {
    #[serde(default)]
    set: Option<Vec<Header>>,
    #[serde(default)]
    add: Option<Vec<Header>>,
    #[serde(default)]
    remove: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    name: Spanned<String>,
    value: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackendRef {
    group: Option<String>,
    kind: Option<String>,
    namespace: Option<Spanned<String>>,
    name: Spanned<String>,
    #[serde(rename = "port")]
    _port: Option<IgnoredAny>,
    weight: Option<Spanned<i64>>,
    #[serde(default)]
    filters: Option<Vec<Filter>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Timeouts {
    request: Option<Spanned<String>>,
    backend_request: Option<Spanned<String>>,
}

/// Reads one document.
///
/// # Errors
/// Its first fault.
pub fn read(document: &Document<'_>) -> Result<RouteSpec, Issue> {
    let (head, raw) = object::read::<Raw>(document)?;
    let mut reader = Reader { document, namespace: &head.namespace, warnings: Vec::new() };
    let read = reader.route(raw);
    let warnings = reader.warnings;
    let (hosts, rules) = read.map_err(|(line, problem)| document.issue(line, problem))?;
    Ok(RouteSpec { head, hosts, rules, warnings })
}

struct Reader<'a> {
    document: &'a Document<'a>,
    namespace: &'a str,
    warnings: Vec<Issue>,
}

impl Reader<'_> {
    fn route(&mut self, raw: Raw) -> Result<(Vec<String>, Vec<RuleSpec>), Fault> {
        let hosts = raw.hostnames.unwrap_or_default();
        let hosts = hosts.iter().map(route_match::host).collect::<Result<_, _>>()?;
        let rules = match raw.rules {
            Some(rules) => bounded("rules", rules)?,
            // As Gateway API has it: everything matches, and there is no backend.
            None => vec![RawRule::default()],
        };
        let rules = rules.into_iter().map(|rule| self.rule(rule)).collect::<Result<_, _>>()?;
        Ok((hosts, rules))
    }

    fn rule(&mut self, raw: RawRule) -> Result<RuleSpec, Fault> {
        let mut rule = RuleSpec::default();
        if let Some(matches) = raw.matches {
            for entry in bounded("matches", matches)? {
                rule.matches.push(entry.compile()?);
            }
        }
        if rule.matches.is_empty() {
            rule.matches.push(RouteMatch::default());
        }
        for filter in raw.filters.unwrap_or_default() {
            filter.apply(&mut rule)?;
        }
        if let Some(backends) = raw.backend_refs {
            for backend in bounded("backendRefs", backends)? {
                self.backend(backend, &mut rule.backends)?;
            }
        }
        if let Some(timeouts) = raw.timeouts {
            rule.timeout_ms = timeouts.request.as_ref().map(duration).transpose()?;
            if let Some(backend) = timeouts.backend_request
                && duration(&backend)? > 0
            {
                let text = "`backendRequest` is not applied: one attempt may take as long as the request; give `request`";
                self.warn(backend.referenced.line(), text);
            }
        }
        Ok(rule)
    }

    fn backend(&self, raw: BackendRef, into: &mut Vec<BackendSpec>) -> Result<(), Fault> {
        if let Some(filter) = raw.filters.unwrap_or_default().first() {
            let problem = Problem::Unsupported {
                what: "a filter of one backend".into(),
                instead: "give it to the whole rule",
            };
            return Err((filter.kind.referenced.line(), problem));
        }
        let weight = match &raw.weight {
            Some(weight) => ranged("weight", weight, 0..=1_000_000, "a number from 0 to 1000000")?,
            None => 1,
        };
        let weight = u32::try_from(weight).unwrap_or(0);
        let line = raw.name.referenced.line();
        let name = object::checked_name("name", raw.name)?;
        let namespace = match raw.namespace {
            Some(namespace) => object::checked_name("namespace", namespace)?,
            None => self.namespace.to_owned(),
        };
        let (group, kind) = (raw.group.unwrap_or_default(), raw.kind.unwrap_or("Service".into()));
        let is_pool = pool::is_pool(&group, &kind);
        let full = format!("{namespace}/{name}");
        let name = if is_pool { full } else { format!("{kind} {full}") };
        // The sides of a split are told apart by their names.
        if let Some(same) = into.iter_mut().find(|known| known.name == name) {
            same.weight = same.weight.saturating_add(weight);
            return Ok(());
        }
        into.push(BackendSpec { name, is_pool, weight, place: self.document.place(line) });
        Ok(())
    }

    fn warn(&mut self, line: u64, text: &str) {
        self.warnings.push(self.document.issue(line, Problem::Conflict(text.to_owned())));
    }
}

impl Filter {
    fn apply(self, rule: &mut RuleSpec) -> Result<(), Fault> {
        let line = self.kind.referenced.line();
        if self.kind.value != "RequestHeaderModifier" {
            let what = format!("filter `{}`", self.kind.value.chars().take(80).collect::<String>());
            let instead =
                "of the filters only `RequestHeaderModifier` is; let an outer gateway do the rest";
            return Err((line, Problem::Unsupported { what, instead }));
        }
        let Some(modifier) = self.request_header_modifier else {
            return Err((line, Problem::MissingField("requestHeaderModifier")));
        };
        let line = modifier.referenced.line();
        let Modifier { set, add, remove } = modifier.value;
        for (from, into) in [(set, &mut rule.set), (add, &mut rule.add)] {
            for header in from.unwrap_or_default() {
                let value = header_value(header.value)?;
                into.push((route_match::header_name(&header.name)?, value));
            }
        }
        for name in remove.unwrap_or_default() {
            rule.remove.push(route_match::header_name(&name)?);
        }
        if rule.set.len() + rule.add.len() + rule.remove.len() > MAX_HEADERS {
            let problem = Problem::TooMany { what: "header changes in a rule", limit: MAX_HEADERS };
            return Err((line, problem));
        }
        Ok(())
    }
}

fn header_value(value: Spanned<String>) -> Result<String, Fault> {
    let fine = value.value.len() <= 4096 && !value.value.chars().any(char::is_control);
    if fine {
        return Ok(value.value);
    }
    let expected = "at most 4096 bytes without control characters";
    Err((value.referenced.line(), Problem::bad("value", &value.value, expected)))
}

fn bounded<T>(field: &'static str, list: Spanned<Vec<T>>) -> Result<Vec<T>, Fault> {
    let n = list.value.len();
    if n <= MAX_ENTRIES {
        return Ok(list.value);
    }
    let problem = Problem::bad(field, &format!("{n} entries"), "at most 64 entries");
    Err((list.referenced.line(), problem))
}

/// A duration of Gateway API (GEP-2257), like `10s` or `1h30m`, in milliseconds.
fn duration(text: &Spanned<String>) -> Result<u64, Fault> {
    parse_duration(&text.value).ok_or_else(|| {
        let expected = "a duration like 10s, 500ms or 1h30m; 0s for none";
        (text.referenced.line(), Problem::bad("timeouts", &text.value, expected))
    })
}

fn parse_duration(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total = 0u64;
    for part in 0.. {
        if rest.is_empty() {
            return (part > 0).then_some(total);
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 =
            rest.get(..digits).filter(|_| (1..=5).contains(&digits) && part < 4)?.parse().ok()?;
        rest = rest.get(digits..)?;
        let (unit, after) = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)]
            .into_iter()
            .find_map(|(name, unit)| Some((unit, rest.strip_prefix(name)?)))?;
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests;
