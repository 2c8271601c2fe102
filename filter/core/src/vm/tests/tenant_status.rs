//! What the dispatcher's VM tells the agent of tenants.

use super::workers::Envoy;
use super::*;
use crate::flow_control::protocol::Request;
use crate::flow_control::worker::TimeToLive;
use crate::quota::{Budget, Demand};
use crate::vm::pool_key;
use warmroute_shared_state::policy::Policy;
use warmroute_shared_state::policy::tenants::{Accounting, Limit, Tenant};
use warmroute_shared_state::tenant_status::{BudgetStatus, FlowStatus, Level, TenantStatus};

const FOR_EVER: TimeToLive = TimeToLive { request_ms: 0, no_endpoint_ms: 0 };

fn tenant(name: &str, limits: Vec<Limit>) -> Tenant {
    Tenant {
        name: name.into(),
        key_hashes: Vec::new(),
        jwt: None,
        strip_key: true,
        fairness_id: name.into(),
        objective: None,
        tier: None,
        limits,
        accounting: Accounting::Generated,
    }
}

fn limited() -> Tenant {
    let of_m = Limit {
        model: "m".into(),
        tpm: Some(1000),
        inflight_tokens: Some(500),
        ..Limit::default()
    };
    let of_rest = Limit { model: "*".into(), rpm: Some(60), ..Limit::default() };
    tenant("a", vec![of_m, of_rest])
}

/// An Envoy of this policy whose dispatcher is open.
fn envoy(tenants: Vec<Tenant>) -> Envoy {
    let mut envoy = Envoy::new(1, 1);
    envoy.tell_policy(2, tenants);
    envoy.pass(700);
    envoy
}

impl Envoy {
    fn tell_policy(&mut self, seq: u64, tenants: Vec<Tenant>) {
        let policy = Policy { tenants, ..Policy::default() };
        let page = Page {
            position: Position { epoch: 9, seq },
            kind: PageKind::Delta { from_seq: seq - 1 },
            ops: vec![AgentOp::Policy(policy.to_json().as_slice().into())],
        };
        self.vms[0].on_page(&self.store, &page.encode(), self.now).unwrap();
    }

    fn pass(&mut self, ms: u64) {
        self.now += ms;
        self.vms[0].tick(&self.store, self.now);
    }

    fn told(&mut self) -> Option<TenantStatus> {
        let body = self.vms[0].next_tenant_status(self.now)?;
        Some(TenantStatus::from_json(&body).unwrap())
    }
}

crate::tests! {
    fn budgets_and_flows_are_told_with_exact_numbers() {
        let mut envoy = envoy(vec![limited(), tenant("free", Vec::new())]);
        let demand = Demand { input_tokens: 300, max_output: Some(100), answers: 1 };
        let request = Request {
            pool: pool_key(None),
            flow: "a".into(),
            priority: -2,
            tokens: 400,
            since_ms: envoy.now,
            budgets: Budget::of(&limited(), "m", &demand).asks,
            ..Request::default()
        };
        let now = envoy.now;
        envoy.vms[0].acquire(request, 3, FOR_EVER, now);
        let left = |limit, remaining| Some(Level { limit, remaining });
        let expected = TenantStatus {
            // VM 0's incarnation: the first dispatcher's.
            envoy: 1,
            budgets: vec![
                BudgetStatus {
                    tenant: "a".into(),
                    model: "m".into(),
                    tpm: left(1000, 600),
                    inflight_tokens: left(500, 100),
                    ..BudgetStatus::default()
                },
                BudgetStatus {
                    tenant: "a".into(),
                    model: "*".into(),
                    rpm: left(60, 60),
                    ..BudgetStatus::default()
                },
            ],
            flows: vec![FlowStatus {
                priority: Some(-2),
                fairness_id: "a".into(),
                in_flight: 1,
                in_flight_tokens: 400,
                ..FlowStatus::default()
            }],
        };
        assert_eq!(envoy.told(), Some(expected));
        assert_eq!(envoy.vms[1].next_tenant_status(now), None, "only the dispatcher tells");
    }

    fn it_is_told_once_a_second_if_it_changed_and_every_three_seconds_else() {
        let mut envoy = envoy(vec![limited()]);
        assert_eq!(envoy.told().unwrap().budgets.len(), 2);
        for _ in 0..2 {
            envoy.pass(1000);
            assert_eq!(envoy.told(), None, "nothing changed");
        }
        envoy.pass(1000);
        assert_eq!(envoy.told().unwrap().budgets.len(), 2);
        envoy.pass(100);
        envoy.tell_policy(3, Vec::new());
        envoy.pass(800);
        assert_eq!(envoy.told(), None, "not yet");
        envoy.pass(100);
        assert!(envoy.told().unwrap().is_empty());
        envoy.pass(10_000);
        assert_eq!(envoy.told(), None, "there is nothing any more");
    }

    fn who_has_neither_tenants_nor_queues_tells_nothing() {
        assert_eq!(envoy(vec![tenant("free", Vec::new())]).told(), None);
    }

    fn it_is_not_told_before_the_dispatcher_has_heard_of_all() {
        let mut envoy = envoy(vec![limited()]);
        envoy.vms[1].tick(&envoy.store, envoy.now);
        envoy.pass(100);
        envoy.vms[0].flow.dispatcher = None;
        envoy.pass(1);
        assert_eq!(envoy.told(), None, "VM 1 has not said what it has");
        envoy.pass(600);
        assert_eq!(envoy.told().unwrap().budgets.len(), 2);
    }

    fn all_dispatchers_of_an_envoy_have_its_number() {
        let mut envoy = envoy(vec![limited()]);
        let first = envoy.told().unwrap().envoy;
        // VM 0 falls silent, VM 1 takes over.
        for _ in 0..2 {
            envoy.now += 3000;
            envoy.vms[1].tick(&envoy.store, envoy.now);
        }
        let body = envoy.vms[1].next_tenant_status(envoy.now).unwrap();
        assert_eq!(TenantStatus::from_json(&body).unwrap().envoy, first);
    }
}
