//! What picks leave behind for later ones. Each worker has its own.

use super::decision::Memory;
use super::{Decision, SessionTable};
use std::collections::BTreeMap;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::scheduler::Scheduler;

/// State of a scheduler's plugins, by the names of their instances.
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

    /// Another worker's decision: the session is at this endpoint.
    pub fn bind(&mut self, instance: &str, session: u64, endpoint: EndpointId, now_ms: u64) {
        self.sessions.entry(instance.to_owned()).or_default().bind(session, endpoint, now_ms);
    }

    /// Forgets what belongs to no plugin of the scheduler: the configuration changed.
    pub fn keep_only(&mut self, scheduler: &Scheduler) {
        let known = |name: &str| {
            scheduler.profiles.iter().any(|profile| {
                profile.filters.iter().any(|filter| filter.name == name)
                    || profile.scorers.iter().any(|scorer| scorer.name == name)
            })
        };
        self.sessions.retain(|name, _| known(name));
        self.cold_picks.retain(|name, _| known(name));
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
