//! Saturation detectors named in a profile: who has room left.

use super::Candidate;
use crate::flow_control::policy::saturation::{InFlight, Utilization};
use warmroute_shared_state::policy::plugin::Detector;

/// Whether a candidate has room left, the headroom included. One of unknown or old metrics has none.
pub(super) fn has_room(detector: &Detector, candidate: &Candidate<'_>) -> bool {
    match detector {
        Detector::Utilization(detector) => {
            let Candidate { waiting, kv_usage, scrape_age_ms, .. } = *candidate;
            // Known ones have those since the scrape in them.
            let unseen = waiting.map_or(f64::from(candidate.waiting_since_scrape), |_| 0.0);
            Utilization::of(detector, waiting, kv_usage, scrape_age_ms)
                .is_some_and(|metrics| metrics.has_room(detector, unseen))
        }
        #[allow(clippy::cast_precision_loss)]
        Detector::Concurrency(detector) => {
            let requests = f64::from(candidate.active_requests);
            let in_flight = InFlight { requests, tokens: candidate.uncached_tokens as f64 };
            in_flight.has_room(detector)
        }
    }
}
