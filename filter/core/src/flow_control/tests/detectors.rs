//! When the pool is full, as the dispatcher counts it.

use super::fleet::{FOR_EVER, Fleet, control, endpoint, request};
use crate::flow_control::dispatcher::places_matter;
use crate::flow_control::policy::saturation::Role;
use crate::flow_control::protocol::{Request, Usage};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::flow::Band;
use warmroute_shared_state::policy::plugin::{
    ConcurrencyDetector, ConcurrencyMode, Detector, Fairness, UsageLimit, UtilizationDetector,
};

fn detector(mode: ConcurrencyMode, requests: u64, tokens: u64) -> Detector {
    Detector::Concurrency(ConcurrencyDetector {
        mode,
        max_concurrency: requests,
        max_token_concurrency: tokens,
        headroom: 0.0,
    })
}

fn fleet(detector: Detector) -> Fleet {
    let mut config = control(1, Fairness::GlobalStrict);
    config.detector = detector;
    Fleet::new(4, config)
}

crate::tests! {
    fn tokens_in_flight_are_counted_as_estimated() {
        let mut fleet = fleet(detector(ConcurrencyMode::Tokens, 1, 1000));
        for n in 0..6 {
            fleet.send(n % 4, &format!("n{n}"), Request { tokens: 300, ..request("x", 0, n as u64) });
        }
        assert_eq!(fleet.went(), ["n0", "n1", "n2", "n3"], "the last one goes over it");
        fleet.release("n0");
        assert_eq!(fleet.went(), ["n4"], "900 were left");
        fleet.release("n1");
        assert_eq!(fleet.went(), ["n5"]);
    }

    fn leases_of_tokens_are_kept() {
        let mut fleet = fleet(detector(ConcurrencyMode::Tokens, 1, 100_000));
        for n in 0..500 {
            fleet.send_with(n % 4, &format!("n{n}"), Request { tokens: 700, ..request("x", 0, 1) }, FOR_EVER);
        }
        assert!(fleet.held() > 0, "some were leased");
        fleet.settle();
        // 143 × 700 is the first sum at or above the limit.
        assert_eq!(fleet.held(), 143);
    }

    fn prefill_and_decode_are_full_each_for_itself() {
        let mut fleet = fleet(detector(ConcurrencyMode::Requests, 2, 1));
        let with_role = |id, role| crate::flow_control::policy::saturation::EndpointLoad {
            role,
            ..endpoint(id)
        };
        let decode = [2, 3].map(|id| with_role(id, Role::Decode));
        fleet.endpoints = decode.into_iter().chain([with_role(1, Role::Prefill)]).collect();
        assert!(places_matter(&fleet.control.detector, || fleet.endpoints.iter().map(|e| e.role)));
        fleet.configure();
        let ids = |ids: &[u64]| ids.iter().map(|id| EndpointId(*id)).collect::<Vec<_>>();
        for n in 0..4 {
            fleet.send(n, &format!("n{n}"), request("x", 0, n as u64));
        }
        assert_eq!(fleet.went(), ["n0", "n1"], "the prefill endpoint has two places");
        fleet.place("n0", &ids(&[2]));
        assert_eq!(fleet.went(), ["n2"], "it needs no prefill");
        fleet.place("n1", &ids(&[1, 2]));
        assert_eq!(fleet.went(), [""; 0], "n2 may need one");
        fleet.place("n2", &ids(&[3]));
        assert_eq!(fleet.went(), ["n3"], "one of four decode places is left");
        fleet.place("n3", &ids(&[3]));
        fleet.send(0, "n4", request("x", 0, 9));
        assert_eq!(fleet.went(), [""; 0], "all decode places are taken");
        fleet.release("n1");
        assert_eq!(fleet.went(), ["n4"]);
        ["n0", "n2", "n3", "n4"].into_iter().for_each(|name| fleet.release(name));
        assert_eq!(fleet.counted(), (0, 0));
    }

    fn hybrid_looks_at_each_endpoint() {
        let mut fleet = fleet(detector(ConcurrencyMode::Hybrid, 10, 1000));
        fleet.endpoints = vec![endpoint(1), endpoint(2)];
        fleet.configure();
        for n in 0..2 {
            fleet.send(n, &format!("n{n}"), Request { tokens: 1000, ..request("x", 0, n as u64) });
            fleet.place(&format!("n{n}"), &[EndpointId(1)]);
        }
        fleet.send(0, "n2", request("x", 0, 9));
        assert_eq!(fleet.went(), ["n0", "n1"], "mean of 2 and 0");
        fleet.release_with("n0", Usage::default(), None);
        fleet.settle();
        assert_eq!(fleet.went(), ["n2"]);
    }

    fn the_soft_ceiling_lets_lower_priorities_through_by_and_by() {
        let mut config = control(4, Fairness::GlobalStrict);
        config.bands.push(Band { priority: 9, limits: config.default_band.clone() });
        config.usage_limit = UsageLimit::SoftReflective;
        let mut fleet = Fleet::new(4, config);
        for n in 0..3 {
            fleet.send(n, &format!("high{n}"), request("y", 9, 0));
        }
        fleet.send(0, "low", request("x", 0, 0));
        assert_eq!(fleet.went(), ["high0", "high1", "high2"]);
        // At three quarters, each third decision.
        fleet.pass(100);
        assert_eq!(fleet.went(), ["low"]);
    }

    fn without_metrics_the_pool_neither_stands_still_nor_is_flooded() {
        let mut fleet = fleet(Detector::Utilization(UtilizationDetector::default()));
        for n in 0..150 {
            fleet.send(n % 4, &format!("n{n}"), request("x", 0, n as u64));
        }
        assert_eq!(fleet.went().len(), 100);
        let now_ms = fleet.now_ms;
        assert_eq!(fleet.dispatcher().pools(now_ms).next().unwrap().stale_endpoints, 1);
        // Metrics come: they show an idle engine, and all requests that went since count as waiting there.
        fleet.now_ms += 10;
        fleet.endpoints[0].waiting = Some(0.0);
        fleet.endpoints[0].kv_usage = Some(0.1);
        fleet.endpoints[0].scraped_ms = Some(fleet.now_ms);
        fleet.configure();
        fleet.settle();
        assert_eq!(fleet.went().len(), 5, "as many as may wait");
        fleet.release("n0");
        assert_eq!(fleet.went().len(), 0, "the metrics do not show it yet");
        fleet.release("n104");
        assert_eq!(fleet.went().len(), 1, "that one counted itself");
    }
}
