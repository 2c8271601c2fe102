//! The engine with its clock and with the owners of its requests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

use super::clock::SimClock;
use super::{SimConfig, lock, unix_now};
use crate::engine::events::EventSink;
use crate::engine::stats::Stats;
use crate::engine::{Engine, FinishReason, Gauges, OutputKind, RequestId, Submission, SubmitError};

/// What a request's owner hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// A token of one of its prompts' answers; for owners that want the end only, the last one.
    Token {
        /// Which prompt of the request.
        choice: usize,
        /// Position in the answer.
        index: usize,
        /// Prompt tokens that came from the cache.
        cached: usize,
        /// Set on the last token.
        finish: Option<FinishReason>,
    },
    /// The engine is gone.
    Gone(Ending),
}

/// How requests in flight end when their engine goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// An error event and a clean end.
    ErrorEvent,
    /// The connection is closed with the answer unfinished.
    Cut,
    /// Nothing at all: no data, no end, until the client goes away.
    Silence,
}

struct Owner {
    to: mpsc::UnboundedSender<Heard>,
    choice: usize,
    every_token: bool,
}

struct Inner {
    engine: Engine,
    clock: SimClock,
    created: f64,
    owners: HashMap<RequestId, Owner>,
    // Requests whose answers stay open for ever; holding the sender keeps them so.
    silenced: Vec<Owner>,
    served: u64,
}

/// State of a moment, for `/metrics` and `/state`.
pub struct Snapshot {
    /// Gauges of the engine.
    pub gauges: Gauges,
    /// Its counters.
    pub stats: Stats,
    /// Unix time of its start.
    pub created: f64,
    /// Requests it finished.
    pub served: u64,
}

/// Engine, clock and owners behind one lock, held only for as long as the engine computes.
pub struct Core {
    inner: Mutex<Inner>,
    /// The engine's next event may have changed.
    changed: Notify,
    /// The last request in flight ended.
    idle: Notify,
    next_id: AtomicU64,
    retired: AtomicBool,
}

impl Core {
    pub(super) fn new(config: &SimConfig, events: Box<dyn EventSink>) -> Self {
        Self {
            inner: Mutex::new(Inner::new(config, events)),
            changed: Notify::new(),
            idle: Notify::new(),
            next_id: AtomicU64::new(1),
            retired: AtomicBool::new(false),
        }
    }

    /// Ends the driver: the replica is gone for good.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// A name for a new request.
    pub fn next_id(&self) -> RequestId {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands a request to the engine; `to` hears about it. The channel needs no bound of its own: it
    /// holds at most one message per planned token. Returns what was cached on arrival.
    pub fn submit(
        &self,
        submission: Submission,
        choice: usize,
        every_token: bool,
        to: mpsc::UnboundedSender<Heard>,
    ) -> Result<usize, SubmitError> {
        let mut inner = lock(&self.inner);
        let id = submission.id;
        inner.owners.insert(id, Owner { to, choice, every_token });
        let now = inner.clock.at(Instant::now());
        let result = inner.engine.submit(now, submission);
        if result.is_err() {
            inner.owners.remove(&id);
        }
        self.after(&mut inner);
        result
    }

    /// Frees what a request holds, at once.
    pub fn cancel(&self, id: RequestId) {
        let mut inner = lock(&self.inner);
        if inner.owners.remove(&id).is_some() {
            let now = inner.clock.at(Instant::now());
            inner.engine.cancel(now, id);
            self.after(&mut inner);
        }
    }

    /// See [`Engine::occupy`].
    pub fn occupy(&self, fraction: f64) -> usize {
        let mut inner = lock(&self.inner);
        let held = inner.engine.occupy(fraction);
        self.after(&mut inner);
        held
    }

    /// See [`Engine::reset_prefix_cache`].
    pub fn reset_prefix_cache(&self) -> bool {
        lock(&self.inner).engine.reset_prefix_cache()
    }

    /// Stops or resumes the engine's time.
    pub fn set_paused(&self, paused: bool) {
        lock(&self.inner).clock.set_paused(paused, Instant::now());
        self.changed.notify_one();
    }

    /// A cold engine in place of the present one, whose requests end as told. It tells `events` of
    /// its cache.
    pub fn replace_engine(&self, config: &SimConfig, events: Box<dyn EventSink>, ending: Ending) {
        let mut inner = lock(&self.inner);
        let mut old = std::mem::replace(&mut *inner, Inner::new(config, events));
        for (_, owner) in old.owners.drain() {
            if ending == Ending::Silence {
                inner.silenced.push(owner);
            } else {
                // A receiver that is gone has nobody left to tell.
                let _ = owner.to.send(Heard::Gone(ending));
            }
        }
        for owner in old.silenced {
            if ending == Ending::Silence {
                inner.silenced.push(owner);
            } else {
                let _ = owner.to.send(Heard::Gone(Ending::Cut));
            }
        }
        self.after(&mut inner);
    }

    /// Waits until no request is in flight.
    pub async fn until_idle(&self) {
        loop {
            let idle = self.idle.notified();
            tokio::pin!(idle);
            idle.as_mut().enable();
            if lock(&self.inner).owners.is_empty() {
                return;
            }
            idle.await;
        }
    }

    /// State of the moment.
    pub fn snapshot(&self) -> Snapshot {
        let inner = lock(&self.inner);
        Snapshot {
            gauges: inner.engine.gauges(),
            stats: inner.engine.stats().clone(),
            created: inner.created,
            served: inner.served,
        }
    }

    /// Delivers what the engine put out, and wakes who waits for a change.
    fn after(&self, inner: &mut Inner) {
        inner.deliver();
        if inner.owners.is_empty() {
            self.idle.notify_waiters();
        }
        self.changed.notify_one();
    }

    /// Runs the engine up to the present; returns when it wants to run again.
    fn advance(&self) -> Option<Instant> {
        let mut inner = lock(&self.inner);
        let now = inner.clock.at(Instant::now());
        inner.engine.advance(now);
        inner.deliver();
        if inner.owners.is_empty() {
            self.idle.notify_waiters();
        }
        let next = inner.engine.next_event()?;
        inner.clock.when(next)
    }
}

impl Inner {
    fn new(config: &SimConfig, events: Box<dyn EventSink>) -> Self {
        Self {
            engine: Engine::new(config.engine.clone(), events),
            clock: SimClock::new(config.time_scale, Instant::now()),
            created: unix_now(),
            owners: HashMap::new(),
            silenced: Vec::new(),
            served: 0,
        }
    }

    fn deliver(&mut self) {
        for output in self.engine.drain_outputs() {
            let OutputKind::Token { index, cached, finish } = output.kind;
            let Some(owner) = self.owners.get(&output.id) else { continue };
            if owner.every_token || finish.is_some() {
                let _ = owner.to.send(Heard::Token { choice: owner.choice, index, cached, finish });
            }
            if finish.is_some() {
                self.owners.remove(&output.id);
                self.served += 1;
            }
        }
        // A client that went away needs no more silence.
        self.silenced.retain(|owner| !owner.to.is_closed());
    }
}

/// Runs the engine whenever it has something to do, until the core is retired.
pub(super) fn spawn_driver(core: &Arc<Core>) {
    let core = Arc::clone(core);
    tokio::spawn(async move {
        while !core.retired.load(Ordering::Acquire) {
            let next = core.advance();
            let changed = core.changed.notified();
            match next {
                Some(at) => {
                    tokio::select! {
                        () = sleep_until(at) => {}
                        () = changed => {}
                    }
                }
                None => changed.await,
            }
        }
    });
}
