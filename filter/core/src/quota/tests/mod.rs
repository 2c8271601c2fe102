//! Budgets as tenants meet them.

#[cfg(not(target_arch = "wasm32"))]
mod any_order;
mod article;
mod buckets;
mod replies;
mod settlement;

use super::*;
use warmroute_shared_state::policy::tenants::{Accounting, Limit, Tenant};

fn tenant(name: &str, limits: Vec<Limit>) -> Tenant {
    Tenant {
        name: name.into(),
        key_hashes: Vec::new(),
        jwt: None,
        strip_key: false,
        fairness_id: name.into(),
        objective: None,
        tier: None,
        limits,
        accounting: Accounting::Generated,
    }
}

fn ask(kind: Kind, limit: u64, amount: u64) -> Ask {
    Ask { bucket: BucketId::new("t", "m", kind), limit, amount }
}

fn remaining(buckets: &mut Buckets, kind: Kind, limit: u64, now_ms: u64) -> i64 {
    buckets.level(&ask(kind, limit, 0), now_ms).balance
}
