//! Which rule of which `HTTPRoute` a request matches, and which pool it leads to.
//!
//! Semantics: Gateway API, `HTTPRoute`. The entries come sorted by precedence; the first that matches counts.

use super::Chooser;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::routing::{PathMatch, RouteMatch, RouteRule};

/// What routes look at.
pub struct RouteRequest<'a, 'h> {
    /// `:authority`.
    pub host: &'a str,
    /// `:path`, with the query.
    pub path: &'a str,
    /// `:method`.
    pub method: &'a str,
    /// Value of a header, by its name in lower case; those that the filter sets are there already.
    pub header: &'a dyn Fn(&str) -> Option<&'h str>,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// To this pool (index); `None` = the one pool of the plugin configuration.
    Pool(Option<usize>),
    /// No route matches: 404.
    NoRoute,
    /// Its backend does not exist, or all weights are 0: 500.
    NoBackend,
}

/// A route that was taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Routed<'p> {
    /// Where to.
    pub destination: Destination,
    /// By which rule, if there are routes.
    pub rule: Option<&'p RouteRule>,
}

/// The pool that a request goes to.
pub fn route<'p>(
    policy: &'p Policy,
    request: &RouteRequest<'_, '_>,
    chooser: &mut Chooser<'_>,
) -> Routed<'p> {
    let routing = &policy.routing;
    if routing.matches.is_empty() {
        return Routed { destination: Destination::Pool(routing.default_pool), rule: None };
    }
    let matched = routing.matches.iter().find(|entry| matches(entry, request));
    let Some(rule) = matched.and_then(|entry| routing.rules.get(entry.rule)) else {
        return Routed { destination: Destination::NoRoute, rule: None };
    };
    let sides = rule.backends.iter().map(|backend| (backend.name.as_str(), backend.weight));
    let chosen = chooser.choose(rule.split, &rule.name, sides);
    let pool = chosen.and_then(|index| rule.backends.get(index)).and_then(|backend| backend.pool);
    let destination = match pool {
        Some(pool) => Destination::Pool(Some(pool)),
        None => Destination::NoBackend,
    };
    Routed { destination, rule: Some(rule) }
}

fn matches(entry: &RouteMatch, request: &RouteRequest<'_, '_>) -> bool {
    let (path, query) = request.path.split_once('?').unwrap_or((request.path, ""));
    host_matches(&entry.hosts, request.host)
        && path_matches(&entry.path, path)
        && entry.method.as_deref().is_none_or(|method| method == request.method)
        && entry.headers.iter().all(|(name, value)| (request.header)(name) == Some(value))
        && entry.query.iter().all(|(name, value)| query_value(query, name) == Some(value))
}

fn path_matches(wanted: &PathMatch, path: &str) -> bool {
    match wanted {
        PathMatch::Exact(exact) => path == exact,
        PathMatch::Prefix(prefix) => {
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
    }
}

fn host_matches(hosts: &[String], host: &str) -> bool {
    if hosts.is_empty() {
        return true;
    }
    // An IPv6 address is in brackets; its colons are none before a port.
    let end = host.rfind(']').unwrap_or(0);
    let port = host.get(end..).and_then(|rest| rest.find(':'));
    let name = port.and_then(|at| host.get(..end.saturating_add(at))).unwrap_or(host);
    hosts.iter().any(|wanted| match wanted.strip_prefix("*.") {
        Some(suffix) => {
            let rest =
                name.len().checked_sub(suffix.len()).and_then(|at| name.split_at_checked(at));
            rest.is_some_and(|(label, tail)| {
                tail.eq_ignore_ascii_case(suffix) && label.len() > 1 && label.ends_with('.')
            })
        }
        None => name.eq_ignore_ascii_case(wanted),
    })
}

/// The first parameter of this name counts.
fn query_value<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmroute_shared_state::policy::routing::{Backend, Routing, Split};

    const HEADERS: &[(&str, &str)] =
        &[("x-canary", "true"), ("x-gateway-base-model-name", "llama-70b")];

    fn header(name: &str) -> Option<&'static str> {
        HEADERS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn entry(change: impl FnOnce(&mut RouteMatch)) -> RouteMatch {
        let mut entry = RouteMatch::default();
        change(&mut entry);
        entry
    }

    fn matches_path(wanted: PathMatch, path: &str) -> bool {
        let request = RouteRequest { host: "h", path, method: "POST", header: &header };
        matches(&entry(|e| e.path = wanted), &request)
    }

    crate::tests! {
        fn a_prefix_matches_whole_segments() {
            for (prefix, path, yes) in [
                ("/v1", "/v1", true), ("/v1", "/v1/chat", true), ("/v1/", "/v1", true),
                ("/v1", "/v10", false), ("/", "/", true), ("/", "/x", true), ("/v1", "/v1?x=1", true),
            ] {
                assert_eq!(matches_path(PathMatch::Prefix(prefix.into()), path), yes, "{prefix} {path}");
            }
            assert!(matches_path(PathMatch::Exact("/v1".into()), "/v1?a=b"));
            assert!(!matches_path(PathMatch::Exact("/v1".into()), "/v1/"));
        }

        fn all_headers_query_parameters_method_and_host_must_match() {
            let of = |change: fn(&mut RouteMatch)| {
                let request = RouteRequest { host: "api.example.com:8080", path: "/v1?a=1&a=2&b", method: "POST", header: &header };
                matches(&entry(change), &request)
            };
            assert!(of(|e| e.headers = vec![("x-canary".into(), "true".into())]));
            assert!(!of(|e| e.headers = vec![("x-canary".into(), "true".into()), ("x-other".into(), "1".into())]));
            assert!(!of(|e| e.headers = vec![("x-canary".into(), "TRUE".into())]));
            assert!(of(|e| e.query = vec![("a".into(), "1".into()), ("b".into(), String::new())]));
            assert!(!of(|e| e.query = vec![("a".into(), "2".into())]));
            assert!(!of(|e| e.method = Some("GET".into())));
            for (host, yes) in [
                ("api.example.com", true), ("API.example.com", true), ("*.example.com", true), ("*.com", true),
                ("example.com", false), ("*.api.example.com", false), ("*.ample.com", false),
            ] {
                let request = RouteRequest { host: "api.example.com:8080", path: "/", method: "GET", header: &header };
                assert_eq!(matches(&entry(|e| e.hosts = vec![host.into()]), &request), yes, "{host}");
            }
            let request = RouteRequest { host: "[::1]:80", path: "/", method: "GET", header: &header };
            assert!(matches(&entry(|e| e.hosts = vec!["[::1]".into()]), &request));
        }

        fn a_request_goes_to_the_first_match_and_else_nowhere() {
            let backend = |pool, name: &str, weight| Backend { pool, name: name.into(), weight };
            let rule = |name: &str, backends| RouteRule { name: name.into(), backends, split: Split::Conversation, ..RouteRule::default() };
            let routing = Routing {
                matches: vec![
                    RouteMatch { headers: vec![("x-canary".into(), "true".into())], rule: 1, ..RouteMatch::default() },
                    RouteMatch { path: PathMatch::Exact("/none".into()), rule: 2, ..RouteMatch::default() },
                    RouteMatch { path: PathMatch::Prefix("/v1".into()), rule: 0, ..RouteMatch::default() },
                ],
                rules: vec![
                    rule("a", vec![backend(Some(0), "x", 1)]),
                    rule("b", vec![backend(Some(1), "y", 1)]),
                    rule("c", vec![backend(None, "z", 1)]),
                ],
                default_pool: Some(0),
            };
            let policy = Policy { routing, ..Policy::default() };
            let nothing = |_: &str| None;
            let mut random = || 1;
            let mut to = |path: &str, header: &dyn Fn(&str) -> Option<&'static str>| {
                let mut chooser = Chooser { conversation: 1, random: &mut random };
                route(&policy, &RouteRequest { host: "h", path, method: "POST", header }, &mut chooser).destination
            };
            assert_eq!(to("/v1/chat", &header), Destination::Pool(Some(1)));
            assert_eq!(to("/v1/chat", &nothing), Destination::Pool(Some(0)));
            assert_eq!(to("/none", &nothing), Destination::NoBackend);
            assert_eq!(to("/other", &nothing), Destination::NoRoute);
            let empty = Policy::default();
            let mut chooser = Chooser { conversation: 1, random: &mut random };
            let request = RouteRequest { host: "h", path: "/", method: "GET", header: &nothing };
            assert_eq!(route(&empty, &request, &mut chooser).destination, Destination::Pool(None));
        }
    }
}
