//! What picks leave behind for later ones. Each worker has its own.

use super::decision::Memory;
use super::session::session_plugins;
use super::{Decision, SessionTable};
use crate::flow_control::protocol::PoolKey;
use std::collections::BTreeMap;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::plugin::Scorer;
use warmroute_shared_state::policy::scheduler::Scheduler;

/// State of the plugins of each pool. llm-d has a picker for each pool: where pools share a scheduler, they share
/// nothing of what its plugins remember.
#[derive(Debug, Default)]
pub struct PoolStates {
    pools: BTreeMap<PoolKey, SchedulerState>,
    /// Of a pool where nothing was remembered yet.
    empty: SchedulerState,
    /// Number of the policy that they are of.
    revision: u64,
}

impl PoolStates {
    /// State of a pool's plugins.
    #[must_use]
    pub fn of(&self, pool: PoolKey) -> &SchedulerState {
        self.pools.get(&pool).unwrap_or(&self.empty)
    }

    /// Remembers a decision that was acted upon.
    pub fn remember(&mut self, pool: PoolKey, decision: &Decision, now_ms: u64) {
        if !decision.memories.is_empty() {
            self.pools.entry(pool).or_default().remember(decision, now_ms);
        }
    }

    /// Another worker's decision: the session is at this endpoint.
    pub fn bind(
        &mut self,
        pool: PoolKey,
        instance: &str,
        session: u64,
        endpoint: EndpointId,
        now_ms: u64,
    ) {
        self.pools.entry(pool).or_default().bind(instance, session, endpoint, now_ms);
    }

    /// Forgets pools and plugins that the policy does not have, if it is not the one of the last call.
    pub fn follow(&mut self, revision: u64, policy: &Policy) {
        if core::mem::replace(&mut self.revision, revision) == revision {
            return;
        }
        // A request of no pool is picked for by the first scheduler.
        let none = (PoolKey::of(""), 0);
        let pools = policy.pools.iter().map(|pool| (PoolKey::of(&pool.name), pool.scheduler));
        let schedulers: BTreeMap<_, _> = core::iter::once(none).chain(pools).collect();
        self.pools.retain(|pool, state| {
            let scheduler = schedulers.get(pool).and_then(|at| policy.schedulers.get(*at));
            scheduler.map(|scheduler| state.keep_only(scheduler)).is_some()
        });
    }
}

/// State of a scheduler's plugins for one pool, by the names of their instances.
#[derive(Debug, Default)]
pub struct SchedulerState {
    sessions: BTreeMap<String, SessionTable>,
    cold_picks: BTreeMap<String, ColdPicks>,
}

impl SchedulerState {
    /// Remembers a decision that was acted upon.
    pub fn remember(&mut self, decision: &Decision, now_ms: u64) {
        for memory in &decision.memories {
            match memory {
                Memory::Session { instance, session, endpoint } => {
                    let table = self.sessions.entry(instance.clone()).or_default();
                    table.bind(*session, *endpoint, now_ms);
                }
                Memory::Cold { instance, size, endpoints } => {
                    let picks = self.cold_picks.entry(instance.clone()).or_default();
                    for endpoint in endpoints {
                        picks.touch(*endpoint, *size);
                    }
                }
            }
        }
    }

    fn bind(&mut self, instance: &str, session: u64, endpoint: EndpointId, now_ms: u64) {
        self.sessions.entry(instance.to_owned()).or_default().bind(session, endpoint, now_ms);
    }

    fn keep_only(&mut self, scheduler: &Scheduler) {
        let sessions = session_plugins(scheduler);
        self.sessions.retain(|name, _| sessions.iter().any(|(known, _)| known == name));
        let scorers = scheduler.profiles.iter().flat_map(|profile| &profile.scorers);
        self.cold_picks.retain(|name, _| {
            scorers.clone().any(|s| matches!(s.plugin, Scorer::NoHitLru { .. }) && s.name == *name)
        });
    }

    pub(super) fn sessions(&self, instance: &str) -> Option<&SessionTable> {
        self.sessions.get(instance)
    }

    pub(super) fn cold_picks(&self, instance: &str) -> Option<&ColdPicks> {
        self.cold_picks.get(instance)
    }
}

/// Endpoints in the order of their last cold pick.
#[derive(Debug, Default)]
pub(super) struct ColdPicks {
    used: BTreeMap<EndpointId, u64>,
    clock: u64,
}

impl ColdPicks {
    fn touch(&mut self, endpoint: EndpointId, size: u32) {
        self.clock = self.clock.saturating_add(1);
        self.used.insert(endpoint, self.clock);
        if self.used.len() > usize::try_from(size).unwrap_or(usize::MAX).max(1) {
            let oldest = self.used.iter().min_by_key(|(_, used)| **used).map(|(id, _)| *id);
            oldest.map(|id| self.used.remove(&id));
        }
    }

    /// When this one was used.
    pub(super) fn used(&self, endpoint: EndpointId) -> Option<u64> {
        self.used.get(&endpoint).copied()
    }
}
