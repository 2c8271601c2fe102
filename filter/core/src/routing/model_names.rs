//! A model's names: the base model that routes know, and the name that the engine serves.

use super::Chooser;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::routing::{ModelRewrite, RewriteRule};

/// The base model that a client's model name belongs to (llm-d's model mapping), if it is mapped.
#[must_use]
pub fn base_model<'p>(policy: &'p Policy, model: &str) -> Option<&'p str> {
    let of = |mapping: &&_| {
        let mapping: &warmroute_shared_state::policy::routing::ModelMapping = mapping;
        mapping.base_model == model || mapping.adapters.iter().any(|adapter| adapter == model)
    };
    policy.model_mappings.iter().find(of).map(|mapping| mapping.base_model.as_str())
}

/// What an `InferenceModelRewrite` made of a model name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewritten<'p> {
    /// The object's name.
    pub by: &'p str,
    /// What the engine is asked for; empty: the rule has no target that can be chosen.
    pub target: &'p str,
}

/// Applies the rewrites of the pool: a rule that names the model beats one for all models; of several, the oldest
/// object's counts (llm-d-router, `pkg/epp/datastore/modelrewritestore.go`).
pub fn rewrite<'p>(
    policy: &'p Policy,
    pool: Option<usize>,
    model: &str,
    chooser: &mut Chooser<'_>,
) -> Option<Rewritten<'p>> {
    let here = || policy.rewrites.iter().filter(|r| r.pool.is_none() || r.pool == pool);
    let find = |fits: &dyn Fn(&RewriteRule) -> bool| {
        here().find_map(|rewrite| {
            let (index, rule) = rewrite.rules.iter().enumerate().find(|(_, rule)| fits(rule))?;
            Some((rewrite, index, rule))
        })
    };
    let (rewrite, index, rule) = find(&|rule| rule.models.iter().any(|exact| exact == model))
        .or_else(|| find(&|rule| rule.generic))?;
    Some(Rewritten { by: &rewrite.name, target: choose_target(rewrite, index, rule, chooser) })
}

fn choose_target<'p>(
    rewrite: &'p ModelRewrite,
    index: usize,
    rule: &'p RewriteRule,
    chooser: &mut Chooser<'_>,
) -> &'p str {
    let total: u64 = rule.targets.iter().filter_map(|t| t.weight).map(u64::from).sum();
    // Without a weight among several that have one, a target is never chosen; without any, all are equal.
    let weight = |weight: Option<u32>| if total == 0 { 1 } else { weight.unwrap_or(0) };
    let sides = rule.targets.iter().map(|target| (target.model.as_str(), weight(target.weight)));
    let domain = format!("{}/{index}", rewrite.name);
    let chosen = chooser.choose(rewrite.split, &domain, sides);
    chosen.and_then(|at| rule.targets.get(at)).map_or("", |target| &target.model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmroute_shared_state::policy::routing::{ModelMapping, RewriteTarget, Split};

    fn rule(models: &[&str], targets: &[(&str, Option<u32>)]) -> RewriteRule {
        RewriteRule {
            models: models.iter().map(|m| (*m).into()).collect(),
            generic: models.is_empty(),
            targets: targets
                .iter()
                .map(|(m, weight)| RewriteTarget { model: (*m).into(), weight: *weight })
                .collect(),
        }
    }

    fn object(name: &str, pool: Option<usize>, rules: Vec<RewriteRule>) -> ModelRewrite {
        ModelRewrite { name: name.into(), pool, rules, split: Split::Conversation }
    }

    fn target(rewrites: Vec<ModelRewrite>, pool: usize, model: &str) -> Option<String> {
        let policy = Policy { rewrites, ..Policy::default() };
        let mut random = || 1;
        let mut chooser = Chooser { conversation: 9, random: &mut random };
        rewrite(&policy, Some(pool), model, &mut chooser).map(|r| r.target.to_owned())
    }

    crate::tests! {
        fn an_exact_rule_beats_an_older_generic_one_and_the_oldest_of_equals_counts() {
            let rewrites = || vec![
                object("old", None, vec![rule(&[], &[("any", None)])]),
                object("mid", None, vec![rule(&["a", "b"], &[("first", Some(1))])]),
                object("new", None, vec![rule(&["a"], &[("second", Some(1))])]),
            ];
            assert_eq!(target(rewrites(), 0, "a").as_deref(), Some("first"));
            assert_eq!(target(rewrites(), 0, "c").as_deref(), Some("any"));
            assert_eq!(target(rewrites(), 0, "A").as_deref(), Some("any"), "names are case-sensitive");
            assert_eq!(target(Vec::new(), 0, "a"), None);
        }

        fn a_rewrite_is_about_its_pool() {
            let rewrites = || vec![object("x", Some(1), vec![rule(&["a"], &[("b", None)])])];
            assert_eq!(target(rewrites(), 1, "a").as_deref(), Some("b"));
            assert_eq!(target(rewrites(), 0, "a"), None);
        }

        fn a_target_without_weight_among_weighted_ones_is_never_chosen() {
            let rewrites = || vec![object("x", None, vec![rule(&["a"], &[("none", None), ("one", Some(5))])])];
            assert_eq!(target(rewrites(), 0, "a").as_deref(), Some("one"));
            assert_eq!(target(vec![object("x", None, vec![rule(&["a"], &[])])], 0, "a").as_deref(), Some(""));
            let zero = vec![object("x", None, vec![rule(&["a"], &[("z", Some(0))])])];
            assert_eq!(target(zero, 0, "a").as_deref(), Some("z"));
        }

        fn base_and_adapters_map_to_the_base_model() {
            let mapping = ModelMapping { base_model: "base".into(), adapters: vec!["lora".into()] };
            let policy = Policy { model_mappings: vec![mapping], ..Policy::default() };
            assert_eq!(base_model(&policy, "base"), Some("base"));
            assert_eq!(base_model(&policy, "lora"), Some("base"));
            assert_eq!(base_model(&policy, "other"), None);
        }
    }
}
