//! `program-aware-fairness` with its strategy `las`: the flow that got the least service lately goes next, and the
//! longer its first request waits the sooner (llm-d-router, `fairness/program-aware/strategy_las.go`).

use super::fairness::FlowId;
use super::ordering::Rank;
use crate::flow_control::protocol::Usage;
use std::collections::BTreeMap;
use warmroute_shared_state::policy::plugin::ProgramAware;

/// Flows remembered at most; beyond, those with the least service are forgotten.
const MAX_FLOWS: usize = 4096;

#[derive(Debug, Clone, Copy, Default)]
struct Service {
    tokens: f64,
    at_ms: u64,
}

/// What each flow got.
#[derive(Debug)]
pub struct LeastService {
    parameters: ProgramAware,
    flows: BTreeMap<FlowId, Service>,
}

impl LeastService {
    pub(super) fn new(parameters: ProgramAware) -> Self {
        Self { parameters, flows: BTreeMap::new() }
    }

    /// Service decays by half in each half-life.
    fn decayed(&self, service: Service, now_ms: u64) -> f64 {
        let half_life = self.parameters.las_half_life_seconds;
        #[allow(clippy::cast_precision_loss)]
        let seconds = now_ms.saturating_sub(service.at_ms) as f64 / 1000.0;
        if half_life > 0.0 {
            service.tokens * (-seconds / half_life).exp2()
        } else {
            service.tokens
        }
    }

    fn service(&self, flow: &str, now_ms: u64) -> f64 {
        self.flows.get(flow).map_or(0.0, |service| self.decayed(*service, now_ms))
    }

    pub(super) fn add(&mut self, flow: &FlowId, usage: Usage, now_ms: u64) {
        #[allow(clippy::cast_precision_loss)]
        let cost = usage.prompt as f64 + 2.0 * usage.completion as f64;
        let tokens = self.service(flow, now_ms) + cost;
        self.flows.insert(FlowId::clone(flow), Service { tokens, at_ms: now_ms });
    }

    pub(super) fn next(&self, heads: &BTreeMap<FlowId, Rank>, now_ms: u64) -> Option<FlowId> {
        #[allow(clippy::cast_precision_loss)]
        let waited = |rank: &Rank| now_ms.saturating_sub(rank.since_ms) as f64;
        let of = |(flow, rank): (&FlowId, &Rank)| (self.service(flow, now_ms), waited(rank));
        let scale = |value: f64, (low, high): (f64, f64)| {
            if high > low { (value - low) / (high - low) } else { 0.5 }
        };
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let services = range(&mut heads.iter().map(|head| of(head).0));
        let waits = range(&mut heads.iter().map(|head| of(head).1));
        let score = |head: (&FlowId, &Rank)| {
            let (service, wait) = of(head);
            self.parameters.las_weight_service * (1.0 - scale(service, services))
                + self.parameters.las_weight_head_wait * scale(wait, waits)
        };
        heads
            .iter()
            .map(|head| (score(head), head))
            // Of equals, the one that came first.
            .max_by(|(a, (_, first)), (b, (_, second))| a.total_cmp(b).then(second.cmp(first)))
            .map(|(_, (flow, _))| FlowId::clone(flow))
    }

    pub(super) fn forget_idle(&mut self, heads: &BTreeMap<FlowId, Rank>, now_ms: u64) {
        let ttl = self.parameters.eviction_ttl_seconds;
        #[allow(clippy::cast_precision_loss)]
        let age = |service: &Service| now_ms.saturating_sub(service.at_ms) as f64 / 1000.0;
        self.flows
            .retain(|flow, service| ttl <= 0.0 || age(service) < ttl || heads.contains_key(flow));
        if self.flows.len() > MAX_FLOWS {
            let mut by_service: Vec<(f64, FlowId)> = self
                .flows
                .iter()
                .map(|(flow, s)| (self.decayed(*s, now_ms), FlowId::clone(flow)))
                .collect();
            by_service.sort_by(|a, b| a.0.total_cmp(&b.0));
            let surplus = self.flows.len().saturating_sub(MAX_FLOWS);
            for (_, flow) in by_service.iter().take(surplus) {
                self.flows.remove(flow);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_control::protocol::TicketId;

    fn rank(since_ms: u64) -> Rank {
        Rank { key: 0, since_ms, id: TicketId::default() }
    }

    crate::tests! {
        fn who_got_least_goes_first_and_service_is_forgotten_by_halves() {
            let mut las = LeastService::new(ProgramAware {
                eviction_ttl_seconds: 3600.0,
                las_weight_service: 0.8,
                las_weight_head_wait: 0.2,
                las_half_life_seconds: 60.0,
            });
            let (a, b) = (FlowId::from("a"), FlowId::from("b"));
            las.add(&a, Usage { prompt: 100, completion: 50 }, 0);
            assert_eq!(las.service("a", 0), 200.0);
            assert_eq!(las.service("a", 60_000), 100.0);
            let heads = BTreeMap::from([(a.clone(), rank(0)), (b.clone(), rank(900))]);
            assert_eq!(las.next(&heads, 1000), Some(b.clone()), "B had nothing yet");
            las.add(&b, Usage { prompt: 200, completion: 0 }, 0);
            assert_eq!(las.next(&heads, 1000), Some(a.clone()), "equal: A waits longer");
            las.forget_idle(&heads, 10_000_000);
            assert_eq!(las.flows.len(), 2, "they wait");
            las.forget_idle(&BTreeMap::new(), 10_000_000);
            assert!(las.flows.is_empty());
        }
    }
}
