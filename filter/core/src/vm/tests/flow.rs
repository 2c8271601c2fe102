//! A worker and the dispatcher of another VM.

use super::workers::Envoy;
use super::*;
use crate::flow_control::protocol::{PoolKey, Request};
use crate::flow_control::worker::{Admission, Event, TimeToLive};

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
