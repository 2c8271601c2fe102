//! The compiled configuration in force, swapped between two requests.

use super::parts::Parts;
use crate::identity::TenantIndex;
use crate::request::parsers::ParserSet;
use std::rc::Rc;
use warmroute_shared_state::endpoint::EndpointRecord;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::plugin::Parser;
use warmroute_shared_state::policy::routing::Pool;
use warmroute_shared_state::policy::scheduler::Scheduler;
use warmroute_shared_state::table_op::{MODEL_PART_BYTES, TableOp};

/// The policy in force.
#[derive(Debug, Default)]
pub struct PolicySlot {
    current: Rc<Policy>,
    json: Vec<u8>,
    parsers: ParserSet,
    tenants: TenantIndex,
    revision: u64,
    unreadable: u64,
    parts: Parts,
}

impl PolicySlot {
    /// The policy: that of the last complete document that could be read; at first, none.
    #[must_use]
    pub fn current(&self) -> &Rc<Policy> {
        &self.current
    }

    /// The parsers of all schedulers, in their order: which pool a request goes to may depend on its body.
    #[must_use]
    pub fn parsers(&self) -> &ParserSet {
        &self.parsers
    }

    /// The tenants by their credentials.
    #[must_use]
    pub fn tenants(&self) -> &TenantIndex {
        &self.tenants
    }

    /// The scheduler of the first pool that an endpoint is in; `None` if nothing was configured yet.
    #[must_use]
    pub fn scheduler_of(&self, record: &EndpointRecord) -> Option<&Scheduler> {
        let policy = &self.current;
        let of_record = |pool: &&Pool| record.pools.contains(&pool.name);
        let index = policy.pools.iter().find(of_record).map_or(0, |pool| pool.scheduler);
        policy.schedulers.get(index)
    }

    /// Number of the document in force; 0 = none yet.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Documents that could not be read: agent and filter are of different versions. The one before stayed.
    #[must_use]
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    pub(super) fn part(&mut self, revision: u64, part: u16, parts: u16, bytes: &[u8]) {
        let Some(json) = self.parts.add(revision, part, parts, bytes) else { return };
        if revision == self.revision {
            return;
        }
        match Policy::from_json(&json) {
            Ok(policy) => {
                self.parsers = parsers(&policy);
                self.tenants = TenantIndex::new(&policy.tenants);
                self.current = Rc::new(policy);
                self.json = json;
                self.revision = revision;
            }
            Err(_) => self.unreadable = self.unreadable.saturating_add(1),
        }
    }

    /// Calls `each` with the operations that rebuild it.
    pub fn for_each_op(&self, each: impl FnMut(&TableOp<'_>)) {
        if self.revision != 0 {
            policy_ops(&self.json, each);
        }
    }
}

fn parsers(policy: &Policy) -> ParserSet {
    let mut all = Vec::new();
    for parser in policy.schedulers.iter().flat_map(|scheduler| &scheduler.parsers) {
        if !all.contains(parser) {
            all.push(*parser);
        }
    }
    // One that takes what no other does would hide those behind it.
    all.sort_by_key(|parser| *parser == Parser::Passthrough);
    if all.is_empty() { ParserSet::default() } else { ParserSet::new(&all) }
}

/// Number of a policy: XXH3 of its JSON, never 0.
#[must_use]
pub fn policy_revision(json: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(json).max(1)
}

/// Calls `each` with the operations that tell a policy.
pub fn policy_ops(json: &[u8], mut each: impl FnMut(&TableOp<'_>)) {
    let revision = policy_revision(json);
    let parts = u16::try_from(json.chunks(MODEL_PART_BYTES).len()).unwrap_or(u16::MAX);
    for (part, bytes) in (0u16..).zip(json.chunks(MODEL_PART_BYTES)) {
        each(&TableOp::PolicyPart { revision, part, parts, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::super::Replica;
    use super::*;
    use warmroute_shared_state::policy::routing::Objective;

    fn policy(name: &str) -> Policy {
        let objective = Objective { name: name.into(), pool: None, priority: 3 };
        Policy { objectives: vec![objective], ..Policy::default() }
    }

    crate::tests! {
        fn a_policy_is_swapped_whole_and_rebuilt_from_its_operations() {
            let mut replica = Replica::default();
            for name in ["a".repeat(30_000), "b".into()] {
                policy_ops(&policy(&name).to_json(), |op| replica.apply(1, op));
                assert_eq!(**replica.policy.current(), policy(&name));
            }
            let mut copy = Replica::default();
            replica.policy.for_each_op(|op| copy.apply(1, op));
            assert_eq!(copy.policy.current(), replica.policy.current());
            assert_eq!(copy.policy.revision(), replica.policy.revision());
        }

        fn what_cannot_be_read_leaves_the_last_one() {
            let mut replica = Replica::default();
            policy_ops(&policy("a").to_json(), |op| replica.apply(1, op));
            policy_ops(b"{\"pools\": 3}", |op| replica.apply(1, op));
            assert_eq!(**replica.policy.current(), policy("a"));
            assert_eq!(replica.policy.unreadable(), 1);
        }
    }
}
