//! Ties configuration, scrapers and publication together: the one task that changes what the
//! agent tells. All decisions are elsewhere ([`Membership`], [`Health`](crate::scrape::health)).

use crate::board::{Board, Entry};
use crate::config::Configuration;
use crate::config::watch::Verdict;
use crate::kv_events::supervisor::KvEvents;
use crate::metrics::Metrics;
use crate::publish::Publisher;
use crate::publish::clusters;
use crate::publish::discovery::Discovery;
use crate::publish::eds::Hosts;
use crate::publish::membership::{Membership, Step};
use crate::scrape::plan::ScrapePlan;
use crate::scrape::{self, Report};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tracing::{error, info, warn};
use warmroute_shared_state::endpoint::{Availability, EndpointId};

/// Reports that wait at most; scrapers wait in turn when there are more.
const REPORT_QUEUE: usize = 1024;

/// What the servers show and the fleet keeps current.
pub struct Shared {
    /// The stream and the cluster's hosts.
    pub publisher: Publisher,
    /// Every endpoint.
    pub board: Board,
    /// The agent's own metrics.
    pub metrics: Metrics,
    /// Start of the run.
    pub started: Instant,
    /// When the configuration in force was judged, in milliseconds since `started`.
    config_loaded_ms: AtomicU64,
}

impl Shared {
    /// Nothing known yet, in a new epoch of the stream.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        Self {
            publisher: Publisher::new(epoch),
            board: Board::default(),
            metrics: Metrics::new(),
            started: Instant::now(),
            config_loaded_ms: AtomicU64::new(0),
        }
    }

    /// Age of the configuration in force.
    #[must_use]
    pub fn config_age(&self, now: Instant) -> Duration {
        let loaded = Duration::from_millis(self.config_loaded_ms.load(Ordering::Relaxed));
        now.saturating_duration_since(self.started).saturating_sub(loaded)
    }

    fn config_loaded(&self, now: Instant) {
        let millis = now.saturating_duration_since(self.started).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.config_loaded_ms.store(millis, Ordering::Relaxed);
    }
}

/// How the fleet is run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Name of the cluster that the endpoints are hosts of.
    pub pool: String,
    /// Folder for the cluster's file; `None` if Envoy asks over HTTP.
    pub eds_dir: Option<PathBuf>,
    /// Time that Envoy has to load a new host before it is announced.
    pub settle: Duration,
    /// Time that a removed host stays in Envoy's cluster.
    pub linger: Duration,
    /// How endpoints are scraped.
    pub scrape: scrape::Settings,
}

/// An endpoint's scraper.
struct Scraper {
    task: AbortHandle,
    plan: watch::Sender<ScrapePlan>,
}

impl Scraper {
    /// From now on it follows this plan.
    fn follow(&self, plan: &ScrapePlan) {
        self.plan.send_if_modified(|known| {
            let is_new = known != plan;
            known.clone_from(plan);
            is_new
        });
    }
}

/// The endpoints in force and their scrapers.
pub struct Fleet {
    settings: Settings,
    shared: Arc<Shared>,
    membership: Membership,
    /// In force.
    configuration: Configuration,
    /// What Envoy was given last.
    written: Option<Discovery>,
    scrapers: HashMap<EndpointId, Scraper>,
    reports: mpsc::Receiver<Report>,
    report_to: mpsc::Sender<Report>,
    kv_events: KvEvents,
}

impl Fleet {
    /// A fleet without endpoints.
    ///
    /// # Errors
    /// If the system gives no thread for KV events.
    pub fn new(settings: Settings, shared: Arc<Shared>) -> std::io::Result<Self> {
        let (report_to, reports) = mpsc::channel(REPORT_QUEUE);
        let membership = Membership::new(settings.settle, settings.linger);
        shared.board.set_pools(vec![settings.pool.clone()]);
        let kv_events = KvEvents::start(Arc::clone(&shared))?;
        Ok(Self {
            settings,
            shared,
            membership,
            configuration: Configuration::default(),
            written: None,
            scrapers: HashMap::new(),
            reports,
            report_to,
            kv_events,
        })
    }

    /// Runs with `first` in force, then with whatever `verdicts` brings, until dropped.
    pub async fn run(mut self, first: Configuration, mut verdicts: mpsc::Receiver<Verdict>) {
        self.judge(Ok(first)).await;
        loop {
            let due = self.membership.next_due().map(tokio::time::Instant::from_std);
            let timer = async move {
                match due {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(verdict) = verdicts.recv() => self.judge(verdict).await,
                Some(report) = self.reports.recv() => self.report(&report).await,
                () = self.kv_events.ended() => {
                    error!("nobody takes in KV events any more: what is known of caches is frozen");
                    return;
                }
                () = timer => {
                    let steps = self.membership.due(Instant::now());
                    self.play(steps).await;
                }
            }
        }
    }

    async fn judge(&mut self, verdict: Verdict) {
        self.shared.metrics.config_judged(verdict.is_ok());
        match verdict {
            Ok(configuration) => {
                for warning in &configuration.warnings {
                    warn!(issue = %warning, "configuration");
                }
                info!(endpoints = configuration.endpoints.len(), "configuration in force");
                let now = Instant::now();
                self.shared.config_loaded(now);
                self.kv_events.configure(&configuration);
                self.configuration = configuration;
                self.follow_plans();
                let clusters = clusters::of(&self.configuration, &self.settings.pool);
                self.membership.configure_policy(clusters, now);
                let steps = self.membership.configure(&self.configuration.endpoints, now);
                self.play(steps).await;
            }
            Err(issues) => {
                for issue in &issues {
                    error!(issue = %issue, "configuration refused, the last good one stays");
                }
            }
        }
    }

    /// Plans may be others although endpoints are the same.
    fn follow_plans(&self) {
        for spec in &self.configuration.endpoints {
            if let Some(scraper) = self.scrapers.get(&spec.id()) {
                scraper.follow(&self.configuration.scrape_plan(spec));
            }
        }
    }

    async fn report(&mut self, report: &Report) {
        let record = {
            let mut board = self.shared.board.lock();
            // A report may still be on its way when its endpoint is gone.
            let Some(entry) = board.get_mut(&report.id) else { return };
            let name = entry.spec.full_name();
            let seconds = report.duration.as_secs_f64();
            self.shared.metrics.scraped(&name, &report.outcome, seconds);
            let before = entry.health.as_ref().map(|h| (h.availability(), h.generation()));
            entry.health = Some(report.health.clone());
            log_change(&name, before, report);
            entry.announced.then(|| entry.record()).flatten()
        };
        if let Some(record) = record {
            self.shared.publisher.update(|table| {
                table.put(record);
                if let Some(measured) = report.health.measured() {
                    table.set_load(report.id, measured);
                }
                table.set_signals(report.id, report.health.signals());
            });
        }
        if report.health.availability().is_some() {
            // After the stream has the new generation, which voids what was told of an older one.
            if let Some(entry) = self.shared.board.lock().get(&report.id) {
                self.kv_events.seen(&entry.spec, report.health.generation());
            }
            let steps = self.membership.known(report.id, Instant::now());
            self.play(steps).await;
        }
    }

    async fn play(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Withdraw(id) => self.withdraw(id),
                Step::WriteHosts => self.write_hosts().await,
                Step::Scrape(spec) => {
                    let (id, address) = (spec.id(), spec.address);
                    let (plan, plans) = watch::channel(self.configuration.scrape_plan(&spec));
                    let entry = Entry { spec, health: None, announced: false };
                    self.shared.board.lock().insert(id, entry);
                    let (settings, reports) = (self.settings.scrape, self.report_to.clone());
                    let scraper = scrape::run(id, address, plans, settings, reports);
                    let task = tokio::spawn(scraper).abort_handle();
                    self.scrapers.insert(id, Scraper { task, plan });
                }
                Step::Relabel(spec) => {
                    let id = spec.id();
                    if let Some(entry) = self.shared.board.lock().get_mut(&id) {
                        entry.spec = spec;
                    }
                    self.tell(id);
                }
                Step::Announce(id) => {
                    if let Some(entry) = self.shared.board.lock().get_mut(&id) {
                        entry.announced = true;
                    }
                    self.tell(id);
                }
                Step::TellPolicy => self.tell_policy(),
            }
        }
        if self.membership.complete() && !self.shared.publisher.is_ready() {
            self.shared.publisher.set_ready();
            info!(endpoints = self.scrapers.len(), "first full table");
        }
    }

    fn tell_policy(&self) {
        let policy = self.configuration.policy(&self.settings.pool);
        let mut pools: Vec<String> = policy.pools.iter().map(|pool| pool.name.clone()).collect();
        if pools.is_empty() {
            pools.push(self.settings.pool.clone());
        }
        self.shared.board.set_pools(pools);
        let json = policy.to_json();
        self.shared.publisher.update(|table| table.set_policy(&json));
        info!(pools = policy.pools.len(), routes = policy.routing.rules.len(), "policy told");
    }

    /// Puts an announced endpoint on the stream as it is now.
    fn tell(&self, id: EndpointId) {
        let told = {
            let board = self.shared.board.lock();
            board.get(&id).filter(|entry| entry.announced).and_then(|entry| {
                let health = entry.health.as_ref()?;
                Some((entry.record()?, health.measured(), Arc::clone(health.signals())))
            })
        };
        let Some((record, measured, signals)) = told else { return };
        self.shared.publisher.update(|table| {
            table.put(record);
            if let Some(measured) = measured {
                table.set_load(id, measured);
            }
            table.set_signals(id, &signals);
        });
    }

    fn withdraw(&mut self, id: EndpointId) {
        self.kv_events.gone(id);
        self.shared.publisher.update(|table| table.remove(id));
        if let Some(scraper) = self.scrapers.remove(&id) {
            scraper.task.abort();
        }
        let mut board = self.shared.board.lock();
        if let Some(entry) = board.remove(&id) {
            let name = entry.spec.full_name();
            info!(endpoint = name, address = %entry.spec.address, "removed");
            // Its successor at another address may already be there under the same name.
            if !board.values().any(|other| other.spec.full_name() == name) {
                self.shared.metrics.forget(&name);
            }
        }
    }

    fn discovery(&self) -> Discovery {
        let hosts = |cluster: &str, addresses| Hosts { cluster: cluster.to_owned(), addresses };
        let all = hosts(&self.settings.pool, self.membership.hosts().collect());
        let pools = self.membership.clusters().map(|cluster| {
            let addresses = self.membership.hosts_in(&cluster.pool).collect();
            (cluster.clone(), hosts(&cluster.name, addresses))
        });
        Discovery { all, pools: pools.collect() }
    }

    async fn write_hosts(&mut self) {
        let discovery = self.discovery();
        self.shared.publisher.set_discovery(discovery.clone());
        let written = match self.settings.eds_dir.clone() {
            None => Ok(()),
            Some(folder) => {
                let (now, before) = (discovery.clone(), self.written.take());
                tokio::task::spawn_blocking(move || now.write(&folder, before.as_ref()))
                    .await
                    .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            }
        };
        // After a failure nobody knows which files are there: all are written.
        self.written = written.is_ok().then_some(discovery);
        self.shared.metrics.hosts_written(written.is_ok());
        match written {
            Ok(()) => self.membership.hosts_written(Instant::now()),
            Err(error) => {
                error!(%error, "hosts for Envoy not written, trying again: check --eds-dir");
                self.membership.hosts_failed(Instant::now());
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for scraper in self.scrapers.values() {
            scraper.task.abort();
        }
    }
}

fn log_change(endpoint: &str, before: Option<(Option<Availability>, u64)>, report: &Report) {
    let (was, generation) = before.unwrap_or((None, 0));
    let now = report.health.availability();
    match now {
        _ if now == was && generation == report.health.generation() => {}
        Some(Availability::Out) => warn!(endpoint, "out: {}", reason(report)),
        Some(Availability::Ready) if was.is_none() => info!(endpoint, "answers"),
        Some(Availability::Ready) if was == now => info!(endpoint, "engine restarted"),
        Some(Availability::Ready) => info!(endpoint, "answers again"),
        None => {}
    }
}

fn reason(report: &Report) -> &'static str {
    match report.outcome {
        scrape::health::Outcome::Refused => "connection refused or reset",
        _ => "no answer to several scrapes in a row",
    }
}
