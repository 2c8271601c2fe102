//! Makes the policy of the objects: every name becomes an index, or a remark that nothing has it.

mod shares;

use super::error::{Issue, Problem};
use super::gateway::PoolRef;
use super::gateway::pool::PoolSpec;
use super::gateway::precedence;
use super::gateway::route::{RouteSpec, RuleSpec};
use super::model_mapping::MappingSpec;
use super::object::Head;
use super::objects::Objects;
use super::picker::PickerSpec;
use std::collections::HashMap;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::routing::{
    Backend, ModelMapping, ModelRewrite, Objective, Pool, RouteRule, Routing,
};

/// Matches of all routes together, each counted for each of its hosts.
const MAX_MATCHES: usize = 4096;

/// What the objects come to.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Resolved {
    /// The policy. The names of clusters are those where there are several pools; [`name_clusters`] sets them.
    pub policy: Policy,
    /// The picker's configuration of each of its schedulers.
    pub pickers: Vec<PickerSpec>,
    /// What is strange, but allowed.
    pub warnings: Vec<Issue>,
}

/// Resolves all references.
///
/// # Errors
/// Those that leave more than one way open, and what is too much.
pub fn resolve(objects: &Objects) -> Result<Resolved, Vec<Issue>> {
    let mut resolved = Resolved::default();
    let schedulers = choose_pickers(objects, &mut resolved)?;
    let pools = objects.pools.iter().zip(&schedulers);
    resolved.policy.pools = pools
        .map(|(pool, scheduler)| Pool {
            name: pool.head.full_name(),
            cluster: format!("{}.{}", pool.head.namespace, pool.head.name),
            fail_open: pool.fail_open,
            scheduler: *scheduler,
        })
        .collect();
    let schedulers = resolved.pickers.iter().map(|picker| picker.scheduler.clone());
    resolved.policy.schedulers = schedulers.collect();
    resolved.policy.routing = routing(objects, &mut resolved.warnings)?;
    resolved.policy.model_mappings = mappings(objects)?;
    resolved.policy.rewrites = rewrites(objects, &mut resolved.warnings);
    resolved.policy.objectives = objectives(objects, &mut resolved.warnings);
    resolved.policy.flow = shares::flow(&resolved.pickers);
    resolved.policy.tenants = shares::tenants(&objects.tenants);
    for (place, name) in objects.missing_objectives() {
        let text = format!(
            "there is no InferenceObjective `{name}`: its requests have priority 0; add it"
        );
        resolved.warnings.push(place.issue(Problem::Conflict(text)));
    }
    Ok(resolved)
}

/// The scheduler of each pool. The pickers that are used go into `resolved`.
fn choose_pickers(objects: &Objects, resolved: &mut Resolved) -> Result<Vec<usize>, Vec<Issue>> {
    let all = &objects.pickers;
    if all.len() <= 1 {
        resolved.pickers = vec![all.first().cloned().unwrap_or_default()];
        return Ok(vec![0; objects.pools.len()]);
    }
    let mut issues = Vec::new();
    let mut used: Vec<usize> = Vec::new();
    let mut schedulers = Vec::new();
    for pool in &objects.pools {
        match all.iter().position(|picker| serves(picker, pool)) {
            Some(index) => {
                let known = used.iter().position(|earlier| *earlier == index);
                schedulers.push(known.unwrap_or(used.len()));
                if known.is_none() {
                    used.push(index);
                }
            }
            None => issues.push(pool.head.place.issue(ambiguous(
                &pool.head,
                pool.picker.as_deref(),
                all,
            ))),
        }
    }
    if objects.pools.is_empty()
        && let [first, second, ..] = all.as_slice()
    {
        let text = format!(
            "EndpointPickerConfigs `{}` and `{}`, and no InferencePool that says which to use; remove one of the two",
            first.head.full_name(),
            second.head.full_name()
        );
        issues.push(second.head.place.issue(Problem::Conflict(text)));
    }
    for (index, picker) in all.iter().enumerate().filter(|(index, _)| !used.contains(index)) {
        let _ = index;
        let text = format!(
            "no pool's endpointPickerRef leads to `{}`; it is not used",
            picker.head.full_name()
        );
        resolved.warnings.push(picker.head.place.issue(Problem::Conflict(text)));
    }
    resolved.pickers = used.iter().filter_map(|index| all.get(*index)).cloned().collect();
    if issues.is_empty() { Ok(schedulers) } else { Err(issues) }
}

/// Whether a picker's configuration is the one that a pool's `endpointPickerRef` means: by its name, or that with
/// `-config` behind it.
fn serves(picker: &PickerSpec, pool: &PoolSpec) -> bool {
    let Some(wanted) = &pool.picker else { return false };
    let name = picker.head.name.as_str();
    let named = name == wanted || name.strip_suffix("-config").is_some_and(|name| name == wanted);
    named && (picker.of_any_namespace || picker.head.namespace == pool.head.namespace)
}

fn ambiguous(pool: &Head, wanted: Option<&str>, pickers: &[PickerSpec]) -> Problem {
    let names: Vec<String> =
        pickers.iter().map(|picker| format!("`{}`", picker.head.full_name())).collect();
    let wanted = wanted.map_or("it names none".to_owned(), |wanted| format!("it names `{wanted}`"));
    Problem::Conflict(format!(
        "InferencePool `{}` has the choice of several EndpointPickerConfigs, {}, and {wanted}; give one of them that \
         name, or that name with `-config` behind it (several in a ConfigMap go by their keys), or remove the others",
        pool.full_name(),
        names.join(" and ")
    ))
}

fn routing(objects: &Objects, warnings: &mut Vec<Issue>) -> Result<Routing, Vec<Issue>> {
    let pools = &objects.pools;
    if objects.routes.is_empty() {
        if let [_, second, ..] = pools.as_slice() {
            let text = "several pools and no HTTPRoute: requests go to the endpoints of all; add an HTTPRoute";
            warnings.push(second.head.place.issue(Problem::Conflict(text.into())));
        }
        let default_pool = (pools.len() == 1).then_some(0);
        return Ok(Routing { default_pool, ..Routing::default() });
    }
    let mut rules = Vec::new();
    let mut first_rules = Vec::new();
    for route in &objects.routes {
        first_rules.push(rules.len());
        for (index, rule) in route.rules.iter().enumerate() {
            rules.push(route_rule(route, index, rule, pools, warnings));
        }
    }
    let count: usize = objects
        .routes
        .iter()
        .map(|route| {
            route.rules.iter().map(|rule| rule.matches.len()).sum::<usize>()
                * route.hosts.len().max(1)
        })
        .sum();
    if count > MAX_MATCHES {
        let place = objects.routes.last().map(|route| route.head.place.clone()).unwrap_or_default();
        let what = "matches in all routes, each counted for each host";
        return Err(vec![place.issue(Problem::TooMany { what, limit: MAX_MATCHES })]);
    }
    let matches = precedence::sorted(&objects.routes, &first_rules);
    Ok(Routing { matches, rules, default_pool: None })
}

fn route_rule(
    route: &RouteSpec,
    index: usize,
    rule: &RuleSpec,
    pools: &[PoolSpec],
    warnings: &mut Vec<Issue>,
) -> RouteRule {
    let mut backends = Vec::new();
    for backend in &rule.backends {
        let pool =
            pools.iter().position(|pool| backend.is_pool && pool.head.full_name() == backend.name);
        if pool.is_none() {
            let what = if backend.is_pool { "does not exist" } else { "is no InferencePool" };
            let text = format!(
                "backend `{}` {what} (ResolvedRefs=False): its share of requests gets 500; add an InferencePool",
                backend.name
            );
            warnings.push(backend.place.issue(Problem::Conflict(text)));
        }
        backends.push(Backend { pool, name: backend.name.clone(), weight: backend.weight });
    }
    if backends.iter().all(|backend| backend.weight == 0) {
        let text =
            format!("rule {index} has no backend with a weight above 0: its requests get 500");
        warnings.push(route.head.place.issue(Problem::Conflict(text)));
    }
    RouteRule {
        name: format!("{}/{index}", route.head.full_name()),
        backends,
        split: route.head.split.unwrap_or_default(),
        timeout_ms: rule.timeout_ms,
        set_headers: rule.set.clone(),
        add_headers: rule.add.clone(),
        remove_headers: rule.remove.clone(),
    }
}

/// Mappings of one base model are joined; a name that would stand for two base models is refused.
fn mappings(objects: &Objects) -> Result<Vec<ModelMapping>, Vec<Issue>> {
    let mut mappings: Vec<ModelMapping> = Vec::new();
    let mut issues = Vec::new();
    // Whose each name was first.
    let mut named: HashMap<&str, &MappingSpec> = HashMap::new();
    for spec in &objects.mappings {
        for name in std::iter::once(&spec.base_model).chain(&spec.adapters) {
            let first = *named.entry(name).or_insert(spec);
            if first.base_model != spec.base_model {
                let first = first.head.place.to_string();
                let problem = Problem::Duplicate { what: "model name", value: name.clone(), first };
                issues.push(spec.head.place.issue(problem));
            }
        }
        let adapters = spec.adapters.iter().filter(|name| **name != spec.base_model).cloned();
        match mappings.iter_mut().find(|known| known.base_model == spec.base_model) {
            Some(known) => {
                for adapter in adapters {
                    if !known.adapters.contains(&adapter) {
                        known.adapters.push(adapter);
                    }
                }
            }
            None => mappings.push(ModelMapping {
                base_model: spec.base_model.clone(),
                adapters: adapters.collect(),
            }),
        }
    }
    if issues.is_empty() { Ok(mappings) } else { Err(issues) }
}

/// The pool that an object is about: `Ok(None)` = any, as there are none; `Err` = it does not exist.
fn pool_of(head: &Head, pool: &PoolRef, pools: &[PoolSpec]) -> Result<Option<usize>, Issue> {
    if pools.is_empty() {
        return Ok(None);
    }
    let name = format!("{}/{}", head.namespace, pool.name);
    match pools.iter().position(|pool| pool.head.full_name() == name) {
        Some(index) => Ok(Some(index)),
        None => {
            let text = format!(
                "InferencePool `{name}` does not exist: `{}` is not used; add the pool",
                head.name
            );
            Err(head.place.at(pool.line).issue(Problem::Conflict(text)))
        }
    }
}

fn rewrites(objects: &Objects, warnings: &mut Vec<Issue>) -> Vec<ModelRewrite> {
    let mut specs: Vec<_> = objects.rewrites.iter().collect();
    specs.sort_by_key(|spec| spec.head.age());
    let mut rewrites = Vec::new();
    for spec in specs {
        match pool_of(&spec.head, &spec.pool, &objects.pools) {
            Ok(pool) => rewrites.push(ModelRewrite {
                name: spec.head.full_name(),
                pool,
                rules: spec.rules.clone(),
                split: spec.head.split.unwrap_or_default(),
            }),
            Err(issue) => warnings.push(issue),
        }
    }
    rewrites
}

fn objectives(objects: &Objects, warnings: &mut Vec<Issue>) -> Vec<Objective> {
    let mut objectives = Vec::new();
    for spec in &objects.objectives {
        match pool_of(&spec.head, &spec.pool, &objects.pools) {
            Ok(pool) => {
                let name = spec.head.name.clone();
                objectives.push(Objective { name, pool, priority: spec.priority });
            }
            Err(issue) => warnings.push(issue),
        }
    }
    objectives
}

/// Gives pools their clusters: a single pool is the one that Envoy has by the name `single`, unless its engines speak
/// HTTP/2, which that cluster does not.
pub fn name_clusters(policy: &mut Policy, specs: &[PoolSpec], single: &str) {
    if let ([pool], [PoolSpec { h2c: false, .. }]) = (policy.pools.as_mut_slice(), specs) {
        single.clone_into(&mut pool.cluster);
        return;
    }
    for pool in &mut policy.pools {
        // That name is taken, by the cluster of all endpoints.
        if pool.cluster == single {
            pool.cluster.push_str(".pool");
        }
    }
}

#[cfg(test)]
mod tests;
