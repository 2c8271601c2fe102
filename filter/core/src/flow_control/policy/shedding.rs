//! Who is refused at once when a pool is full: without flow control whatever has a priority below 0, and by a
//! `probabilistic-admitter` the more of it the fuller the pool is (llm-d-router, `requestcontrol/admission.go`,
//! `requestcontrol/admitter/probabilisticadmitter`).

use super::saturation::{EndpointLoad, InFlight, by_metrics, concurrency, fuller_part, sheds};
use warmroute_shared_state::policy::plugin::{
    ConcurrencyDetector, Detector, ProbabilisticAdmitter, UtilizationDetector,
};
use warmroute_shared_state::policy::scheduler::Named;

/// An endpoint with all that a detector asks of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EndpointUse {
    /// As scraped.
    pub load: EndpointLoad,
    /// What is in flight there, from all workers.
    pub in_flight: InFlight,
    /// Requests that went there since the scrape.
    pub unseen: f64,
}

/// What is known when it is decided whether a request of a priority below 0 may go.
#[derive(Debug, Clone, Copy)]
pub struct Shedding<'a> {
    /// Of a pool without flow control.
    pub detector: Option<&'a Detector>,
    /// In any case.
    pub admitters: &'a [Named<ProbabilisticAdmitter>],
    /// Those that may serve the request.
    pub endpoints: &'a [EndpointUse],
    /// By the clock of the scrapes.
    pub now_ms: u64,
}

impl Shedding<'_> {
    /// Whether the request is refused. `chance`: from 0, below 1, another one at each call. Without any endpoint it
    /// is not for us to say: the pick answers that there is none.
    #[must_use]
    pub fn refuses(&self, priority: i32, mut chance: impl FnMut() -> f64) -> bool {
        if priority >= 0 || self.endpoints.is_empty() {
            return false;
        }
        self.detector.is_some_and(|detector| sheds(priority, self.saturation(detector)))
            || self.admitters.iter().any(|admitter| chance() < self.denial(&admitter.plugin))
    }

    fn saturation(&self, detector: &Detector) -> f64 {
        let role = |endpoint: &EndpointUse| endpoint.load.role;
        fuller_part(self.endpoints, role, |part| match detector {
            Detector::Concurrency(detector) => in_flight(detector, part),
            Detector::Utilization(detector) => self.utilization(detector, part),
        })
    }

    /// The probability of a denial: it rises steeply, and is certain long before the pool is full.
    fn denial(&self, admitter: &ProbabilisticAdmitter) -> f64 {
        let detector = UtilizationDetector {
            queue_depth_threshold: admitter.queue_depth_threshold,
            kv_cache_util_threshold: admitter.kv_cache_util_threshold,
            // Old metrics are better than none where it is a matter of chance anyway.
            metrics_staleness_threshold_ms: f64::INFINITY,
            headroom: 0.0,
        };
        let all: Vec<_> = self.endpoints.iter().collect();
        (self.utilization(&detector, &all).powf(admitter.power) * admitter.k).min(1.0)
    }

    fn utilization(&self, detector: &UtilizationDetector, part: &[&EndpointUse]) -> f64 {
        let metrics: Vec<_> =
            part.iter().map(|e| e.load.utilization(detector, self.now_ms)).collect();
        let unseen = part.iter().map(|endpoint| endpoint.unseen);
        by_metrics(detector, &metrics, unseen, |blind| in_flight(blind, part))
    }
}

fn in_flight(detector: &ConcurrencyDetector, part: &[&EndpointUse]) -> f64 {
    let sum = part.iter().fold(InFlight::default(), |sum, endpoint| InFlight {
        requests: sum.requests + endpoint.in_flight.requests,
        tokens: sum.tokens + endpoint.in_flight.tokens,
    });
    concurrency(detector, sum, part.iter().map(|endpoint| endpoint.in_flight))
}

#[cfg(test)]
mod tests {
    use super::super::saturation::Role;
    use super::*;
    use warmroute_shared_state::endpoint::EndpointId;

    fn endpoint(role: Role, waiting: f32, scraped_ms: Option<u64>) -> EndpointUse {
        let kv_usage = Some(0.0);
        let load =
            EndpointLoad { id: EndpointId(1), role, waiting: Some(waiting), kv_usage, scraped_ms };
        EndpointUse { load, in_flight: InFlight::default(), unseen: 0.0 }
    }

    fn fresh(waiting: f32) -> EndpointUse {
        endpoint(Role::Decode, waiting, Some(1000))
    }

    fn shed(endpoints: &[EndpointUse]) -> Shedding<'_> {
        Shedding { detector: None, admitters: &[], endpoints, now_ms: 1100 }
    }

    crate::tests! {
        fn a_full_pool_refuses_what_is_below_0_and_nothing_else() {
            let detector = Detector::Utilization(UtilizationDetector::default());
            let busy = EndpointUse { in_flight: InFlight { requests: 100.0, tokens: 0.0 }, ..endpoint(Role::Decode, 0.0, None) };
            for (endpoints, refused) in [
                (vec![fresh(5.0)], true),
                (vec![fresh(4.9)], false),
                (vec![fresh(9.0), fresh(1.0)], true),
                (vec![fresh(8.0), fresh(1.0)], false),
                (vec![EndpointUse { unseen: 1.0, ..fresh(4.0) }], true),
                // One of two tells nothing: it counts as full, the other one has room.
                (vec![fresh(1.0), endpoint(Role::Decode, 0.0, Some(100))], false),
                // Nobody tells anything: by what is in flight.
                (vec![endpoint(Role::Decode, 9.0, Some(100))], false),
                (vec![busy], true),
                // Those that prefill are full.
                (vec![endpoint(Role::Prefill, 5.0, Some(1000)), fresh(0.0)], true),
                (vec![], false),
            ] {
                let shedding = Shedding { detector: Some(&detector), ..shed(&endpoints) };
                assert_eq!(shedding.refuses(-1, || 0.0), refused, "{endpoints:?}");
                assert!(!shedding.refuses(0, || 0.0));
                assert!(!shed(&endpoints).refuses(-1, || 0.0), "flow control decides there");
            }
        }

        fn an_admitter_denies_by_chance() {
            let admitter = ProbabilisticAdmitter {
                queue_depth_threshold: 5.0, kv_cache_util_threshold: 0.8, power: 2.0, k: 3.0,
            };
            // Saturations of 0.4 (the mean over both, parts or not) and 0.8: 0.4² × 3 = 0.48; 1 at most.
            let some = [endpoint(Role::Prefill, 0.0, Some(1)), fresh(4.0)];
            let many = [fresh(4.0)];
            for (endpoints, chance, denied) in [
                (&some[..], 0.47, true), (&some, 0.49, false), (&some, 0.99, false),
                (&many, 0.0, true), (&many, 0.999, true), (&[fresh(0.0)], 0.0, false),
                // What never told anything is as full as what is in flight says.
                (&[endpoint(Role::Decode, 9.0, None)], 0.0, false),
            ] {
                let admitters = [Named { name: String::new(), plugin: admitter }];
                let shedding = Shedding { admitters: &admitters, ..shed(endpoints) };
                assert_eq!(shedding.refuses(-1, || chance), denied, "{endpoints:?} {chance}");
                assert!(!shedding.refuses(0, || chance));
            }
        }
    }
}
