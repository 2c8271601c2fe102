//! When a pool is full (llm-d-router, `saturationdetector`): 1 and above is full.

use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::plugin::{
    ConcurrencyDetector, ConcurrencyMode, UtilizationDetector,
};

/// Which phases of a request an endpoint serves, by its label `llm-d.ai/role`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Prefill only.
    Prefill,
    /// Decode only; without a label, too.
    #[default]
    Decode,
    /// Both.
    Both,
    /// Neither: it does not count.
    Other,
}

impl Role {
    /// The role by the label's value.
    #[must_use]
    pub fn of_label(label: Option<&str>) -> Self {
        match label {
            None | Some("" | "decode") => Self::Decode,
            Some("prefill" | "encode-prefill") => Self::Prefill,
            Some("prefill-decode" | "both" | "encode-prefill-decode") => Self::Both,
            Some(_) => Self::Other,
        }
    }

    /// Whether it takes part in prefill (or else in decode).
    #[must_use]
    pub fn serves(self, prefill: bool) -> bool {
        self == Self::Both || self == if prefill { Self::Prefill } else { Self::Decode }
    }
}

/// An endpoint of a pool as the dispatcher's VM sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EndpointLoad {
    /// Which.
    pub id: EndpointId,
    /// Its part.
    pub role: Role,
    /// Requests that wait in the engine, as scraped.
    pub waiting: Option<f32>,
    /// Share of KV blocks in use, as scraped.
    pub kv_usage: Option<f32>,
    /// When that scrape began, by the clock of `now_ms`; `None`: there was none.
    pub scraped_ms: Option<u64>,
}

/// Requests and tokens in flight at one endpoint, fractions of what went to one that is not known yet included.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct InFlight {
    /// Requests.
    pub requests: f64,
    /// Tokens.
    pub tokens: f64,
}

impl InFlight {
    /// As a filter: whether there is room for more, the headroom included. A limit is a whole number, at least 1.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn has_room(self, detector: &ConcurrencyDetector) -> bool {
        let limit = |most: u64| (most.max(1) as f64 * (1.0 + detector.headroom)).trunc();
        let requests = self.requests < limit(detector.max_concurrency);
        let tokens = self.tokens < limit(detector.max_token_concurrency);
        match detector.mode {
            ConcurrencyMode::Requests => requests,
            ConcurrencyMode::Tokens => tokens,
            ConcurrencyMode::Hybrid => requests && tokens,
        }
    }
}

/// Saturation by what is in flight: over the endpoints' sum, or for `hybrid` the mean of the greater ratio of each.
/// `sum` is what is in flight at all of them. A pool without endpoints is full.
#[must_use]
pub fn concurrency(
    detector: &ConcurrencyDetector,
    sum: InFlight,
    endpoints: impl ExactSizeIterator<Item = InFlight>,
) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let (n, max_requests, max_tokens) = (
        endpoints.len() as f64,
        detector.max_concurrency.max(1) as f64,
        detector.max_token_concurrency.max(1) as f64,
    );
    if n < 1.0 {
        return 1.0;
    }
    match detector.mode {
        // Sums of whole numbers: exactly 1 when the last place is taken.
        ConcurrencyMode::Requests => sum.requests / (n * max_requests),
        ConcurrencyMode::Tokens => sum.tokens / (n * max_tokens),
        ConcurrencyMode::Hybrid => {
            endpoints.map(|e| (e.requests / max_requests).max(e.tokens / max_tokens)).sum::<f64>()
                / n
        }
    }
}

/// What an endpoint's metrics say: one that is missing counts as 0, as in llm-d, if the other is there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Utilization {
    waiting: f64,
    kv_usage: f64,
}

impl Utilization {
    /// By a scrape of this age, in ms; `None` if there was none, it is older than the detector takes, or it says
    /// neither.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn of(
        detector: &UtilizationDetector,
        waiting: Option<f32>,
        kv_usage: Option<f32>,
        age_ms: Option<u64>,
    ) -> Option<Self> {
        let known = |value: Option<f32>| value.map(f64::from).filter(|value| value.is_finite());
        let (waiting, kv_usage) = (known(waiting), known(kv_usage));
        let fresh = age_ms? as f64 <= detector.metrics_staleness_threshold_ms;
        let said = waiting.is_some() || kv_usage.is_some();
        (fresh && said)
            .then(|| Self { waiting: waiting.unwrap_or(0.0), kv_usage: kv_usage.unwrap_or(0.0) })
    }

    /// The greater of waiting requests and KV usage over their thresholds. `unseen` requests wait beside those that
    /// the scrape saw.
    #[must_use]
    pub fn saturation(self, detector: &UtilizationDetector, unseen: f64) -> f64 {
        let waiting = (self.waiting + unseen) / detector.queue_depth_threshold;
        waiting.max(self.kv_usage / detector.kv_cache_util_threshold)
    }

    /// As a filter: strictly below both thresholds, each raised by the headroom.
    #[must_use]
    pub fn has_room(self, detector: &UtilizationDetector, unseen: f64) -> bool {
        self.saturation(detector, unseen) < 1.0 + detector.headroom
    }
}

impl EndpointLoad {
    /// Its metrics at `now_ms`, unless they are missing or older than the detector takes.
    #[must_use]
    pub fn utilization(&self, detector: &UtilizationDetector, now_ms: u64) -> Option<Utilization> {
        let age_ms = self.scraped_ms.map(|scraped_ms| now_ms.saturating_sub(scraped_ms));
        Utilization::of(detector, self.waiting, self.kv_usage, age_ms)
    }
}

/// Saturation by metrics: the mean over the endpoints. One without metrics counts as full, and so does a pool without
/// endpoints. Beside each: how many requests went there since its scrape (on the average).
#[must_use]
pub fn utilization(
    detector: &UtilizationDetector,
    endpoints: impl ExactSizeIterator<Item = (Option<Utilization>, f64)>,
) -> f64 {
    #[allow(clippy::cast_precision_loss)]
    let n = endpoints.len() as f64;
    if n < 1.0 {
        return 1.0;
    }
    let of = |(metrics, unseen): (Option<Utilization>, f64)| {
        metrics.map_or(1.0, |metrics| metrics.saturation(detector, unseen))
    };
    endpoints.map(of).sum::<f64>() / n
}

/// While no endpoint has metrics that can be believed, a pool is as full as what is in flight says, at llm-d's default
/// of so many requests for each endpoint: it must neither stand still nor be flooded.
const BLIND: ConcurrencyDetector = ConcurrencyDetector {
    mode: ConcurrencyMode::Requests,
    max_concurrency: 100,
    max_token_concurrency: u64::MAX,
    headroom: 0.0,
};

/// How full a pool is if `saturation` is that of some of its endpoints: the fuller of those that prefill and those that
/// decode. With no such endpoints, all of them.
pub fn fuller_part<T>(
    endpoints: &[T],
    role: impl Fn(&T) -> Role,
    saturation: impl Fn(&[&T]) -> f64,
) -> f64 {
    let part = |prefill| {
        let part: Vec<_> = endpoints.iter().filter(|e| role(e).serves(prefill)).collect();
        (!part.is_empty()).then(|| saturation(&part))
    };
    match (part(true), part(false)) {
        (Some(a), Some(b)) => a.max(b),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => saturation(&endpoints.iter().collect::<Vec<_>>()),
    }
}

/// How full a part of the pool is by its metrics; if nobody tells any, by what is in flight: `blind`.
pub fn by_metrics(
    detector: &UtilizationDetector,
    metrics: &[Option<Utilization>],
    unseen: impl ExactSizeIterator<Item = f64>,
    blind: impl FnOnce(&ConcurrencyDetector) -> f64,
) -> f64 {
    if metrics.iter().all(Option::is_none) {
        return blind(&BLIND);
    }
    utilization(detector, metrics.iter().copied().zip(unseen))
}

/// Without flow control, a full pool refuses requests of a priority below 0 (429) and no others.
#[must_use]
pub fn sheds(priority: i32, saturation: f64) -> bool {
    priority < 0 && saturation >= 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(max: u64, in_flight: &[f64]) -> f64 {
        let detector = ConcurrencyDetector {
            mode: ConcurrencyMode::Requests,
            max_concurrency: max,
            max_token_concurrency: 100,
            headroom: 0.0,
        };
        let sum = InFlight { requests: in_flight.iter().sum(), tokens: 0.0 };
        concurrency(
            &detector,
            sum,
            in_flight.iter().map(|r| InFlight { requests: *r, tokens: 0.0 }),
        )
    }

    crate::tests! {
        fn concurrency_is_what_is_in_flight_over_what_may_be() {
            assert_eq!(requests(10, &[15.0, 15.0]), 1.5);
            assert_eq!(requests(10, &[15.0, 5.0]), 1.0);
            assert_eq!(requests(10, &[5.0]), 0.5);
            assert_eq!(requests(10, &[]), 1.0);
            let hybrid = ConcurrencyDetector {
                mode: ConcurrencyMode::Hybrid,
                max_concurrency: 10,
                max_token_concurrency: 100,
                headroom: 0.0,
            };
            let at = [InFlight { requests: 5.0, tokens: 90.0 }, InFlight { requests: 1.0, tokens: 0.0 }];
            assert_eq!(concurrency(&hybrid, InFlight::default(), at.into_iter()), 0.5);
        }

        fn utilization_is_the_mean_of_the_fullest_signals() {
            let detector = UtilizationDetector {
                queue_depth_threshold: 5.0,
                kv_cache_util_threshold: 0.9,
                metrics_staleness_threshold_ms: 100.0,
                headroom: 0.0,
            };
            let endpoint = |waiting, kv_usage, age: u64| EndpointLoad {
                id: EndpointId(1),
                role: Role::Decode,
                waiting,
                kv_usage,
                scraped_ms: Some(1000 - age),
            };
            for (endpoints, expected) in [
                (vec![endpoint(Some(1.0), Some(0.95), 0)], 1.05556),
                (vec![endpoint(Some(1.0), Some(0.1), 101)], 1.0),
                (vec![endpoint(Some(1.0), Some(0.1), 0), endpoint(Some(0.0), Some(0.2), 300)], 0.6),
                (vec![endpoint(Some(2.0), None, 0)], 0.4),
                (vec![endpoint(Some(f32::NAN), None, 0)], 1.0),
                (vec![], 1.0),
            ] {
                let seen = endpoints.iter().map(|e| (e.utilization(&detector, 1000), 0.0));
                let saturation = utilization(&detector, seen);
                assert!((saturation - expected).abs() < 1e-4, "{endpoints:?} {saturation}");
            }
        }

        fn without_flow_control_only_what_is_below_0_is_shed() {
            assert!(sheds(-1, 1.0));
            assert!(!sheds(-1, 0.99) && !sheds(0, 2.0));
        }

        fn roles_are_read_from_the_label() {
            for (label, prefill, decode) in [
                (None, false, true),
                (Some("decode"), false, true),
                (Some("prefill"), true, false),
                (Some("encode-prefill"), true, false),
                (Some("both"), true, true),
                (Some("prefill-decode"), true, true),
                (Some("encode"), false, false),
                (Some("?"), false, false),
            ] {
                let role = Role::of_label(label);
                assert_eq!((role.serves(true), role.serves(false)), (prefill, decode), "{label:?}");
            }
        }
    }
}
