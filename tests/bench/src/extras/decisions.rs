//! Requests at a steady rate, and how long the filter takes to decide, by its own histogram.

use std::time::Duration;

use serde::Serialize;
use warmroute_demo::processes::get;

use crate::load::Pace;
use crate::rounds::Way;
use crate::workload::Case;

const RATE: f64 = 500.0;
const CONNECTIONS: usize = 64;
/// The filter's histogram of decisions in microseconds, as Envoy spells it.
const HISTOGRAM: &str = "wasmcustom_warmroute_decision_us";

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
    let before = buckets(way).await;
    let pace = Pace::Open { rate: RATE, time };
    let turn = way.turn(Case::Small, CONNECTIONS, &Case::Small.bodies(), pace, false).await;
    let after = buckets(way).await;
    Steady {
        target: way.running.target.name(),
        rate: RATE,
        requests: turn.requests,
        failures: turn.failures,
        p50_us: turn.p50_us,
        p99_us: turn.p99_us,
        cpu_us_per_request: turn.cpu_us,
        decision_p50_us: quantile(&before, &after, 0.50),
        decision_p95_us: quantile(&before, &after, 0.95),
    }
}

/// Upper bounds of the histogram's buckets, and how many values are not above each.
async fn buckets(way: &Way<'_>) -> Vec<(f64, f64)> {
    let Some(admin) = way.running.admin else { return Vec::new() };
    let page = get(admin, "/stats/prometheus").await.map(|answer| answer.body).unwrap_or_default();
    parse(&String::from_utf8_lossy(&page))
}

fn parse(page: &str) -> Vec<(f64, f64)> {
    let of = |line: &str| {
        let (name, rest) = line.split_once('{')?;
        let (_, rest) =
            name.ends_with(&format!("{HISTOGRAM}_bucket")).then(|| rest.split_once("le=\""))??;
        let (bound, _) = rest.split_once('"')?;
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
        Some((bound, line.rsplit_once(' ')?.1.parse().ok()?))
    };
    page.lines().filter_map(of).collect()
}

/// The value below which this share of what was added lies, between the bounds of its bucket.
fn quantile(before: &[(f64, f64)], after: &[(f64, f64)], share: f64) -> Option<f64> {
    let earlier = |bound: f64| {
        before.iter().find(|(other, _)| *other == bound).map_or(0.0, |(_, count)| *count)
    };
    let added: Vec<(f64, f64)> =
        after.iter().map(|(bound, count)| (*bound, count - earlier(*bound))).collect();
    let wanted = added.last().map(|(_, all)| all * share).filter(|wanted| *wanted > 0.0)?;
    let (mut low, mut below) = (0.0, 0.0);
    for (bound, count) in added {
        if count >= wanted {
            let within = (wanted - below) / (count - below).max(1e-9);
            // Nothing is known of how far the last bucket goes.
            return Some(if bound.is_finite() { low + (bound - low) * within } else { low });
        }
        (low, below) = (bound, count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_added() {
        let page = |counts: [u32; 3]| {
            let line = |le: &str, count| {
                format!("envoy_{HISTOGRAM}_bucket{{x=\"y\",le=\"{le}\"}} {count}\n")
            };
            let other = "envoy_other_bucket{le=\"1\"} 9\n";
            parse(&format!(
                "{other}{}{}{}",
                line("100", counts[0]),
                line("200", counts[1]),
                line("+Inf", counts[2])
            ))
        };
        let (before, after) = (page([10, 10, 10]), page([60, 100, 110]));
        assert_eq!(quantile(&before, &after, 0.5), Some(100.0));
        assert_eq!(quantile(&before, &after, 0.7), Some(150.0));
        assert_eq!(quantile(&before, &after, 0.99), Some(200.0));
        assert_eq!(quantile(&before, &before, 0.5), None);
        assert_eq!(quantile(&[], &[], 0.5), None);
    }
}
