//! One replica: an engine driven by the real clock, behind an HTTP server that can be made to fail.

pub mod clock;
pub mod connection;
pub mod core;
pub mod faults;
pub mod generation;
pub mod listener;
pub mod records;
pub mod service;
pub mod stream;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::watch;

use self::core::{Core, Ending};
use crate::api::ApiConfig;
use crate::engine::EngineConfig;
use crate::engine::events::{EventSink, NoEvents};
use crate::kv_events::KvEventsConfig;
use crate::kv_events::batch::StepEvents;
use crate::kv_events::faults::EventFaults;
use crate::kv_events::line::Line;
use crate::kv_events::source::{Ports, Source};
use crate::metrics::format::Format;
use crate::metrics::http::HttpStats;
use crate::metrics::loras::LoraSeries;
use crate::metrics::{Exposition, families};
use crate::tokens::Tokenizer;
use faults::{Faults, RequestFaultKind, Serving};
use listener::Listening;
use records::Records;

/// Everything that replicas of one process have in common.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// Requests and answers.
    pub api: ApiConfig,
    /// The engine.
    pub engine: EngineConfig,
    /// Simulated seconds per second.
    pub time_scale: f64,
    /// Whether `x-request-id` is echoed.
    pub request_id_headers: bool,
    /// Seconds between comments on a silent stream; `None` for none.
    pub sse_keep_alive: Option<f64>,
    /// Requests remembered for `GET /state`.
    pub records: usize,
    /// How cache events are published; `None` for not at all.
    pub kv_events: Option<KvEventsConfig>,
    /// Whose exposition each replica speaks, in turn; none: vLLM's.
    pub formats: Vec<Format>,
    /// Whether each replica has a sidecar for prefill at other replicas.
    pub sidecars: bool,
}

impl SimConfig {
    /// Whose exposition replica `index` speaks.
    pub fn format_of(&self, index: usize) -> Format {
        let place = index.checked_rem(self.formats.len());
        place.and_then(|place| self.formats.get(place)).copied().unwrap_or_default()
    }
}

/// One simulated engine with its port.
pub struct Replica {
    /// Position in the process's list.
    pub index: usize,
    /// Where it listens, or listened.
    pub addr: SocketAddr,
    config: Arc<SimConfig>,
    format: Format,
    tokenizer: Arc<Tokenizer>,
    core: Arc<Core>,
    faults: watch::Sender<Faults>,
    listening: Mutex<Option<Listening>>,
    // Held across the opening and closing of sockets.
    source: tokio::sync::Mutex<Option<Source>>,
    // What of the source others need at once.
    events: Mutex<Events>,
    records: Mutex<Records>,
    http: Mutex<HttpStats>,
    loras: Mutex<LoraSeries>,
}

/// A replica's cache events as others see them.
struct Events {
    ports: Ports,
    line: Option<Line>,
    description: Option<serde_json::Value>,
}

/// Locks whatever happened to earlier holders: every critical section leaves its data usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unix time in seconds.
pub fn unix_now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Replica {
    /// Binds a port (0 for any) on the loopback interface and starts serving; cache events, where
    /// configured, on ports of their own.
    pub async fn start(
        index: usize,
        port: u16,
        event_ports: Ports,
        config: Arc<SimConfig>,
        tokenizer: Arc<Tokenizer>,
    ) -> std::io::Result<Arc<Self>> {
        let socket = listener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
        let replica = Arc::new(Self {
            index,
            addr: socket.local_addr()?,
            core: Arc::new(Core::new(&config, Box::new(NoEvents))),
            source: tokio::sync::Mutex::new(None),
            events: Mutex::new(Events { ports: event_ports, line: None, description: None }),
            faults: watch::channel(Faults::default()).0,
            listening: Mutex::new(None),
            records: Mutex::new(Records::new(config.records)),
            http: Mutex::new(HttpStats::default()),
            loras: Mutex::new(LoraSeries::default()),
            format: config.format_of(index),
            config,
            tokenizer,
        });
        let sink = replica.open_source().await?;
        replica.core.replace_engine(&replica.config, sink, Ending::Cut);
        core::spawn_driver(&replica.core);
        *lock(&replica.listening) = Some(Listening::start(&replica, socket));
        Ok(replica)
    }

    /// The engine and its owners.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Requests it remembers.
    pub fn records(&self) -> MutexGuard<'_, Records> {
        lock(&self.records)
    }

    /// Faults in force.
    pub fn faults(&self) -> Faults {
        self.faults.borrow().clone()
    }

    /// Whether connections are accepted.
    pub fn accepts(&self) -> bool {
        lock(&self.listening).as_ref().is_some_and(Listening::accepts)
    }

    /// Empties cache, counters and memory of requests; requests in flight are cut off. The port and
    /// the faults stay as they are.
    pub fn reset(&self) {
        let mut sink = self.sink();
        sink.cleared();
        sink.step_ended();
        self.replace_engine(sink);
    }

    fn replace_engine(&self, sink: Box<dyn EventSink>) {
        self.core.replace_engine(&self.config, sink, Ending::Cut);
        *lock(&self.records) = Records::new(self.config.records);
        *lock(&self.http) = HttpStats::default();
        *lock(&self.loras) = LoraSeries::default();
    }

    /// A new process in the old one's place: cold, without faults, listening on the same port.
    pub async fn restart(self: &Arc<Self>) -> std::io::Result<()> {
        self.close(listener::Stop::Abort).await;
        self.close_source().await;
        let sink = self.open_source().await?;
        self.replace_engine(sink);
        self.faults.send_replace(Faults::default());
        self.core.set_paused(false);
        let socket = listener::bind(self.addr).await?;
        *lock(&self.listening) = Some(Listening::start(self, socket));
        Ok(())
    }

    /// Stops listening; what happens to open connections is up to `stop`. Returns once the port is
    /// refused.
    pub async fn close(&self, stop: listener::Stop) {
        // Taken out for the wait and put back: a later restart still has to cut what hangs on it.
        let Some(mut listening) = lock(&self.listening).take() else { return };
        listening.stop(stop).await;
        *lock(&self.listening) = Some(listening);
    }

    /// Opens the sockets of a new engine process, on the ports of the last one.
    async fn open_source(&self) -> std::io::Result<Box<dyn EventSink>> {
        let Some(config) = &self.config.kv_events else { return Ok(Box::new(NoEvents)) };
        let mut place = self.source.lock().await;
        let model = self.config.api.models.first().map_or("", |name| name);
        let ports = lock(&self.events).ports;
        let source = Source::open(config, ports, format!("kv@{}@{model}", self.addr)).await?;
        *lock(&self.events) = Events {
            ports: source.ports(),
            line: Some(source.line().clone()),
            description: Some(source.describe()),
        };
        *place = Some(source);
        Ok(self.sink())
    }

    /// Closes the sockets of an engine process that is gone.
    pub async fn close_source(&self) {
        let mut place = self.source.lock().await;
        if let Some(mut source) = place.take() {
            lock(&self.events).line = None;
            source.close().await;
        }
    }

    /// Closes the replay socket only.
    pub async fn close_replay(&self) {
        if let Some(source) = self.source.lock().await.as_mut() {
            source.close_replay().await;
        }
    }

    fn sink(&self) -> Box<dyn EventSink> {
        match self.event_line() {
            Some(line) => Box::new(StepEvents::new(line, self.config.api.loras.clone())),
            None => Box::new(NoEvents),
        }
    }

    /// The way to its publisher, while there is one.
    pub fn event_line(&self) -> Option<Line> {
        lock(&self.events).line.clone()
    }

    /// Ports of its cache events, if it publishes any.
    pub fn event_ports(&self) -> Option<Ports> {
        self.config.kv_events.as_ref().map(|_| lock(&self.events).ports)
    }

    /// Batches numbered since the engine's start, and the faults in force.
    pub fn events_state(&self) -> (u64, EventFaults) {
        self.event_line().map_or_else(Default::default, |line| (line.published(), line.faults()))
    }

    /// Body of `GET /kv_event_sources`: by data-parallel rank.
    fn event_sources(&self) -> serde_json::Value {
        match &lock(&self.events).description {
            Some(description) => serde_json::json!({ "0": description }),
            None => serde_json::json!({}),
        }
    }

    /// The exposition as it is now.
    pub fn metrics(&self) -> String {
        let model = self.config.api.models.first().map_or("", |name| name);
        let snapshot = self.core.snapshot();
        if let Some(text) = self.format.others(model, &self.config.engine, &snapshot) {
            return text;
        }
        let mut out = Exposition::new(snapshot.created);
        out.gauge(
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
            &[(&[], snapshot.created)],
        );
        let max_len = self.config.api.max_model_len;
        families::write(
            &mut out,
            model,
            max_len,
            &self.config.engine,
            &snapshot.gauges,
            &snapshot.stats,
        );
        if !self.config.api.loras.is_empty() {
            let mut loras = lock(&self.loras);
            loras.note(&snapshot.gauges.running_loras, &snapshot.gauges.waiting_loras, unix_now());
            loras.write(&mut out, self.config.engine.max_loras);
        }
        lock(&self.http).write(&mut out);
        self.format.renamed(out.finish())
    }

    pub(crate) fn faults_sender(&self) -> &watch::Sender<Faults> {
        &self.faults
    }

    /// Ends the engine and its requests; a restart brings a new one.
    pub(crate) fn lose_engine(&self, ending: Ending) {
        self.core.replace_engine(&self.config, Box::new(NoEvents), ending);
    }

    /// The fault that the next generation request meets, counted down.
    fn take_request_fault(&self) -> Option<RequestFaultKind> {
        let mut taken = None;
        self.faults.send_if_modified(|faults| {
            let Some(fault) = &mut faults.requests else { return false };
            match &mut fault.left {
                None => taken = Some(fault.kind),
                Some(0) => faults.requests = None,
                Some(left) => {
                    *left -= 1;
                    taken = Some(fault.kind);
                }
            }
            false
        });
        taken
    }

    /// Whether new generation requests are turned away because the replica is about to leave.
    fn draining(&self) -> bool {
        self.faults.borrow().serving == Serving::Drain
    }
}
