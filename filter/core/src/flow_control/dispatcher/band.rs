//! Requests of one priority that wait.

use crate::flow_control::policy::fairness::{FlowId, Turns};
use crate::flow_control::policy::ordering::Rank;
use crate::flow_control::protocol::{Request, TicketId, Usage};
use std::collections::BTreeMap;
use std::rc::Rc;
use warmroute_shared_state::policy::flow::BandLimits;

/// A band: its flows' queues, and whose turn it is.
#[derive(Debug)]
pub(super) struct Band {
    limits: BandLimits,
    turns: Turns,
    flows: BTreeMap<FlowId, BTreeMap<Rank, Rc<Request>>>,
    requests: u64,
    bytes: u64,
}

impl Band {
    pub(super) fn new(limits: BandLimits) -> Self {
        let turns = Turns::new(&limits.fairness);
        Self { limits, turns, flows: BTreeMap::new(), requests: 0, bytes: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests == 0
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether more waits than may.
    pub(super) fn overflows(&self) -> bool {
        let default = BandLimits::default();
        let or = |limit: u64, default: u64| if limit == 0 { default } else { limit };
        self.requests > or(self.limits.max_requests, default.max_requests)
            || self.bytes > or(self.limits.max_bytes, default.max_bytes)
    }

    fn rank(&self, id: TicketId, request: &Request) -> Rank {
        Rank::of(self.limits.ordering, id, request)
    }

    pub(super) fn push(&mut self, id: TicketId, request: Rc<Request>) {
        let rank = self.rank(id, &request);
        let flow = FlowId::from(request.flow.as_str());
        let queue = self.flows.entry(FlowId::clone(&flow)).or_default();
        let before = queue.keys().next().copied();
        let bytes = request.bytes;
        if let Some(double) = queue.insert(rank, request) {
            self.requests = self.requests.saturating_sub(1);
            self.bytes = self.bytes.saturating_sub(double.bytes);
        }
        let head = queue.keys().next().copied();
        self.requests = self.requests.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        if head != before {
            self.turns.head_changed(&flow, before, head);
        }
    }

    /// Takes a request out that goes nowhere. `like` is as it was pushed.
    pub(super) fn remove(&mut self, id: TicketId, like: &Request) -> Option<Rc<Request>> {
        let rank = self.rank(id, like);
        self.take(&FlowId::from(like.flow.as_str()), rank)
    }

    /// Takes the request whose turn it is, and charges its flow.
    pub(super) fn pop(&mut self, now_ms: u64) -> Option<(TicketId, Rc<Request>)> {
        let flow = self.turns.next(now_ms)?;
        let rank = *self.flows.get(&flow)?.keys().next()?;
        let tokens = self.flows.get(&flow)?.get(&rank)?.tokens;
        self.turns.dispatched(&flow, tokens);
        self.take(&flow, rank).map(|request| (rank.id, request))
    }

    fn take(&mut self, flow: &FlowId, rank: Rank) -> Option<Rc<Request>> {
        let queue = self.flows.get_mut(flow)?;
        let before = queue.keys().next().copied();
        let request = queue.remove(&rank)?;
        let head = queue.keys().next().copied();
        if head.is_none() {
            self.flows.remove(flow);
        }
        if head != before {
            self.turns.head_changed(flow, before, head);
        }
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(request.bytes);
        Some(request)
    }

    /// A request of this band went without waiting here.
    pub(super) fn admitted(&mut self, request: &Request) {
        self.turns.dispatched(&FlowId::from(request.flow.as_str()), request.tokens);
    }

    pub(super) fn settled(&mut self, request: &Request, usage: Usage, now_ms: u64) {
        self.turns.settled(&FlowId::from(request.flow.as_str()), request.tokens, usage, now_ms);
    }

    pub(super) fn forget_idle(&mut self, now_ms: u64) {
        self.turns.forget_idle(now_ms);
    }

    /// All that waits.
    pub(super) fn drain(&mut self) -> Vec<(TicketId, Rc<Request>)> {
        self.requests = 0;
        self.bytes = 0;
        let flows = std::mem::take(&mut self.flows);
        self.turns = Turns::new(&self.limits.fairness);
        let all = flows.into_values().flatten();
        all.map(|(rank, request)| (rank.id, request)).collect()
    }
}
