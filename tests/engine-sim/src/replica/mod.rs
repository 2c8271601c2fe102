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
}

/// One simulated engine with its port.
pub struct Replica {
    /// Position in the process's list.
    pub index: usize,
    /// Where it listens, or listened.
    pub addr: SocketAddr,
    config: Arc<SimConfig>,
    tokenizer: Arc<Tokenizer>,
    core: Arc<Core>,
    faults: watch::Sender<Faults>,
    listening: Mutex<Option<Listening>>,
    records: Mutex<Records>,
    http: Mutex<HttpStats>,
    loras: Mutex<LoraSeries>,
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
    /// Binds a port (0 for any) on the loopback interface and starts serving.
    pub async fn start(
        index: usize,
        port: u16,
        config: Arc<SimConfig>,
        tokenizer: Arc<Tokenizer>,
    ) -> std::io::Result<Arc<Self>> {
        let socket = listener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
        let replica = Arc::new(Self {
            index,
            addr: socket.local_addr()?,
            core: Arc::new(Core::new(&config)),
            faults: watch::channel(Faults::default()).0,
            listening: Mutex::new(None),
            records: Mutex::new(Records::new(config.records)),
            http: Mutex::new(HttpStats::default()),
            loras: Mutex::new(LoraSeries::default()),
            config,
            tokenizer,
        });
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
        self.core.replace_engine(&self.config, Ending::Cut);
        *lock(&self.records) = Records::new(self.config.records);
        *lock(&self.http) = HttpStats::default();
        *lock(&self.loras) = LoraSeries::default();
    }

    /// A new process in the old one's place: cold, without faults, listening on the same port.
    pub async fn restart(self: &Arc<Self>) -> std::io::Result<()> {
        self.close(listener::Stop::Abort).await;
        self.reset();
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

    /// The exposition as it is now.
    pub fn metrics(&self) -> String {
        let model = self.config.api.models.first().map_or("", |name| name);
        let snapshot = self.core.snapshot();
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
        out.finish()
    }

    pub(crate) fn faults_sender(&self) -> &watch::Sender<Faults> {
        &self.faults
    }

    /// Ends the engine and its requests; a restart brings a new one.
    pub(crate) fn lose_engine(&self, ending: Ending) {
        self.core.replace_engine(&self.config, ending);
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
