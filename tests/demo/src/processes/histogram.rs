//! A histogram that the filter keeps in Envoy.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{ProcessError, get, wait_until};

/// Envoy merges its workers' values every five seconds.
const MERGED: Duration = Duration::from_secs(6);

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
    /// What the histogram whose name ends with `name` holds, as far as Envoy has merged it.
    ///
    /// # Errors
    /// When the admin interface does not tell.
    pub async fn read(admin: SocketAddr, name: &str) -> Result<Self, ProcessError> {
        let path = format!("/stats?format=json&histogram_buckets=detailed&filter={name}");
        let stats = get(admin, &path).await?.json();
        Self::parse(&stats, name).ok_or_else(|| ProcessError::Control {
            method: "GET",
            address: admin,
            path,
            reason: "Envoy's statistics have another form".to_owned(),
        })
    }

    /// The same once nothing more comes.
    ///
    /// # Errors
    /// When it does not cease; `logs` tells where to look.
    pub async fn quiet(admin: SocketAddr, name: &str, logs: &Path) -> Result<Self, ProcessError> {
        let still = async || {
            let before = Self::read(admin, name).await.ok()?;
            tokio::time::sleep(MERGED).await;
            let now = Self::read(admin, name).await.ok()?;
            (now.count() == before.count()).then_some(now)
        };
        wait_until(&format!("no more values of {name}"), MERGED * 10, logs, still).await
    }

    fn parse(stats: &Value, name: &str) -> Option<Self> {
        let all = stats["stats"].as_array()?;
        let details = all.iter().filter_map(|entry| entry["histograms"]["details"].as_array());
        let named =
            details.flatten().filter(|one| one["name"].as_str().is_some_and(|n| n.ends_with(name)));
        // One for each scope that has the name; before the first value there is none.
        let mut sum: Vec<Bucket> = Vec::new();
        for one in named {
            for bucket in Vec::<Bucket>::deserialize(&one["totals"]).ok()? {
                match sum.iter_mut().find(|known| known.lower_bound == bucket.lower_bound) {
                    Some(known) => known.count += bucket.count,
                    None => sum.push(bucket),
                }
            }
        }
        sum.sort_by(|a, b| a.lower_bound.total_cmp(&b.lower_bound));
        Some(Self(sum))
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

    /// The upper end of the bucket in which this share of the values ends; `None` = there is none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (share * self.count() as f64).ceil() as u64;
        let mut seen = 0;
        let holds = |bucket: &&Bucket| {
            seen += bucket.count;
            seen >= rank
        };
        self.0.iter().find(holds).map(|bucket| bucket.lower_bound + bucket.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NAME: &str = "warmroute.decision_us";

    fn stats(totals: &Value) -> Value {
        json!({"stats": [
            {"name": "a.counter", "value": 3},
            {"histograms": {"supported_percentiles": [0, 50], "details": [
                {"name": "wasmcustom.warmroute.decision_us", "totals": totals, "intervals": [], "percentiles": []},
                {"name": "wasmcustom.other", "totals": [{"lower_bound": 1, "width": 1, "count": 7}]},
            ]}},
        ]})
    }

    fn ends(buckets: &Buckets) -> [Option<f64>; 2] {
        [0.5, 0.99].map(|share| buckets.quantile(share))
    }

    #[test]
    fn only_what_came_in_between_counts() {
        let before = json!([{"lower_bound": 90, "width": 10, "count": 50}]);
        let after = json!([
            {"lower_bound": 90, "width": 10, "count": 50},
            {"lower_bound": 1, "width": 0.1, "count": 98},
            {"lower_bound": 20, "width": 1, "count": 1},
            {"lower_bound": 40, "width": 1, "count": 1},
        ]);
        let earlier = Buckets::parse(&stats(&before), NAME).unwrap();
        let during = Buckets::parse(&stats(&after), NAME).unwrap().since(&earlier);
        assert_eq!(during.count(), 100);
        assert_eq!(ends(&during), [Some(1.1), Some(21.0)]);
    }

    #[test]
    fn histograms_of_one_name_are_added_up() {
        let one = json!([{"lower_bound": 4, "width": 1, "count": 3}]);
        let mut twice = stats(&one);
        let again = stats(
            &json!([{"lower_bound": 4, "width": 1, "count": 2}, {"lower_bound": 8, "width": 1, "count": 1}]),
        );
        twice["stats"].as_array_mut().unwrap().extend(again["stats"].as_array().unwrap().clone());
        let buckets = Buckets::parse(&twice, NAME).unwrap();
        assert_eq!(buckets.count(), 6);
        assert_eq!(ends(&buckets), [Some(5.0), Some(9.0)]);
    }

    #[test]
    fn no_histogram_has_no_quantiles_and_another_form_is_told() {
        let none = Buckets::parse(&json!({"stats": []}), NAME).unwrap();
        assert_eq!(ends(&none), [None, None]);
        assert_eq!(Buckets::parse(&json!({}), NAME), None);
    }
}
