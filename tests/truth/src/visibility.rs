//! How soon events are visible in every worker: a histogram that the filter keeps in Envoy.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use warmroute_demo::processes;

use crate::verdict::Delay;

/// The end of the histogram's name.
pub const HISTOGRAM: &str = "warmroute.event_to_visible_ms";

/// A histogram as Envoy's admin interface tells it: lower bound, width and count of each bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buckets(Vec<Bucket>);

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct Bucket {
    lower_bound: f64,
    width: f64,
    count: u64,
}

impl Buckets {
    /// What it holds now; Envoy merges the workers' values every few seconds.
    ///
    /// # Errors
    /// When the admin interface does not tell.
    pub async fn read(admin: SocketAddr) -> Result<Self> {
        let path = format!("/stats?format=json&histogram_buckets=detailed&filter={HISTOGRAM}");
        Self::parse(&processes::get(admin, &path).await?.json())
    }

    fn parse(stats: &Value) -> Result<Self> {
        let all = stats["stats"].as_array().context("Envoy's statistics have another form")?;
        let details = all.iter().filter_map(|entry| entry["histograms"]["details"].as_array());
        let named = details
            .flatten()
            .filter(|one| one["name"].as_str().is_some_and(|name| name.ends_with(HISTOGRAM)));
        // One for each scope that has the name; before the first value there is none.
        let mut sum: Vec<Bucket> = Vec::new();
        for one in named {
            let buckets = Vec::<Bucket>::deserialize(&one["totals"])
                .context("a histogram's totals have another form")?;
            for bucket in buckets {
                match sum.iter_mut().find(|known| known.lower_bound == bucket.lower_bound) {
                    Some(known) => known.count += bucket.count,
                    None => sum.push(bucket),
                }
            }
        }
        Ok(Self(sum))
    }

    /// How many values it has.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().map(|bucket| bucket.count).sum()
    }

    /// What came since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |bucket: &Bucket| {
            let same = |one: &&Bucket| one.lower_bound == bucket.lower_bound;
            earlier.0.iter().find(same).map_or(0, |one| one.count)
        };
        let left = self
            .0
            .iter()
            .map(|bucket| Bucket { count: bucket.count.saturating_sub(before(bucket)), ..*bucket });
        Self(left.filter(|bucket| bucket.count > 0).collect())
    }

    /// Median and 99th percentile, each the upper end of its bucket.
    ///
    /// # Errors
    /// When there is no value.
    pub fn delay(&self) -> Result<Delay> {
        ensure!(self.count() > 0, "no value in {HISTOGRAM}: did the filter see an event?");
        Ok(Delay { p50: self.quantile(0.5), p99: self.quantile(0.99) })
    }

    fn quantile(&self, share: f64) -> f64 {
        let mut buckets = self.0.clone();
        buckets.sort_by(|a, b| a.lower_bound.total_cmp(&b.lower_bound));
        let rank = (share * self.count() as f64).ceil() as u64;
        let mut seen = 0;
        for bucket in &buckets {
            seen += bucket.count;
            if seen >= rank {
                return bucket.lower_bound + bucket.width;
            }
        }
        0.0
    }
}

/// What the histogram holds once nothing more comes: Envoy merges its workers' values every five
/// seconds.
///
/// # Errors
/// When it does not cease; `logs` tells where to look.
pub async fn quiet(admin: SocketAddr, logs: &Path) -> Result<Buckets> {
    let seen = Cell::new(None);
    let still = async || {
        tokio::time::sleep(Duration::from_secs(6)).await;
        let now = Buckets::read(admin).await.ok()?;
        (seen.replace(Some(now.count())) == Some(now.count())).then_some(now)
    };
    let what = format!("no more values of {HISTOGRAM}");
    Ok(processes::wait_until(&what, Duration::from_secs(60), logs, still).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stats(totals: &Value) -> Value {
        json!({"stats": [
            {"name": "a.counter", "value": 3},
            {"histograms": {"supported_percentiles": [0, 50], "details": [
                {"name": "wasmcustom.warmroute.event_to_visible_ms", "totals": totals, "intervals": [], "percentiles": []},
            ]}},
        ]})
    }

    #[test]
    fn only_what_came_in_between_counts() {
        let before = json!([{"lower_bound": 90, "width": 10, "count": 50}]);
        let after = json!([
            {"lower_bound": 1, "width": 0.1, "count": 98},
            {"lower_bound": 20, "width": 1, "count": 1},
            {"lower_bound": 40, "width": 1, "count": 1},
            {"lower_bound": 90, "width": 10, "count": 50},
        ]);
        let earlier = Buckets::parse(&stats(&before)).unwrap();
        let during = Buckets::parse(&stats(&after)).unwrap().since(&earlier);
        assert_eq!(during.count(), 100);
        assert_eq!(during.delay().unwrap(), Delay { p50: 1.1, p99: 21.0 });
    }

    #[test]
    fn histograms_of_one_name_are_added_up() {
        let one = json!([{"lower_bound": 4, "width": 1, "count": 3}]);
        let mut twice = stats(&one);
        let again = stats(
            &json!([{"lower_bound": 4, "width": 1, "count": 2}, {"lower_bound": 8, "width": 1, "count": 1}]),
        );
        twice["stats"].as_array_mut().unwrap().extend(again["stats"].as_array().unwrap().clone());
        let buckets = Buckets::parse(&twice).unwrap();
        assert_eq!(buckets.count(), 6);
        assert_eq!(buckets.delay().unwrap(), Delay { p50: 5.0, p99: 9.0 });
    }

    #[test]
    fn no_histogram_and_no_value_are_told() {
        let none = Buckets::parse(&json!({"stats": []})).unwrap();
        assert!(none.delay().unwrap_err().to_string().contains("no value"));
        assert!(Buckets::parse(&json!({})).is_err());
    }
}
