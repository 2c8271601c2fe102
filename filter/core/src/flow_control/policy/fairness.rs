//! Which flow of a band goes next.

use super::ordering::Rank;
use super::service::LeastService;
use super::weighted::Weighted;
use crate::flow_control::protocol::Usage;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use warmroute_shared_state::policy::plugin::Fairness;

/// A flow's fairness ID.
pub type FlowId = Rc<str>;

/// A fairness policy and what it remembers of its band's flows.
#[derive(Debug)]
pub enum Turns {
    /// Heads of all flows in order.
    GlobalStrict(BTreeSet<(Rank, FlowId)>),
    /// Flows with requests, and the one that had the last turn.
    RoundRobin(BTreeSet<FlowId>, Option<FlowId>),
    /// Tokens by weight.
    Weighted(Weighted),
    /// Least service first; the heads' ranks.
    LeastService(LeastService, BTreeMap<FlowId, Rank>),
}

impl Turns {
    /// A policy at its start.
    #[must_use]
    pub fn new(policy: &Fairness) -> Self {
        match policy {
            Fairness::GlobalStrict => Self::GlobalStrict(BTreeSet::new()),
            Fairness::RoundRobin => Self::RoundRobin(BTreeSet::new(), None),
            Fairness::ProgramAware(p) => Self::LeastService(LeastService::new(*p), BTreeMap::new()),
            Fairness::WeightedToken { weights, default_weight } => {
                Self::Weighted(Weighted::new(weights, *default_weight))
            }
        }
    }

    /// The flow's first request is another one now; `None` = it has none.
    pub fn head_changed(&mut self, flow: &FlowId, before: Option<Rank>, now: Option<Rank>) {
        match self {
            Self::GlobalStrict(heads) => {
                if let Some(rank) = before {
                    heads.remove(&(rank, FlowId::clone(flow)));
                }
                if let Some(rank) = now {
                    heads.insert((rank, FlowId::clone(flow)));
                }
            }
            Self::RoundRobin(flows, _) => {
                if now.is_some() {
                    flows.insert(FlowId::clone(flow));
                } else {
                    flows.remove(flow);
                }
            }
            Self::Weighted(weighted) => weighted.set_active(flow, now.is_some()),
            Self::LeastService(_, heads) => {
                if let Some(rank) = now {
                    heads.insert(FlowId::clone(flow), rank);
                } else {
                    heads.remove(flow);
                }
            }
        }
    }

    /// Whose turn it is.
    #[must_use]
    pub fn next(&self, now_ms: u64) -> Option<FlowId> {
        match self {
            Self::GlobalStrict(heads) => heads.first().map(|(_, flow)| FlowId::clone(flow)),
            Self::RoundRobin(flows, last) => {
                use std::ops::Bound::{Excluded, Unbounded};
                let after =
                    |last: &FlowId| flows.range((Excluded(FlowId::clone(last)), Unbounded)).next();
                last.as_ref().and_then(after).or_else(|| flows.first()).cloned()
            }
            Self::Weighted(weighted) => weighted.next(),
            Self::LeastService(service, heads) => service.next(heads, now_ms),
        }
    }

    /// A request of the flow is dispatched, at this estimate of its tokens. To be told before the flow's head changes.
    pub fn dispatched(&mut self, flow: &FlowId, tokens: u64) {
        match self {
            Self::RoundRobin(_, last) => *last = Some(FlowId::clone(flow)),
            Self::Weighted(weighted) => weighted.charge(flow, tokens),
            Self::GlobalStrict(_) | Self::LeastService(..) => {}
        }
    }

    /// A dispatched request is over: what it used of what was estimated.
    pub fn settled(&mut self, flow: &FlowId, estimate: u64, usage: Usage, now_ms: u64) {
        match self {
            Self::Weighted(weighted) => weighted.correct(flow, estimate, usage.tokens()),
            Self::LeastService(service, _) => service.add(flow, usage, now_ms),
            Self::GlobalStrict(_) | Self::RoundRobin(..) => {}
        }
    }

    /// The regular work: what need not be known of idle flows any more is forgotten.
    pub fn forget_idle(&mut self, now_ms: u64) {
        match self {
            Self::Weighted(weighted) => weighted.forget_idle(),
            Self::LeastService(service, heads) => service.forget_idle(heads, now_ms),
            Self::GlobalStrict(_) | Self::RoundRobin(..) => {}
        }
    }
}
