//! Some workers and their dispatcher with queues between them; every message goes through its bytes.

use crate::flow_control::dispatcher::{Dispatcher, PoolControl};
use crate::flow_control::policy::saturation::{EndpointLoad, Role};
use crate::flow_control::protocol::{DropReason, FromWorker, PoolKey, Request, ToWorker, Usage};
use crate::flow_control::worker::{Admission, Event, Ticket, TimeToLive, Worker};
use std::collections::{BTreeMap, VecDeque};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::flow::{Band, BandLimits, FlowControl};
use warmroute_shared_state::policy::plugin::{
    ConcurrencyDetector, ConcurrencyMode, Detector, Fairness, UsageLimit,
};

pub(super) const POOL: PoolKey = PoolKey(7);
pub(super) const FOR_EVER: TimeToLive = TimeToLive { request_ms: 0, no_endpoint_ms: 0 };

/// A pool of one endpoint with so many places.
pub(crate) fn control(places: u64, fairness: Fairness) -> FlowControl {
    let limits = BandLimits { fairness, ..BandLimits::default() };
    FlowControl {
        scheduler: 0,
        max_bytes: 0,
        max_requests: 0,
        request_ttl_ms: 60_000,
        no_endpoint_ttl_ms: 60_000,
        bands: vec![Band { priority: 0, limits: limits.clone() }],
        default_band: limits,
        default_negative_band: None,
        detector: Detector::Concurrency(ConcurrencyDetector {
            mode: ConcurrencyMode::Requests,
            max_concurrency: places,
            max_token_concurrency: u64::MAX,
            headroom: 0.0,
        }),
        usage_limit: UsageLimit::Static { threshold: 1.0 },
        eviction: false,
    }
}

pub(super) fn endpoint(id: u64) -> EndpointLoad {
    EndpointLoad {
        id: EndpointId(id),
        role: Role::Decode,
        waiting: None,
        kv_usage: None,
        scraped_ms: None,
    }
}

pub(super) fn request(flow: &str, priority: i32, since_ms: u64) -> Request {
    Request {
        pool: POOL,
        priority,
        flow: flow.to_owned(),
        tokens: 10,
        bytes: 100,
        since_ms,
        deadline_ms: u64::MAX,
        slo_ms: u64::MAX,
        budgets: Vec::new(),
    }
}

/// What happened to a request, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Went,
    Refused(DropReason),
    Evicted,
}

pub(super) struct Fleet {
    pub(super) now_ms: u64,
    pub(super) epoch: u64,
    pub(super) control: FlowControl,
    pub(super) objectives: Vec<i32>,
    pub(super) endpoints: Vec<EndpointLoad>,
    pub(super) dispatcher: Option<Dispatcher>,
    pub(super) workers: Vec<(u64, Worker)>,
    next_incarnation: u64,
    next_context: u32,
    to_dispatcher: VecDeque<Vec<u8>>,
    to_workers: VecDeque<(u64, Vec<u8>)>,
    /// Names of requests by worker and context.
    names: BTreeMap<(u64, u32), String>,
    tickets: BTreeMap<String, (u64, Ticket)>,
    /// What happened since it was last asked.
    pub(super) fates: Vec<(String, Fate)>,
    /// Events as they came.
    pub(super) events: Vec<(String, Event)>,
    /// Messages that went either way.
    pub(super) messages: usize,
}

impl Fleet {
    pub(super) fn new(workers: usize, control: FlowControl) -> Self {
        let mut fleet = Self {
            now_ms: 1_000_000,
            epoch: 0,
            control,
            objectives: Vec::new(),
            endpoints: vec![endpoint(1)],
            dispatcher: None,
            workers: Vec::new(),
            next_incarnation: 1,
            next_context: 1,
            to_dispatcher: VecDeque::new(),
            to_workers: VecDeque::new(),
            names: BTreeMap::new(),
            tickets: BTreeMap::new(),
            fates: Vec::new(),
            events: Vec::new(),
            messages: 0,
        };
        (0..workers).for_each(|_| fleet.add_worker());
        fleet.start_dispatcher();
        fleet.settle();
        fleet
    }

    pub(super) fn add_worker(&mut self) {
        let incarnation = self.next_incarnation;
        self.next_incarnation += 1;
        self.workers.push((incarnation, Worker::new(incarnation)));
    }

    /// In the VM of the first worker.
    pub(super) fn start_dispatcher(&mut self) {
        self.epoch += 1;
        self.to_dispatcher.clear();
        let live: Vec<u64> = self.workers.iter().map(|(incarnation, _)| *incarnation).collect();
        let own = live.first().copied().unwrap_or_default();
        self.dispatcher = Some(Dispatcher::new(self.epoch, own, &live, self.now_ms));
        self.configure();
    }

    pub(super) fn configure(&mut self) {
        let control = PoolControl {
            pool: POOL,
            flow: self.control.clone(),
            objectives: self.objectives.clone(),
        };
        let (now_ms, endpoints) = (self.now_ms, self.endpoints.clone());
        let dispatcher = self.dispatcher();
        dispatcher.configure(&[control], now_ms);
        dispatcher.set_endpoints(POOL, &endpoints, now_ms);
    }

    pub(super) fn dispatcher(&mut self) -> &mut Dispatcher {
        self.dispatcher.as_mut().unwrap()
    }

    /// The worker's VM traps: it, its streams and what was on its way to it are gone.
    pub(super) fn lose_worker(&mut self, at: usize) {
        let (incarnation, _) = self.workers.remove(at);
        self.names.retain(|(owner, _), _| *owner != incarnation);
        self.tickets.retain(|_, (owner, _)| *owner != incarnation);
    }

    fn collect(&mut self) {
        for (_, worker) in &mut self.workers {
            let messages = worker.take_messages();
            self.to_dispatcher.extend(messages.iter().map(FromWorker::encode));
        }
        if let Some(dispatcher) = &mut self.dispatcher {
            let messages = dispatcher.take_messages();
            self.to_workers.extend(messages.iter().map(|m| (m.incarnation, m.encode())));
        }
    }

    /// Delivers the first message to the dispatcher.
    pub(super) fn step_dispatcher(&mut self) -> bool {
        self.collect();
        if self.dispatcher.is_none() {
            return false;
        }
        let Some(bytes) = self.to_dispatcher.pop_front() else { return false };
        self.messages += 1;
        let now_ms = self.now_ms;
        self.dispatcher().on_message(FromWorker::decode(&bytes).unwrap(), now_ms);
        true
    }

    /// Delivers the first message to the worker of this incarnation, or to any.
    pub(super) fn step_worker(&mut self, only: Option<u64>) -> bool {
        self.collect();
        let at = self.to_workers.iter().position(|(to, _)| only.is_none_or(|only| only == *to));
        let Some((to, bytes)) = at.and_then(|at| self.to_workers.remove(at)) else { return false };
        self.messages += 1;
        let now_ms = self.now_ms;
        let worker = self.workers.iter_mut().find(|(incarnation, _)| *incarnation == to);
        if let Some((_, worker)) = worker {
            let events = worker.on_message(ToWorker::decode(&bytes).unwrap(), now_ms);
            self.note(to, events);
        }
        true
    }

    /// Drops the first message to the dispatcher, or to a worker.
    pub(super) fn lose_message(&mut self, to_dispatcher: bool) {
        self.collect();
        if to_dispatcher {
            self.to_dispatcher.pop_front();
        } else {
            self.to_workers.pop_front();
        }
    }

    fn note(&mut self, incarnation: u64, events: Vec<Event>) {
        for event in events {
            let (context, fate) = match &event {
                Event::Granted { context, .. } => (*context, Fate::Went),
                Event::Refused { context, refused } => (*context, Fate::Refused(refused.reason())),
                Event::Evicted { context } => (*context, Fate::Evicted),
            };
            let Some(name) = self.names.get(&(incarnation, context)).cloned() else {
                panic!("an event for nobody: {event:?}");
            };
            self.fates.push((name.clone(), fate));
            self.events.push((name, event));
        }
    }

    /// Delivers everything.
    pub(super) fn settle(&mut self) {
        while self.step_dispatcher() || self.step_worker(None) {}
    }

    pub(super) fn send(&mut self, worker: usize, name: &str, request: Request) {
        self.send_with(worker, name, request, FOR_EVER);
        self.settle();
    }

    pub(super) fn send_with(
        &mut self,
        worker: usize,
        name: &str,
        request: Request,
        ttl: TimeToLive,
    ) {
        let (context, now_ms) = (self.next_context, self.now_ms);
        self.next_context += 1;
        let (incarnation, worker) = &mut self.workers[worker];
        self.names.insert((*incarnation, context), name.to_owned());
        match worker.acquire(request, context, ttl, now_ms) {
            Admission::Admitted(ticket) => {
                self.fates.push((name.to_owned(), Fate::Went));
                self.tickets.insert(name.to_owned(), (*incarnation, ticket));
            }
            Admission::Parked(ticket) => {
                self.tickets.insert(name.to_owned(), (*incarnation, ticket));
            }
            Admission::Refused(refused) => {
                self.fates.push((name.to_owned(), Fate::Refused(refused.reason())));
            }
        }
    }

    fn owner(&mut self, name: &str) -> Option<(&mut Worker, Ticket)> {
        let (owner, ticket) = self.tickets.remove(name)?;
        let worker = self.workers.iter_mut().find(|(incarnation, _)| *incarnation == owner)?;
        Some((&mut worker.1, ticket))
    }

    pub(super) fn place(&mut self, name: &str, endpoints: &[EndpointId]) {
        let (owner, ticket) = self.tickets[name];
        let worker = self.workers.iter_mut().find(|(incarnation, _)| *incarnation == owner);
        worker.unwrap().1.placed(ticket, endpoints);
        self.settle();
    }

    pub(super) fn release_with(&mut self, name: &str, usage: Usage, charged: Option<u64>) {
        let now_ms = self.now_ms;
        if let Some((worker, ticket)) = self.owner(name) {
            worker.release(ticket, usage, charged, now_ms);
        }
    }

    pub(super) fn release(&mut self, name: &str) {
        self.release_with(name, Usage { prompt: 5, completion: 5 }, Some(10));
        self.settle();
    }

    pub(super) fn cancel(&mut self, name: &str) {
        if let Some((worker, ticket)) = self.owner(name) {
            worker.cancel(ticket);
        }
    }

    /// So much time passes, with ticks every 50 ms.
    pub(super) fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while self.now_ms < until {
            self.now_ms = (self.now_ms + 50).min(until);
            self.tick();
            self.settle();
        }
    }

    /// One tick of everybody, at this moment.
    pub(super) fn tick(&mut self) {
        let (now_ms, empty) = (self.now_ms, self.endpoints.is_empty());
        for at in 0..self.workers.len() {
            let (incarnation, worker) = &mut self.workers[at];
            let (incarnation, events) = (*incarnation, worker.tick(|_| empty, now_ms));
            self.note(incarnation, events);
        }
        if let Some(dispatcher) = &mut self.dispatcher {
            dispatcher.tick(now_ms);
        }
    }

    /// Who went since it was last asked.
    pub(super) fn went(&mut self) -> Vec<String> {
        let went = |(name, fate): (String, Fate)| (fate == Fate::Went).then_some(name);
        std::mem::take(&mut self.fates).into_iter().filter_map(went).collect()
    }

    pub(super) fn take_fates(&mut self) -> Vec<(String, Fate)> {
        std::mem::take(&mut self.fates)
    }

    /// Requests that workers hold: the truth.
    pub(super) fn held(&self) -> usize {
        self.workers.iter().map(|(_, worker)| worker.held()).sum()
    }

    pub(super) fn parked(&self) -> usize {
        self.workers.iter().map(|(_, worker)| worker.parked()).sum()
    }

    /// What the dispatcher counts as in flight and waiting.
    pub(super) fn counted(&mut self) -> (u64, u64) {
        let now_ms = self.now_ms;
        let view = self.dispatcher().pools(now_ms).next().unwrap();
        (view.in_flight, view.waiting)
    }
}
