//! The one thread that turns batches into byte blocks and hands them to the stream.
//!
//! It owns every index, so nothing is locked while events are read, and it takes in whatever has
//! queued up before it tells the readers: at high rates they are woken per round, not per batch.

use super::completeness::Completeness;
use super::decode;
use super::event::Event;
use super::inbox::{Following, Message, News, Order, Report, SourceId};
use super::models::Models;
use super::tally::{Tally, bump};
use crate::fleet::Shared;
use crate::kv_index::{Changes, Counters, Index, Limits};
use crate::publish::held::{self, Period};
use crate::publish::table::Table;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::{info, warn};
use warmroute_shared_state::block::Tier;
use warmroute_shared_state::endpoint::EndpointId;

/// Messages of one round at most: readers are not kept waiting for the end of a flood.
const ROUND: usize = 256;

/// Takes messages until nobody sends any more.
pub fn run(shared: &Shared, mut inbox: mpsc::Receiver<Message>) {
    let mut worker = Worker::default();
    while let Some(message) = inbox.blocking_recv() {
        worker.take(message, shared);
        for _ in 1..ROUND {
            let Ok(message) = inbox.try_recv() else { break };
            worker.take(message, shared);
        }
        worker.tell(shared);
    }
}

/// Models, and what is known of every endpoint that is followed.
#[derive(Default)]
pub struct Worker {
    models: Models,
    endpoints: HashMap<EndpointId, Endpoint>,
    /// Whose state changed in this round.
    touched: BTreeSet<EndpointId>,
    learned: bool,
    changes: Changes,
}

struct Endpoint {
    following: Following,
    index: Index,
    /// Ranks that are connected and miss nothing.
    whole: BTreeSet<u16>,
    /// The model that topics name.
    topic: Option<Arc<str>>,
    /// What the stream was told of following; `None` while the endpoint is not precise.
    told: Option<Told>,
    counted: Counters,
    tally: Tally,
    completeness: Completeness,
    /// When the first batch of this round was made, in ms since 1970.
    first_at_ms: u64,
    last_batch: Option<f64>,
}

struct Told {
    period: Period,
    lower_tier: bool,
}

impl Worker {
    /// Takes in one message. What changes is told with [`Self::tell`].
    pub fn take(&mut self, message: Message, shared: &Shared) {
        match message {
            Message::Order(Order::Models(models)) => {
                self.models.set(models);
                self.learned = true;
            }
            Message::Order(Order::Follow(following)) => self.follow(following, shared),
            Message::Order(Order::Forget(id)) => self.forget(id, shared),
            Message::Report(Report { source, news }) => self.hear(source, news),
        }
    }

    fn follow(&mut self, following: Following, shared: &Shared) {
        let id = following.endpoint;
        // What was told in an earlier following is void before the first event of this one.
        if let Some(before) = self.endpoints.remove(&id)
            && before.told.is_some()
        {
            shared.publisher.update(|table| table.end(id));
        }
        self.endpoints.insert(id, Endpoint::new(following));
        self.touched.insert(id);
    }

    fn forget(&mut self, id: EndpointId, shared: &Shared) {
        if let Some(endpoint) = self.endpoints.remove(&id) {
            shared.metrics.kv_events.forget(&endpoint.following.name);
            if endpoint.told.is_some() {
                shared.publisher.update(|table| table.end(id));
            }
        }
    }

    fn hear(&mut self, source: SourceId, news: News) {
        let of_now = |e: &&mut Endpoint| e.following.incarnation == source.incarnation;
        // Else of a source that is gone: perhaps of another engine at the same address.
        let Some(endpoint) = self.endpoints.get_mut(&source.endpoint).filter(of_now) else {
            return;
        };
        self.touched.insert(source.endpoint);
        let rank = u32::from(source.rank);
        match news {
            News::Begin => endpoint.forget(source.rank),
            News::Batch { payload, model, space } => {
                if model.is_some() {
                    endpoint.topic = model;
                }
                self.learned |= endpoint.apply(rank, &payload, &mut self.models);
                drop(space);
            }
            News::Void { cause, same_engine } => {
                endpoint.tally.void(cause);
                if same_engine {
                    endpoint.index.lose(rank);
                } else {
                    endpoint.clear(rank);
                }
            }
            News::Count(note) => endpoint.tally.note(note),
            News::Malformed => bump(&mut endpoint.tally.malformed),
            News::Whole { model } => {
                if model.is_some() {
                    endpoint.topic = model;
                }
                endpoint.whole.insert(source.rank);
            }
            News::ForeignTopic => {
                bump(&mut endpoint.tally.foreign_topics);
                endpoint.forget(source.rank);
            }
            News::Unreachable => {
                bump(&mut endpoint.tally.unreachable);
                endpoint.forget(source.rank);
            }
        }
    }

    /// Tells the stream and the metrics what this round changed.
    pub fn tell(&mut self, shared: &Shared) {
        let Self { models, endpoints, touched, learned, changes } = self;
        if touched.is_empty() && !*learned {
            return;
        }
        shared.publisher.update(|table| {
            if std::mem::take(learned) {
                table.set_models(models.records());
            }
            for id in touched.iter() {
                if let Some(endpoint) = endpoints.get_mut(id) {
                    endpoint.tell(models, changes, table);
                }
            }
        });
        while let Some(id) = touched.pop_first() {
            if let Some(endpoint) = endpoints.get_mut(&id) {
                endpoint.count(shared);
            }
        }
    }
}

impl Endpoint {
    fn new(following: Following) -> Self {
        Self {
            following,
            index: Index::new(Limits::default()),
            whole: BTreeSet::new(),
            topic: None,
            told: None,
            counted: Counters::default(),
            tally: Tally::default(),
            completeness: Completeness::default(),
            first_at_ms: 0,
            last_batch: None,
        }
    }

    /// Nothing is known of a rank any more, nor that it will be the same engine when it is heard again.
    fn forget(&mut self, rank: u16) {
        self.whole.remove(&rank);
        self.clear(rank.into());
    }

    fn clear(&mut self, rank: u32) {
        self.index.clear_rank(rank);
        self.completeness.reset();
    }

    /// Reads a batch and takes in its events. Returns whether it told of an adapter that is new.
    fn apply(&mut self, rank: u32, payload: &[u8], models: &mut Models) -> bool {
        let Ok(batch) = decode::batch(payload) else {
            bump(&mut self.tally.unreadable);
            return false;
        };
        if batch.at.is_finite() {
            self.last_batch = Some(batch.at);
            if self.first_at_ms == 0 {
                self.first_at_ms = millis(batch.at);
            }
        }
        self.tally.undecodable =
            self.tally.undecodable.saturating_add(u64::from(batch.undecodable));
        let model = models.find(self.topic.as_deref(), self.following.model.as_deref());
        let Some(model) = model else {
            bump(&mut self.tally.without_model);
            return false;
        };
        bump(&mut self.tally.read);
        let (before, was_incomplete) = (*self.index.counters(), self.completeness.is_incomplete());
        let (mut learned, mut cleared) = (false, false);
        for event in &batch.events {
            bump(match event {
                Event::Stored(stored) => {
                    if let Some(adapter) = &stored.adapter {
                        learned |= models.learn(&model, adapter);
                    }
                    &mut self.tally.stored
                }
                Event::Removed(_) => &mut self.tally.removed,
                Event::Cleared => {
                    cleared = true;
                    &mut self.tally.cleared
                }
            });
            self.index.apply(rank, event, &model.context());
        }
        if cleared {
            self.completeness.reset();
        }
        let now = self.index.counters();
        self.completeness.stored(
            now.stored.saturating_sub(before.stored),
            now.orphans.saturating_sub(before.orphans),
        );
        if self.completeness.is_incomplete() && !was_incomplete {
            bump(&mut self.tally.incomplete);
            warn!(
                endpoint = self.following.name,
                "many KV events build on blocks of before the agent listened, so the endpoint is \
                 approximate until most are known"
            );
        }
        learned
    }

    /// Events come, none is missing, they can be read, and what they build on is known.
    fn is_precise(&self, models: &Models) -> bool {
        let model = || models.find(self.topic.as_deref(), self.following.model.as_deref());
        !self.whole.is_empty() && !self.completeness.is_incomplete() && model().is_some()
    }

    fn tell(&mut self, models: &Models, changes: &mut Changes, table: &mut Table) {
        let (id, at_ms) = (self.following.endpoint, std::mem::take(&mut self.first_at_ms));
        if !self.is_precise(models) {
            if self.told.take().is_some() {
                table.end(id);
                info!(endpoint = self.following.name, "KV events are not precise any more");
            }
            // What changes is not told, and need not wait until it is.
            self.index.drain(changes);
            return;
        }
        if self.told.is_none() {
            self.index.tell_anew();
        }
        self.index.drain(changes);
        let period = self.period(changes.cleared, table);
        for (tier, changes) in [(Tier::Device, &changes.device), (Tier::Any, &changes.any)] {
            if !changes.removed.is_empty() {
                table.evict(id, period, tier, at_ms, &changes.removed);
            }
            if !changes.stored.is_empty() {
                table.store(id, period, tier, at_ms, &changes.stored);
            }
        }
    }

    /// The period that what is told next belongs to. `cleared`: what was told before is void.
    fn period(&mut self, cleared: bool, table: &mut Table) -> Period {
        let id = self.following.endpoint;
        let lower_tier = self.index.has_lower_tier();
        let lower_tier_percent = if lower_tier { self.following.lower_tier_percent } else { 0 };
        let following = held::Following { precise: true, lower_tier_percent };
        let period = match &self.told {
            Some(_) if cleared => table.begin(id, following),
            Some(told) if told.lower_tier == lower_tier => return told.period,
            Some(told) => table.resume(id, told.period, following),
            None => {
                info!(endpoint = self.following.name, "KV events are precise");
                table.begin(id, following)
            }
        };
        self.told = Some(Told { period, lower_tier });
        period
    }

    fn count(&mut self, shared: &Shared) {
        let counted = *self.index.counters();
        self.tally.blocks(&self.counted, &counted);
        self.counted = counted;
        let name = &self.following.name;
        let metrics = &shared.metrics.kv_events;
        metrics.add(name, &std::mem::take(&mut self.tally));
        metrics.set(name, &self.index, self.told.is_some(), self.last_batch);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from floating point saturates"
)]
fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}

#[cfg(test)]
mod tests;
