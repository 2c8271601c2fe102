//! What a route looks at: hosts, paths, headers, query parameters, methods.

use crate::config::error::Problem;
use crate::config::object::Fault;
use serde::Deserialize;
use serde_saphyr::Spanned;
use warmroute_shared_state::policy::routing::{PathMatch, RouteMatch};

/// Entries of a match at most (the API's own limit for headers and for query parameters).
const MAX_ENTRIES: usize = 16;
const METHODS: &[&str] =
    &["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// A match as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawMatch {
    path: Option<RawPath>,
    #[serde(default)]
    headers: Option<Vec<Pair>>,
    #[serde(default)]
    query_params: Option<Vec<Pair>>,
    method: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPath {
    #[serde(rename = "type")]
    kind: Option<Spanned<String>>,
    value: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pair {
    #[serde(rename = "type")]
    kind: Option<Spanned<String>>,
    name: Spanned<String>,
    value: Spanned<String>,
}

impl RawMatch {
    /// Checks it; hosts and rule are not known here.
    ///
    /// # Errors
    /// If it asks for something that is not supported or cannot be.
    pub(super) fn compile(self) -> Result<RouteMatch, Fault> {
        let method = match self.method {
            Some(method) if !METHODS.contains(&method.value.as_str()) => {
                let expected = "a method in capitals, like POST";
                return Err((
                    method.referenced.line(),
                    Problem::bad("method", &method.value, expected),
                ));
            }
            method => method.map(|method| method.value),
        };
        Ok(RouteMatch {
            hosts: Vec::new(),
            path: self.path.map_or(Ok(PathMatch::default()), path)?,
            headers: pairs(self.headers, "header", header_name)?,
            query: pairs(self.query_params, "query parameter", |name| Ok(name.value.clone()))?,
            method,
            rule: 0,
        })
    }
}

fn path(raw: RawPath) -> Result<PathMatch, Fault> {
    let Some(value) = raw.value else {
        return Ok(PathMatch::default());
    };
    let line = value.referenced.line();
    let text = value.value;
    let fine = text.starts_with('/')
        && text.len() <= 1024
        && !text.contains("//")
        && !text.contains(['#', '?'])
        && !text.chars().any(|c| c.is_control() || c.is_whitespace());
    if !fine {
        let expected = "a path that begins with `/`, without `//`, `?` and `#`";
        return Err((line, Problem::bad("path", &text, expected)));
    }
    match raw.kind.as_ref().map(|kind| kind.value.as_str()) {
        Some("Exact") => Ok(PathMatch::Exact(text)),
        None | Some("PathPrefix") => Ok(PathMatch::Prefix(match text.strip_suffix('/') {
            Some(shorter) if !shorter.is_empty() => shorter.to_owned(),
            _ => text,
        })),
        Some(other) => {
            let line = raw.kind.as_ref().map_or(line, |kind| kind.referenced.line());
            Err((line, unsupported("path", other, "give `Exact` or `PathPrefix`")))
        }
    }
}

/// Of several pairs with one name the first counts, as Gateway API has it.
fn pairs(
    raw: Option<Vec<Pair>>,
    what: &str,
    name: impl Fn(&Spanned<String>) -> Result<String, Fault>,
) -> Result<Vec<(String, String)>, Fault> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in raw.unwrap_or_default() {
        let line = pair.name.referenced.line();
        if let Some(kind) = pair.kind.filter(|kind| kind.value != "Exact") {
            let problem = unsupported(what, &kind.value, "give `Exact`");
            return Err((kind.referenced.line(), problem));
        }
        let key = name(&pair.name)?;
        if !pairs.iter().any(|(known, _)| *known == key) {
            pairs.push((key, pair.value.value));
        }
        if pairs.len() > MAX_ENTRIES {
            return Err((
                line,
                Problem::TooMany { what: "entries in a match", limit: MAX_ENTRIES },
            ));
        }
    }
    Ok(pairs)
}

fn unsupported(what: &str, kind: &str, instead: &'static str) -> Problem {
    let kind: String = kind.chars().take(80).collect();
    Problem::Unsupported { what: format!("{what} type `{kind}`"), instead }
}

/// A header's name, in lower case.
pub(super) fn header_name(name: &Spanned<String>) -> Result<String, Fault> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if !name.value.is_empty() && name.value.len() <= 256 && name.value.chars().all(fine) {
        return Ok(name.value.to_ascii_lowercase());
    }
    Err((name.referenced.line(), Problem::bad("name", &name.value, "the name of a header")))
}

/// A host name, in lower case.
pub(super) fn host(name: &Spanned<String>) -> Result<String, Fault> {
    let text = name.value.to_ascii_lowercase();
    let bare = text.strip_prefix("*.").unwrap_or(&text);
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    if text.len() <= 253 && bare.split('.').all(label) {
        return Ok(text);
    }
    let expected = "a host name; `*.` may stand in front";
    Err((name.referenced.line(), Problem::bad("hostnames", &name.value, expected)))
}
