//! All replicas of the process, and what an operator can do to them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::kv_events::faults::EventFaults;
use crate::kv_events::flood::Flood;
use crate::kv_events::source::Ports;
use crate::replica::core::Ending;
use crate::replica::faults::{
    Command, FaultName, Faults, MetricsFault, RequestFault, RequestFaultKind, Serving,
};
use crate::replica::listener::Stop;
use crate::replica::{Replica, SimConfig, lock};
use crate::sidecar::Sidecar;
use crate::tokens::Tokenizer;

/// Most replicas in one process.
pub const MAX_REPLICAS: usize = 1_024;

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// No such replica.
    #[error("there is no replica {0}; GET /state lists them")]
    NoReplica(usize),
    /// The list is full.
    #[error("the process already has {MAX_REPLICAS} replicas")]
    Full,
    /// A field makes no sense for this fault.
    #[error("{0}")]
    BadCommand(&'static str),
    /// The replica publishes no events.
    #[error("replica {0} publishes no cache events; start with --kv-events, or lift its faults")]
    NoEvents(usize),
    /// The port, or one of those for events, could not be bound.
    #[error(
        "port {port}, or one for its events, cannot be bound: {source}; choose another or wait \
         until it is free"
    )]
    Bind {
        /// Which port.
        port: u16,
        /// Why.
        source: std::io::Error,
    },
}

/// The replicas, by index. A stopped one leaves a gap, so that indexes stay what they are.
pub struct Fleet {
    config: Arc<SimConfig>,
    tokenizer: Arc<Tokenizer>,
    replicas: Mutex<Vec<Option<Arc<Replica>>>>,
    sidecars: Mutex<HashMap<usize, Sidecar>>,
    sidecar_base_port: u16,
    // Ports for events by a replica's port: a pod that takes over another's address has all of it.
    event_ports: Mutex<HashMap<u16, Ports>>,
    events_base_port: u16,
}

impl Fleet {
    /// A process without replicas yet.
    pub fn new(config: SimConfig, tokenizer: Tokenizer) -> Self {
        Self::with_event_ports(config, tokenizer, 0)
    }

    /// The same, and replica N publishes on port `base + 2N` and replays on the next; 0: on any.
    pub fn with_event_ports(config: SimConfig, tokenizer: Tokenizer, base: u16) -> Self {
        Self {
            event_ports: Mutex::new(HashMap::new()),
            events_base_port: base,
            config: Arc::new(config),
            tokenizer: Arc::new(tokenizer),
            replicas: Mutex::new(Vec::new()),
            sidecars: Mutex::new(HashMap::new()),
            sidecar_base_port: 0,
        }
    }

    /// The same, and replica N's sidecar listens on port `base + N`; 0: on any.
    pub fn sidecars_from(self, base: u16) -> Self {
        Self { sidecar_base_port: base, ..self }
    }

    /// Starts one more replica on `port` (0 for any).
    pub async fn add(&self, port: u16) -> Result<Arc<Replica>, FleetError> {
        let index = {
            let mut replicas = lock(&self.replicas);
            if replicas.len() >= MAX_REPLICAS {
                return Err(FleetError::Full);
            }
            replicas.push(None);
            replicas.len() - 1
        };
        let (config, tokenizer) = (Arc::clone(&self.config), Arc::clone(&self.tokenizer));
        let replica = Replica::start(index, port, self.ports_for(index, port), config, tokenizer)
            .await
            .map_err(|source| FleetError::Bind { port, source })?;
        if self.config.sidecars {
            let port = match (self.sidecar_base_port, u16::try_from(index).ok()) {
                (base @ 1.., Some(index)) => base.saturating_add(index),
                _ => 0,
            };
            match Sidecar::start(port, replica.addr).await {
                Ok(sidecar) => lock(&self.sidecars).insert(index, sidecar),
                Err(source) => {
                    replica.close(Stop::Abort).await;
                    replica.core().retire();
                    return Err(FleetError::Bind { port, source });
                }
            };
        }
        if let Some(ports) = replica.event_ports() {
            lock(&self.event_ports).insert(replica.addr.port(), ports);
        }
        if let Some(place) = lock(&self.replicas).get_mut(index) {
            *place = Some(Arc::clone(&replica));
        }
        Ok(replica)
    }

    fn ports_for(&self, index: usize, port: u16) -> Ports {
        if let Some(&ports) = lock(&self.event_ports).get(&port) {
            return ports;
        }
        let at = |offset| {
            let index = u16::try_from(index).ok()?;
            self.events_base_port.checked_add(index.checked_mul(2)?)?.checked_add(offset)
        };
        match (self.events_base_port, at(0), at(1)) {
            (1.., Some(events), Some(replay)) => Ports { events, replay },
            _ => Ports::default(),
        }
    }

    /// Ends a replica for good, like a killed process.
    pub async fn remove(&self, index: usize) -> Result<(), FleetError> {
        let place = lock(&self.replicas).get_mut(index).and_then(Option::take);
        let replica = place.ok_or(FleetError::NoReplica(index))?;
        drop(lock(&self.sidecars).remove(&index));
        replica.close(Stop::Abort).await;
        replica.close_source().await;
        replica.core().retire();
        Ok(())
    }

    /// Where a replica's sidecar listens, if it has one.
    pub fn sidecar(&self, index: usize) -> Option<SocketAddr> {
        lock(&self.sidecars).get(&index).map(|sidecar| sidecar.addr)
    }

    /// Those running.
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        lock(&self.replicas).iter().flatten().cloned().collect()
    }

    /// One of them.
    pub fn get(&self, index: usize) -> Result<Arc<Replica>, FleetError> {
        lock(&self.replicas).get(index).cloned().flatten().ok_or(FleetError::NoReplica(index))
    }

    /// Empties every replica's cache and counters, and releases what was occupied.
    pub fn reset(&self) {
        for replica in self.replicas() {
            replica.reset();
        }
    }

    /// Carries out a fault; returns when it is in force.
    pub async fn fault(&self, command: &Command) -> Result<(), FleetError> {
        let replica = self.get(command.replica)?;
        match command.fault {
            FaultName::None | FaultName::Restart
                if command.fault == FaultName::Restart || !replica.accepts() =>
            {
                let port = replica.addr.port();
                return replica.restart().await.map_err(|source| FleetError::Bind { port, source });
            }
            FaultName::None => {
                replica.set_faults(|faults| *faults = Faults::default());
                if let Some(line) = replica.event_line() {
                    line.set_faults(|faults| *faults = EventFaults::default());
                }
            }
            FaultName::Die => {
                replica.crash(Ending::Silence).await;
            }
            FaultName::CrashMidstream => replica.crash(Ending::ErrorEvent).await,
            FaultName::CrashMidstreamSilent => replica.crash(Ending::Cut).await,
            FaultName::Refuse => {
                replica.set_faults(|faults| faults.serving = Serving::Down);
                replica.close(Stop::Graceful).await;
            }
            FaultName::Hang => replica.set_faults(|faults| faults.serving = Serving::Hang),
            FaultName::Drain => {
                replica.set_faults(|faults| faults.serving = Serving::Drain);
                tokio::spawn(async move {
                    replica.core().until_idle().await;
                    if replica.faults().serving == Serving::Drain {
                        replica.set_faults(|faults| faults.serving = Serving::Down);
                        replica.close(Stop::Graceful).await;
                        replica.close_source().await;
                    }
                });
            }
            FaultName::Error => {
                let status = command.status.unwrap_or(503);
                if !(400..=599).contains(&status) {
                    return Err(FleetError::BadCommand("status must lie between 400 and 599"));
                }
                replica.fail_requests(RequestFaultKind::Status(status), command.count);
            }
            FaultName::Reset => {
                let kind = command
                    .after_tokens
                    .map_or(RequestFaultKind::ResetBefore, RequestFaultKind::ResetAfterTokens);
                replica.fail_requests(kind, command.count);
            }
            FaultName::EventsStop => replica.close_source().await,
            FaultName::ReplayOff => replica.close_replay().await,
            FaultName::EventsDrop | FaultName::EventsGap | FaultName::ReplaySilent => {
                let line = replica.event_line().ok_or(FleetError::NoEvents(command.replica))?;
                let count = command.count.unwrap_or(1);
                line.set_faults(|faults| match command.fault {
                    FaultName::EventsDrop => faults.drop = count,
                    FaultName::EventsGap => faults.lose = count,
                    _ => faults.replay_silent = true,
                });
            }
            name => {
                let fault = match name {
                    FaultName::MetricsDrop => MetricsFault::Drop,
                    FaultName::MetricsBlank => MetricsFault::Blank,
                    FaultName::Metrics500 => MetricsFault::Error,
                    FaultName::MetricsTruncate => MetricsFault::Truncate,
                    FaultName::MetricsOldNames => MetricsFault::OldNames,
                    FaultName::MetricsNan => MetricsFault::Nan,
                    FaultName::MetricsHang => MetricsFault::Hang,
                    _ => MetricsFault::Freeze { text: replica.metrics().into() },
                };
                replica.set_faults(|faults| faults.metrics = fault);
            }
        }
        Ok(())
    }

    /// Publishes events of prompts that no engine holds; returns how many blocks were stored.
    pub async fn flood(&self, flood: Flood) -> Result<u64, FleetError> {
        let line = self.get(flood.replica)?.event_line();
        let line = line.ok_or(FleetError::NoEvents(flood.replica))?;
        Ok(flood.run(&line, self.tokenizer.words(), self.config.engine.block_size).await)
    }

    /// The state of every replica, with the latest `limit` requests of each.
    pub fn state(&self, limit: usize) -> Value {
        let replicas: Vec<_> =
            self.replicas().iter().map(|replica| self.state_of(replica, limit)).collect();
        json!({ "replicas": replicas })
    }

    fn state_of(&self, replica: &Replica, limit: usize) -> Value {
        let sidecar = lock(&self.sidecars).get(&replica.index).map(Sidecar::state);
        state_of(replica, &sidecar.unwrap_or_default(), limit)
    }
}

fn state_of(replica: &Replica, sidecar: &Value, limit: usize) -> Value {
    let snapshot = replica.core().snapshot();
    let records = replica.records();
    let kept: Vec<_> = records.iter().collect();
    let latest = kept.get(kept.len().saturating_sub(limit)..).unwrap_or_default();
    let (batches, event_faults) = replica.events_state();
    json!({
        "index": replica.index,
        "endpoint": replica.addr.to_string(),
        "port": replica.addr.port(),
        "accepts": replica.accepts(),
        "faults": replica.faults(),
        "started": snapshot.created,
        "running": snapshot.gauges.running,
        "waiting": snapshot.gauges.waiting_capacity + snapshot.gauges.waiting_deferred,
        "kv_usage": snapshot.gauges.kv_usage,
        "free_blocks": snapshot.gauges.free_blocks,
        "cached_blocks": snapshot.gauges.cached_blocks,
        "served": snapshot.served,
        "arrived": records.total(),
        "prompt_tokens": snapshot.stats.prompt_tokens,
        "prefix_queries": snapshot.stats.prefix_queries,
        "prefix_hits": snapshot.stats.prefix_hits,
        "prefilled_tokens": snapshot.stats.computed(),
        "transferred_tokens": snapshot.stats.transferred,
        "preemptions": snapshot.stats.preemptions,
        "kv_events": replica.event_ports().map(|ports| json!({
            "port": ports.events, "replay_port": ports.replay, "batches": batches, "faults": event_faults,
        })),
        "sidecar": sidecar,
        "requests": latest,
    })
}

impl Replica {
    /// Changes the faults in force; the engine's time stands still exactly while it hangs.
    pub(crate) fn set_faults(&self, change: impl FnOnce(&mut Faults)) {
        let mut hanging = false;
        self.faults_sender().send_modify(|faults| {
            change(faults);
            hanging = faults.serving == Serving::Hang;
        });
        self.core().set_paused(hanging);
    }

    fn fail_requests(&self, kind: RequestFaultKind, count: Option<u64>) {
        self.set_faults(|faults| faults.requests = Some(RequestFault { kind, left: count }));
    }

    /// The engine ends, its requests as told, and the port is refused.
    async fn crash(&self, ending: Ending) {
        self.set_faults(|faults| faults.serving = Serving::Down);
        self.lose_engine(ending);
        self.close(Stop::Graceful).await;
        self.close_source().await;
    }
}
