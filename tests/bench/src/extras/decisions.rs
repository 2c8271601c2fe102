//! Requests at a steady rate, and how long the filter takes to decide, by its own histogram.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use warmroute_demo::processes::{Buckets, ProcessError, wait_until};

use crate::load::Pace;
use crate::rounds::Way;
use crate::workload::Case;

const RATE: f64 = 500.0;
const CONNECTIONS: usize = 64;
/// The end of the name of the filter's histogram of decisions in microseconds.
const HISTOGRAM: &str = "warmroute.decision_us";
/// Envoy merges its workers' values every five seconds.
const MERGED: Duration = Duration::from_secs(15);

/// What came of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Steady {
    /// The way.
    pub target: &'static str,
    /// Requests a second, sent whether answers came or not.
    pub rate: f64,
    /// Requests answered.
    pub requests: f64,
    /// Requests not answered.
    pub failures: f64,
    /// Median latency in microseconds, from when the request was due.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// The proxy's processor time a request.
    pub cpu_us_per_request: f64,
    /// Median of the filter's decisions; `None` = it has no such histogram.
    pub decision_p50_us: Option<f64>,
    /// 95th percentile.
    pub decision_p95_us: Option<f64>,
}

/// Sends 500 small chats a second for a while.
pub async fn steady(way: &Way<'_>, time: Duration) -> Steady {
    let before = at_rest(way).await;
    let pace = Pace::Open { rate: RATE, time };
    let turn = way.turn(Case::Small, CONNECTIONS, &Case::Small.bodies(), pace, false).await;
    let decisions = match before {
        Some(before) => since(&before, turn.requests, way).await.unwrap_or_default(),
        None => Buckets::default(),
    };
    Steady {
        target: way.running.target.name(),
        rate: RATE,
        requests: turn.requests,
        failures: turn.failures,
        p50_us: turn.p50_us,
        p99_us: turn.p99_us,
        cpu_us_per_request: turn.cpu_us,
        decision_p50_us: decisions.quantile(0.50),
        decision_p95_us: decisions.quantile(0.95),
    }
}

/// What the histogram holds, once it holds all that came before; `None` = no filter.
async fn at_rest(way: &Way<'_>) -> Option<Buckets> {
    let (admin, logs) = histogram_of(way)?;
    told(Buckets::quiet(admin, HISTOGRAM, logs).await)
}

/// What came to it since, once that is a decision for each of so many requests.
async fn since(before: &Buckets, requests: f64, way: &Way<'_>) -> Option<Buckets> {
    let (admin, logs) = histogram_of(way)?;
    let merged = async || {
        let added = Buckets::read(admin, HISTOGRAM).await.ok()?.since(before);
        (added.count() as f64 >= requests).then_some(added)
    };
    told(wait_until("a decision for each request", MERGED, logs, merged).await)
}

fn histogram_of<'a>(way: &'a Way<'_>) -> Option<(SocketAddr, &'a Path)> {
    let filter = way.running.target.has_filter();
    filter.then_some((way.running.admin?, way.running.proxy.as_ref()?.log()))
}

fn told<T>(result: Result<T, ProcessError>) -> Option<T> {
    result.inspect_err(|error| eprintln!("decisions not measured: {error}")).ok()
}
