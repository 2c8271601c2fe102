//! Which names are the operator's: the configuration's and the engines'.

use super::Label;
use crate::replica::Replica;
use crate::routing::DEFAULT_FAIRNESS_ID;
use warmroute_shared_state::policy::Policy;

/// Whether the configuration, or an engine, has this name. No name at all counts as one.
#[must_use]
pub fn is_configured(replica: &Replica, label: Label, name: &str) -> bool {
    let policy = replica.policy.current();
    match label {
        _ if name.is_empty() => true,
        Label::Model => {
            replica.models.find(name).is_some()
                || names_model(policy, name)
                || is_adapter(replica, name)
        }
        Label::FairnessId => {
            name == DEFAULT_FAIRNESS_ID
                || policy.tenants.iter().any(|tenant| tenant.fairness_id == name)
        }
    }
}

fn names_model(policy: &Policy, name: &str) -> bool {
    let rules = || policy.rewrites.iter().flat_map(|rewrite| &rewrite.rules);
    let limits = || policy.tenants.iter().flat_map(|tenant| &tenant.limits);
    crate::routing::base_model(policy, name).is_some()
        || rules().flat_map(|rule| &rule.models).any(|model| model == name)
        || rules().flat_map(|rule| &rule.targets).any(|target| target.model == name)
        || limits().any(|limit| limit.model == name)
}

/// Whether an engine runs, or is to run, an adapter of this name.
fn is_adapter(replica: &Replica, name: &str) -> bool {
    let adapters = replica.roster.iter().filter_map(|e| e.signals.adapters.as_ref());
    let mut names = adapters.flat_map(|adapters| adapters.active.iter().chain(&adapters.waiting));
    names.any(|adapter| adapter == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::{policy_ops, record_ops, tests::record};
    use warmroute_shared_state::model::ModelRecord;
    use warmroute_shared_state::policy::routing::{
        ModelMapping, ModelRewrite, RewriteRule, RewriteTarget, Split,
    };
    use warmroute_shared_state::policy::tenants::{Accounting, Limit, Tenant};
    use warmroute_shared_state::signals::{Adapters, Signals};
    use warmroute_shared_state::table_op::{Column, Columns, TableOp};

    fn policy() -> Policy {
        let rule = RewriteRule {
            models: vec!["support".into()],
            generic: false,
            targets: vec![RewriteTarget { model: "support-v2".into(), weight: None }],
        };
        let rewrite = ModelRewrite {
            name: "n/r".into(),
            pool: None,
            rules: vec![rule],
            split: Split::Random,
        };
        let mapping = ModelMapping { base_model: "base".into(), adapters: vec!["lora".into()] };
        let tenant = Tenant {
            name: "a".into(),
            key_hashes: vec![],
            jwt: None,
            strip_key: false,
            fairness_id: "a-flow".into(),
            objective: None,
            tier: None,
            limits: vec![Limit { model: "limited".into(), ..Limit::default() }],
            accounting: Accounting::default(),
        };
        Policy {
            rewrites: vec![rewrite],
            model_mappings: vec![mapping],
            tenants: vec![tenant],
            ..Policy::default()
        }
    }

    crate::tests! {
        fn what_the_configuration_and_the_engines_name_is_known_and_nothing_else() {
            let mut replica = Replica::default();
            policy_ops(&policy().to_json(), |op| replica.apply(1, op));
            let model = ModelRecord {
                name: "llama".into(),
                aliases: vec!["llama-alias".into()],
                ..ModelRecord::default()
            };
            record_ops(&model, |op| replica.apply(1, op));
            let columns = Columns::only(Column(0));
            replica.apply(1, &TableOp::Endpoint { columns, since: 1, record: record(0) });
            let adapters =
                Adapters { active: vec!["runs".into()], waiting: vec!["waits".into()], max: 2 };
            let signals = Signals { adapters: Some(adapters), attributes: vec![] };
            replica.apply(1, &TableOp::Signals { id: record(0).id, signals });
            for name in [
                "", "support", "support-v2", "base", "lora", "limited", "llama", "llama-alias",
                "runs", "waits",
            ] {
                assert!(is_configured(&replica, Label::Model, name), "{name}");
            }
            for name in ["", "a-flow", DEFAULT_FAIRNESS_ID] {
                assert!(is_configured(&replica, Label::FairnessId, name), "{name}");
            }
            for (label, name) in
                [(Label::Model, "a-flow"), (Label::Model, "x"), (Label::FairnessId, "llama"), (Label::FairnessId, "a")]
            {
                assert!(!is_configured(&replica, label, name), "{name}");
            }
        }
    }
}
