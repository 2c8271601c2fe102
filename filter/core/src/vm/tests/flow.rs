//! A worker and the dispatcher of another VM.

use super::workers::Envoy;
use super::*;
use crate::flow_control::protocol::{FromWorker, PoolKey, Report, Request};
use crate::flow_control::tests::control;
use crate::flow_control::worker::{Admission, Event, TimeToLive};
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::flow::FlowControl;
use warmroute_shared_state::policy::plugin::{
    ConcurrencyDetector, ConcurrencyMode, Detector, Fairness,
};
use warmroute_shared_state::policy::routing::Pool;

const FOR_EVER: TimeToLive = TimeToLive { request_ms: 0, no_endpoint_ms: 0 };

fn request(now_ms: u64) -> Request {
    Request {
        pool: PoolKey(7),
        priority: 0,
        flow: "x".to_owned(),
        tokens: 10,
        bytes: 100,
        since_ms: now_ms,
        deadline_ms: u64::MAX,
        slo_ms: u64::MAX,
        budgets: Vec::new(),
    }
}

impl Envoy {
    /// Carries reports and orders between VM 0, the dispatcher, and this worker until there are none.
    fn carry(&mut self, worker: usize) {
        loop {
            let reports = self.vms[worker].take_reports();
            let messages = reports.iter().map(|bytes| Message::decode(bytes).unwrap());
            self.vms[0].on_messages(&self.store, messages, self.now);
            let orders = self.vms[0].take_orders();
            for order in &orders {
                assert_eq!(Some(order.slot), self.vms[worker].slot());
                self.vms[worker].on_order(&order.bytes, self.now);
            }
            if reports.is_empty() && orders.is_empty() {
                return;
            }
        }
    }
}

crate::tests! {
    fn a_worker_that_nobody_knows_gets_its_turn_with_its_first_tick() {
        let mut envoy = Envoy::new(1, 1);
        envoy.vms[0].tick(&envoy.store, envoy.now);
        envoy.now += 700;
        envoy.vms[0].tick(&envoy.store, envoy.now);
        let now = envoy.now;
        let admission = envoy.vms[1].acquire(request(now), 3, FOR_EVER, now);
        assert!(matches!(admission, Admission::Parked(_)));
        assert_eq!(envoy.vms[1].take_reports(), [[0; 0]; 0], "it has no row: nobody could answer");
        envoy.vms[1].tick(&envoy.store, now);
        envoy.carry(1);
        let events = envoy.vms[1].take_flow_events();
        assert!(matches!(events[..], [Event::Granted { context: 3, waited_ms: 0, .. }]), "{events:?}");
    }

    fn the_dispatcher_learns_at_once_what_the_agent_tells_of_policy_and_endpoints() {
        let mut envoy = Envoy::new(1, 0);
        let policy = |flow: &[FlowControl]| {
            AgentOp::Policy(Policy { flow: flow.to_vec(), ..Policy::default() }.to_json().into())
        };
        let flow = [control(1, Fairness::GlobalStrict)];
        let endpoint = AgentOp::Endpoint(record(0));
        // Without endpoints a pool is full.
        for (epoch, (ops, saturation)) in (10..).zip([
            (vec![policy(&flow), endpoint.clone()], Some(0.0)),
            (vec![policy(&flow)], Some(1.0)),
            (vec![policy(&flow), endpoint.clone()], Some(0.0)),
            (vec![policy(&[]), endpoint.clone()], None),
            (vec![policy(&flow), endpoint], Some(0.0)),
        ]) {
            let kind = PageKind::Snapshot { page: 0, pages: 1 };
            let page = Page { position: Position { epoch, seq: 1 }, kind, ops };
            envoy.vms[0].on_page(&envoy.store, &page.encode(), envoy.now).unwrap();
            let dispatching = envoy.vms[0].flow.dispatcher.as_ref().unwrap();
            let pools: Vec<_> = dispatching.dispatcher.pools(envoy.now).collect();
            assert_eq!(pools.first().map(|pool| pool.saturation), saturation, "{epoch}");
        }
    }

    fn where_it_went_is_said_by_the_policy_that_its_pool_is_of() {
        // Since it was granted, the configuration in force has become another one, without any flow control.
        let hybrid = Detector::Concurrency(ConcurrencyDetector {
            mode: ConcurrencyMode::Hybrid, max_concurrency: 9, max_token_concurrency: 9, headroom: 0.0,
        });
        let flow = FlowControl { scheduler: 1, detector: hybrid, ..control(9, Fairness::GlobalStrict) };
        let pool = |scheduler| Pool { name: "p".into(), cluster: "p".into(), fail_open: false, scheduler };
        let policy = Policy { flow: vec![flow], ..Policy::default() };
        for (pool, said) in [(pool(1), true), (pool(0), false)] {
            let mut envoy = Envoy::new(1, 1);
            envoy.vms[1].tick(&envoy.store, envoy.now);
            envoy.carry(1);
            let now = envoy.now + 700;
            envoy.now = now;
            envoy.vms[0].tick(&envoy.store, now);
            let Admission::Parked(ticket) = envoy.vms[1].acquire(request(now), 3, FOR_EVER, now) else { panic!() };
            envoy.carry(1);
            let (Choice::Routed(routed), _) = envoy.ask(1, &Ask::default(), &[]) else { panic!() };
            envoy.vms[1].placed(ticket, &policy, Some(&pool), &routed, now);
            let reports = envoy.vms[1].take_reports();
            let placed = |bytes: &Vec<u8>| match Message::decode(bytes) {
                Ok(Message::Flow { report, .. }) => {
                    matches!(FromWorker::decode(report).unwrap().report, Report::Placed { .. })
                }
                _ => false,
            };
            assert_eq!(reports.iter().any(placed), said, "{pool:?}");
        }
    }

    fn what_a_vm_without_a_row_would_say_is_bounded() {
        let mut envoy = Envoy::new(1, 1);
        for context in 0..3000 {
            envoy.vms[1].acquire(request(NOW), context, FOR_EVER, NOW);
            assert_eq!(envoy.vms[1].take_reports().len(), 0);
        }
        envoy.vms[0].tick(&envoy.store, envoy.now);
        envoy.vms[1].tick(&envoy.store, envoy.now);
        envoy.carry(1);
        envoy.now += 700;
        envoy.vms[0].tick(&envoy.store, envoy.now);
        envoy.carry(1);
        let events = envoy.vms[1].take_flow_events();
        assert_eq!(events.len(), 3000, "the dispatcher asked for what it had missed");
    }
}
