//! A worker's side: what waits and what is held in this VM, and what it tells the dispatcher. This is the truth.

mod announcement;
mod budgets;
mod expiry;
mod lease;

use crate::flow_control::protocol::{
    DropReason, FromWorker, Order, PoolKey, Refused, Report, Request, ToWorker, Usage,
};
use crate::quota::{Ask, Level};
use budgets::Budgets;
use lease::Lease;
use std::collections::BTreeMap;
use warmroute_shared_state::endpoint::EndpointId;

/// How often a worker shows that it lives.
const HEARTBEAT_MS: u64 = 250;

/// Requests that wait in one VM at most: what is beyond is refused at once.
const MAX_PARKED: usize = 20_000;

/// When to try again if this VM is full.
const RETRY_AFTER_MS: u64 = 1000;

/// Times to live of a pool's waiting requests, in ms; 0 = for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeToLive {
    /// While it has endpoints, since the request came.
    pub request_ms: u64,
    /// While it has none, since then or since the request came.
    pub no_endpoint_ms: u64,
}

#[derive(Debug)]
struct Parked {
    request: Request,
    context: u32,
    ttl: TimeToLive,
    reserved: bool,
}

#[derive(Debug)]
struct Held {
    request: Request,
    context: u32,
    endpoints: Vec<EndpointId>,
    dispatched_ms: u64,
}

/// A request's number in this VM: what the stream keeps to release or cancel it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// What becomes of a request at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// It may go: pick, splice, resume. [`Worker::levels`] tells of its budgets.
    Admitted(Ticket),
    /// It is paused until an [`Event`] names it.
    Parked(Ticket),
    /// Too many wait in this VM.
    Refused(Refused),
}

/// What a waiting or running request is told. `context` is the one given with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It may go: pick, splice, resume.
    Granted {
        /// Whose stream.
        context: u32,
        /// Its ticket: from now on it is to be released.
        ticket: Ticket,
        /// How long it waited.
        waited_ms: u64,
    },
    /// It may not: answer it. Its ticket is void.
    Refused {
        /// Whose stream.
        context: u32,
        /// Why.
        refused: Refused,
    },
    /// It is to be ended with [`DropReason::Evicted`] and released, as ever, when it is over.
    Evicted {
        /// Whose stream.
        context: u32,
    },
}

/// Flow control in one VM incarnation.
#[derive(Debug)]
pub struct Worker {
    incarnation: u64,
    /// The dispatcher that is obeyed; 0: none has spoken yet.
    epoch: u64,
    sequence: u64,
    /// Number of the dispatcher's last message; 0 after a gap.
    received: u64,
    next_number: u64,
    parked: BTreeMap<u64, Parked>,
    held: BTreeMap<u64, Held>,
    leases: BTreeMap<PoolKey, Lease>,
    budgets: Budgets,
    /// Since when pools have no endpoint.
    empty_since_ms: BTreeMap<PoolKey, u64>,
    /// When it was last looked who has waited for too long.
    expired_ms: u64,
    beat_ms: Option<u64>,
    outbox: Vec<FromWorker>,
}

impl Worker {
    /// A VM incarnation, unique and not 0, with nothing in it.
    #[must_use]
    pub fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            epoch: 0,
            sequence: 0,
            received: 0,
            next_number: 1,
            parked: BTreeMap::new(),
            held: BTreeMap::new(),
            leases: BTreeMap::new(),
            budgets: Budgets::default(),
            empty_since_ms: BTreeMap::new(),
            expired_ms: 0,
            beat_ms: None,
            outbox: Vec::new(),
        }
    }

    /// May this request of the stream `context` go? `request.pool` is [`PoolKey::NONE`] if its pool has no flow
    /// control; without budgets, too, there is no need to ask.
    pub fn acquire(
        &mut self,
        request: Request,
        context: u32,
        ttl: TimeToLive,
        now_ms: u64,
    ) -> Admission {
        let request = request.bounded();
        let number = self.next_number;
        self.next_number = self.next_number.wrapping_add(1);
        if self.take_lease(&request, now_ms) {
            self.say(Report::Admitted { number, request: request.clone() });
            let held = Held { request, context, endpoints: Vec::new(), dispatched_ms: now_ms };
            self.held.insert(number, held);
            return Admission::Admitted(Ticket(number));
        }
        if self.parked.len() >= MAX_PARKED {
            let (reason, retry_after_ms) = (DropReason::Saturated, RETRY_AFTER_MS);
            return Admission::Refused(Refused::Queue { reason, retry_after_ms });
        }
        self.say(Report::Acquire { number, request: request.clone() });
        let parked = Parked { request, context, ttl, reserved: false };
        self.parked.insert(number, parked);
        Admission::Parked(Ticket(number))
    }

    /// All that it needs, of what was leased; or nothing.
    fn take_lease(&mut self, request: &Request, now_ms: u64) -> bool {
        let controlled = request.pool != PoolKey::NONE;
        let budgets = self.budgets.has(&request.budgets, now_ms);
        let mut lease = self.leases.get_mut(&request.pool);
        let slot =
            lease.as_mut().is_some_and(|lease| budgets && lease.take(request.tokens, now_ms));
        let all = budgets && (slot || !controlled);
        if all {
            self.budgets.use_lent(&request.budgets);
        }
        all
    }

    /// It went to these endpoints. Only where
    /// [`places_matter`](crate::flow_control::dispatcher::places_matter).
    pub fn placed(&mut self, ticket: Ticket, endpoints: &[EndpointId]) {
        if let Some(held) = self.held.get_mut(&ticket.0) {
            held.endpoints = endpoints.to_vec();
            self.say(Report::Placed { number: ticket.0, endpoints: endpoints.to_vec() });
        }
    }

    /// An admitted or granted request is over, however it ended: once for each. `usage` counts for the shares;
    /// `charged` tokens for its tenant's budgets, `None` if it was never sent to an engine.
    pub fn release(&mut self, ticket: Ticket, usage: Usage, charged: Option<u64>, now_ms: u64) {
        let Some(held) = self.held.remove(&ticket.0) else { return };
        self.budgets.settled(&held.request.budgets, charged, now_ms);
        self.say(Report::Release { number: ticket.0, usage, charged });
    }

    /// The stream of a parked request is gone, or the filter answers it itself.
    pub fn cancel(&mut self, ticket: Ticket) {
        if self.parked.remove(&ticket.0).is_some() {
            self.say(Report::Cancel { number: ticket.0 });
        }
    }

    /// A message of the dispatcher.
    pub fn on_message(&mut self, message: ToWorker, now_ms: u64) -> Vec<Event> {
        let ToWorker { epoch, incarnation, sequence, order } = message;
        if incarnation != self.incarnation || epoch < self.epoch {
            return Vec::new();
        }
        if let Order::AnnounceRequest { nonce } = order {
            self.epoch = epoch;
            self.received = sequence;
            self.announce(nonce);
            return Vec::new();
        }
        if epoch != self.epoch {
            return Vec::new();
        }
        if self.received != 0 && sequence != self.received.wrapping_add(1) {
            // It stays at 0 until an announcement was asked for.
            self.received = 0;
            self.heartbeat(now_ms);
        } else if self.received != 0 {
            self.received = sequence;
        }
        match order {
            Order::Grant { number, levels } => self.on_grant(number, &levels, now_ms),
            Order::Waits { number, levels } => {
                self.budgets.heard(&levels, now_ms);
                if let Some(parked) = self.parked.get_mut(&number) {
                    parked.reserved = true;
                }
                Vec::new()
            }
            Order::Refuse { number, refused } => {
                let parked = self.parked.remove(&number);
                let refuse = |p: Parked| Event::Refused { context: p.context, refused };
                parked.map(refuse).into_iter().collect()
            }
            Order::Evict { number } => {
                let held = self.held.get(&number);
                held.map(|held| Event::Evicted { context: held.context }).into_iter().collect()
            }
            Order::Lease { pool, slots, tokens, until_ms } => {
                self.leases.entry(pool).or_default().add(slots, tokens, until_ms);
                Vec::new()
            }
            Order::LeaseBudgets { lent, levels, until_ms } => {
                self.budgets.lent(&lent, until_ms);
                self.budgets.heard(&levels, now_ms);
                Vec::new()
            }
            Order::Levels { levels } => {
                self.budgets.heard(&levels, now_ms);
                Vec::new()
            }
            Order::Recall { pools, budgets } => {
                let rest = |pool: PoolKey| {
                    let (slots, tokens) =
                        self.leases.remove(&pool).map(|lease| lease.rest()).unwrap_or_default();
                    (pool, slots, tokens)
                };
                let pools = pools.into_iter().map(rest).collect();
                let budgets = self.budgets.take_lent(&budgets);
                self.say(Report::Return { pools, budgets });
                Vec::new()
            }
            Order::AnnounceRequest { .. } => Vec::new(),
        }
    }

    fn on_grant(&mut self, number: u64, told: &[Level], now_ms: u64) -> Vec<Event> {
        self.budgets.heard(told, now_ms);
        let Some(Parked { request, context, .. }) = self.parked.remove(&number) else {
            if !self.held.contains_key(&number) {
                // Its stream is gone.
                let (usage, charged) = (Usage::default(), None);
                self.say(Report::Release { number, usage, charged });
            }
            return Vec::new();
        };
        let waited_ms = now_ms.saturating_sub(request.since_ms);
        let held = Held { request, context, endpoints: Vec::new(), dispatched_ms: now_ms };
        self.held.insert(number, held);
        vec![Event::Granted { context, ticket: Ticket(number), waited_ms }]
    }

    /// The regular work, at least every 100 ms or so: heartbeat, leases that are over, requests that waited for too
    /// long. `is_empty`: whether a pool has no endpoint. Messages are to be read before.
    pub fn tick(&mut self, is_empty: impl Fn(PoolKey) -> bool, now_ms: u64) -> Vec<Event> {
        if self.beat_ms.is_none_or(|at_ms| now_ms.abs_diff(at_ms) >= HEARTBEAT_MS) {
            self.heartbeat(now_ms);
            self.budgets.forget_full(now_ms);
        }
        let over = self.leases.extract_if(.., |_, lease| lease.is_over(now_ms));
        let rest = |(pool, lease): (PoolKey, Lease)| {
            let (slots, tokens) = lease.rest();
            (pool, slots, tokens)
        };
        let pools: Vec<_> = over.map(rest).collect();
        let budgets = self.budgets.take_over(now_ms);
        if !pools.is_empty() || !budgets.is_empty() {
            self.say(Report::Return { pools, budgets });
        }
        self.expire(is_empty, now_ms)
    }

    fn heartbeat(&mut self, now_ms: u64) {
        self.beat_ms = Some(now_ms);
        self.say(Report::Heartbeat { received: self.received });
    }

    fn say(&mut self, report: Report) {
        self.sequence = self.sequence.wrapping_add(1);
        let (epoch, incarnation, sequence) = (self.epoch, self.incarnation, self.sequence);
        self.outbox.push(FromWorker { epoch, incarnation, sequence, report });
    }

    /// Messages to be sent now. To be asked for after every call that changes something.
    #[must_use]
    pub fn take_messages(&mut self) -> Vec<FromWorker> {
        std::mem::take(&mut self.outbox)
    }

    /// Requests that wait here.
    #[must_use]
    pub fn parked(&self) -> usize {
        self.parked.len()
    }

    /// Requests in flight from here.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// How a request's budgets stand, as far as this worker has heard.
    #[must_use]
    pub fn levels(&self, budgets: &[Ask]) -> Vec<Level> {
        self.budgets.levels(budgets)
    }
}
