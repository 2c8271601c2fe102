//! In which order the matches of all routes are tried.
//!
//! Gateway API (`HTTPRouteRule.matches` and `HTTPRouteSpec.hostnames`): the most specific host, then an exact path,
//! the longest prefix, a method, the most headers, the most query parameters; then the oldest route, the first by
//! name, the first rule of it.

use super::route::RouteSpec;
use std::cmp::Reverse;
use warmroute_shared_state::policy::routing::{PathMatch, RouteMatch};

/// Every match of every route, one for each of its hosts, in the order of precedence. `first_rules` holds for each
/// route the index of its first rule among all.
#[must_use]
pub fn sorted(routes: &[RouteSpec], first_rules: &[usize]) -> Vec<RouteMatch> {
    let mut entries: Vec<(&RouteSpec, RouteMatch)> = Vec::new();
    for (route, first) in routes.iter().zip(first_rules) {
        for (index, rule) in route.rules.iter().enumerate() {
            for wanted in &rule.matches {
                let entry = RouteMatch { rule: first.saturating_add(index), ..wanted.clone() };
                if route.hosts.is_empty() {
                    entries.push((route, entry.clone()));
                }
                entries.extend(route.hosts.iter().map(|host| {
                    (route, RouteMatch { hosts: vec![host.clone()], ..entry.clone() })
                }));
            }
        }
    }
    // Stable: what is equal stays in the order of the rules and of their matches.
    entries.sort_by(|(route, entry), (other, another)| {
        let one = (specificity(entry), route.head.age(), route.head.full_name());
        one.cmp(&(specificity(another), other.head.age(), other.head.full_name()))
    });
    entries.into_iter().map(|(_, entry)| entry).collect()
}

type Specificity =
    (Reverse<usize>, Reverse<usize>, bool, Reverse<usize>, bool, Reverse<usize>, Reverse<usize>);

fn specificity(entry: &RouteMatch) -> Specificity {
    let host = entry.hosts.first().map_or("", String::as_str);
    let exact_host = if host.starts_with("*.") { 0 } else { host.len() };
    let (is_prefix, path) = match &entry.path {
        PathMatch::Exact(path) => (false, path),
        PathMatch::Prefix(path) => (true, path),
    };
    (
        Reverse(exact_host),
        Reverse(host.len()),
        is_prefix,
        Reverse(path.len()),
        entry.method.is_none(),
        Reverse(entry.headers.len()),
        Reverse(entry.query.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::super::route::RuleSpec;
    use super::*;
    use crate::config::object::Head;
    use crate::timestamp::Timestamp;

    fn route(
        name: &str,
        created: Option<&str>,
        hosts: &[&str],
        rules: Vec<Vec<RouteMatch>>,
    ) -> RouteSpec {
        let created = created.and_then(Timestamp::parse);
        RouteSpec {
            head: Head { namespace: "n".into(), name: name.into(), created, ..Head::default() },
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            rules: rules
                .into_iter()
                .map(|matches| RuleSpec { matches, ..RuleSpec::default() })
                .collect(),
            warnings: Vec::new(),
        }
    }

    fn entry(path: PathMatch, method: Option<&str>, headers: usize, query: usize) -> RouteMatch {
        let pairs = |n: usize| (0..n).map(|i| (format!("k{i}"), "v".to_owned())).collect();
        let method = method.map(str::to_owned);
        RouteMatch {
            path,
            method,
            headers: pairs(headers),
            query: pairs(query),
            ..RouteMatch::default()
        }
    }

    fn rules(routes: &[RouteSpec]) -> Vec<usize> {
        let mut first = Vec::new();
        let mut next = 0;
        for route in routes {
            first.push(next);
            next += route.rules.len();
        }
        sorted(routes, &first).into_iter().map(|entry| entry.rule).collect()
    }

    #[test]
    fn the_more_specific_goes_first() {
        let exact = |path: &str| PathMatch::Exact(path.into());
        let prefix = |path: &str| PathMatch::Prefix(path.into());
        // Rule 0 is the least specific, and each of the next beats all before it.
        let ascending = vec![
            vec![entry(prefix("/"), None, 0, 0)],
            vec![entry(prefix("/"), None, 0, 1)],
            vec![entry(prefix("/"), None, 1, 0)],
            vec![entry(prefix("/"), None, 2, 0)],
            vec![entry(prefix("/"), Some("POST"), 0, 0)],
            vec![entry(prefix("/v1"), None, 0, 0)],
            vec![entry(prefix("/v1/chat"), None, 0, 0)],
            vec![entry(exact("/v1"), None, 0, 0)],
        ];
        assert_eq!(rules(&[route("r", None, &[], ascending)]), [7, 6, 5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn the_more_specific_host_goes_before_everything_else() {
        let deep = || vec![vec![entry(PathMatch::Exact("/v1/chat".into()), None, 9, 0)]];
        let flat = || vec![vec![RouteMatch::default()]];
        let routes = [
            route("any", None, &[], deep()),
            route("wild", None, &["*.example.com"], deep()),
            route("wilder", None, &["*.a.example.com"], flat()),
            route("one", None, &["b.a.example.com"], flat()),
        ];
        assert_eq!(rules(&routes), [3, 2, 1, 0]);
        let both = sorted(&[route("r", None, &["*.b.c", "a.b.c"], flat())], &[0]);
        let hosts: Vec<_> = both.iter().flat_map(|entry| &entry.hosts).collect();
        assert_eq!(hosts, ["a.b.c", "*.b.c"]);
    }

    #[test]
    fn equals_go_by_age_then_name_then_order() {
        let same = || vec![vec![RouteMatch::default()], vec![RouteMatch::default()]];
        let routes = [
            route("b", None, &[], same()),
            route("a", None, &[], same()),
            route("new", Some("2026-01-02T00:00:00Z"), &[], same()),
            route("old", Some("2026-01-01T00:00:00Z"), &[], same()),
        ];
        assert_eq!(rules(&routes), [6, 7, 4, 5, 2, 3, 0, 1]);
    }
}
