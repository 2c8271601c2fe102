//! Label values that clients choose, bounded.

use prometheus_client::encoding::EncodeLabelSet;
use std::collections::HashSet;
use warmroute_shared_state::tenant_status::OTHER;
use warmroute_shared_state::usage_record::{EndCause, UsageRecord};

/// Distinct names of models, of fairness IDs, and of pools.
const MAX_NAMES: usize = 1000;
/// Combinations of all labels; llm-d has no such bound, but each takes some 300 series here.
pub(super) const MAX_COMBINATIONS: usize = 1000;

/// What most metrics are told by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ModelLabels {
    pub(super) model_name: String,
    pub(super) target_model_name: String,
    pub(super) fairness_id: String,
    pub(super) priority: String,
}

/// Names that have been told.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) models: HashSet<String>,
    pub(super) fairness_ids: HashSet<String>,
    pools: HashSet<String>,
    combinations: HashSet<ModelLabels>,
}

impl Names {
    /// A record's labels and its pool, or `other` where there is no room.
    pub(super) fn bounded(&mut self, record: &UsageRecord) -> (ModelLabels, String) {
        // What is refused may name any model, and makes no room for it.
        let adds = record.cause != EndCause::Rejected;
        let labels = ModelLabels {
            model_name: name(&mut self.models, &record.model, adds),
            target_model_name: name(&mut self.models, &record.target_model, adds),
            fairness_id: name(&mut self.fairness_ids, &record.fairness_id, adds),
            priority: record.priority.to_string(),
        };
        let pool = name(&mut self.pools, &record.pool, adds);
        if self.combinations.contains(&labels) {
            return (labels, pool);
        }
        if self.combinations.len() < MAX_COMBINATIONS {
            self.combinations.insert(labels.clone());
            return (labels, pool);
        }
        let other = || OTHER.to_owned();
        let labels = ModelLabels {
            model_name: other(),
            target_model_name: other(),
            fairness_id: other(),
            priority: other(),
        };
        (labels, other())
    }
}

fn name(known: &mut HashSet<String>, name: &str, adds: bool) -> String {
    // Empty is "none": it takes no room.
    if name.is_empty() || known.contains(name) {
        return name.to_owned();
    }
    if adds && known.len() < MAX_NAMES {
        known.insert(name.to_owned());
        return name.to_owned();
    }
    OTHER.to_owned()
}
