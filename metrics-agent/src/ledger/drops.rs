//! Requests of tenants that were refused or ended early, by reason, since the agent's start.

use super::{bounded, other_of};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use warmroute_shared_state::usage_record::{EndCause, FlowOutcome, UsageRecord};

/// Pairs of tenant and reason that are told apart; the rest is its tenant's `other`, or everybody's.
const MAX_PAIRS: usize = 1000;

/// Counts by tenant and reason.
#[derive(Debug, Default)]
pub struct Drops(Mutex<BTreeMap<(String, String), u64>>);

impl Drops {
    /// Adds a record, if it is of a request that was dropped.
    pub fn add(&self, record: &UsageRecord) {
        let Some(reason) = reason(record) else { return };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = (record.tenant.clone(), reason);
        let other = || other_of(&counts, &record.tenant);
        let pair = bounded(&counts, MAX_PAIRS, pair, other);
        let count = counts.entry(pair).or_default();
        *count = count.saturating_add(1);
    }

    /// All counts, by tenant and reason.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(String, String), u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Flow control's reason as the client was told; `budget`; else the status of the refusal. `None`: not dropped.
fn reason(record: &UsageRecord) -> Option<String> {
    if !record.dropped.is_empty() {
        return Some(record.dropped.clone());
    }
    if record.flow == Some(FlowOutcome::EvictedContextCancelled) {
        return Some("rejected-context-cancelled".to_owned());
    }
    match (record.cause, record.status) {
        (EndCause::Rejected, 429) => Some("budget".to_owned()),
        (EndCause::Rejected, status) => Some(format!("status-{status}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::record;
    use warmroute_shared_state::tenant_status::OTHER;

    #[test]
    fn each_drop_has_a_reason_and_what_was_answered_has_none() {
        use EndCause::{Disconnect, Evicted, Natural, Rejected};
        let left = Some(FlowOutcome::EvictedContextCancelled);
        let cases = [
            (Natural, 200, "", None, None),
            (Natural, 429, "", None, None),
            (Disconnect, 200, "", None, None),
            (Disconnect, 0, "", left, Some("rejected-context-cancelled")),
            (Evicted, 200, "evicted", None, Some("evicted")),
            (Rejected, 429, "rejected-saturated", None, Some("rejected-saturated")),
            (Rejected, 429, "", None, Some("budget")),
            (Rejected, 400, "", None, Some("status-400")),
        ];
        for (cause, status, dropped, flow, expected) in cases {
            let dropped = dropped.to_owned();
            let found = reason(&UsageRecord { cause, status, dropped, flow, ..record(1) });
            assert_eq!(found.as_deref(), expected, "{cause:?} {status}");
        }
    }

    #[test]
    fn tenants_and_reasons_take_bounded_room() {
        let drops = Drops::default();
        for n in 0..3000u64 {
            let (tenant, dropped) = (format!("t{n}"), "evicted".to_owned());
            drops.add(&UsageRecord { tenant, dropped, ..record(n) });
        }
        let counts = drops.counts();
        assert_eq!((counts.len(), counts.values().sum::<u64>()), (MAX_PAIRS + 1, 3000));
        assert_eq!(counts[&(OTHER.to_owned(), OTHER.to_owned())], 2000);
        let dropped = "rejected-saturated".to_owned();
        drops.add(&UsageRecord { tenant: "t1".to_owned(), dropped, ..record(1) });
        assert_eq!(drops.counts()[&("t1".to_owned(), OTHER.to_owned())], 1, "a known tenant's");
    }
}
