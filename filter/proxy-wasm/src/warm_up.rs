//! Runs the hot path on a made-up body when a VM is made: the first pass through fresh memory costs ten times
//! what later ones do, and no client should pay for it.

use warmroute_core::config::PluginConfig;
use warmroute_core::exchange::{BodyBudget, Env, Exchange, Headers, RequestHead, Step};
use warmroute_core::ledger::Outbox;
use warmroute_core::request::ScratchPool;
use warmroute_core::vm::{MemoryStore, VmState};
use warmroute_shared_state::endpoint::{Availability, EndpointId, EndpointRecord};
use warmroute_shared_state::stream::{AgentOp, Page, PageKind, Position};

const PASSES: u64 = 24;
const BODY_BYTES: usize = 128 << 10;
const ENDPOINTS: u16 = 8;

/// Warms code and memory up, on shared data of its own.
pub(crate) fn run() {
    let Ok(config) = PluginConfig::parse(br#"{"pool":"warm-up"}"#) else { return };
    let store = MemoryStore::default();
    let mut vm = VmState::new(1, config.settings());
    vm.attach(&store);
    vm.tick(&store, 1);
    if vm.on_page(&store, &made_up_table().encode(), 1).is_err() {
        return;
    }
    let body = made_up_body();
    let (mut scratches, mut outbox) = (ScratchPool::default(), Vec::new());
    let mut bodies = BodyBudget::default();
    let mut ledger = Outbox::new(1);
    for now_ms in 2..PASSES {
        let mut exchange = Exchange::default();
        let mut env = Env {
            vm: &mut vm,
            store: &store,
            config: &config,
            now_ms,
            random: &mut || 0,
            bodies: &mut bodies,
            context: 0,
            jwt_claim: &|_| None,
            ledger: &mut ledger,
            scratches: &mut scratches,
            outbox: &mut outbox,
        };
        let headers = [(":method", "POST"), (":path", "/v1/chat/completions")];
        let headers = Headers::new(headers, false);
        let head = RequestHead { headers, end_of_stream: false };
        if exchange.on_request_headers(&mut env, head) == Step::Pause {
            exchange.on_request_body(&mut env, &body);
            exchange.on_request_end(&mut env);
        }
        exchange.on_done(&mut env, false);
        outbox.clear();
        vm.tick(&store, now_ms);
    }
}

fn made_up_table() -> Page {
    let endpoint = |n: u16| {
        let address = format!("192.0.2.{n}:8000");
        AgentOp::Endpoint(EndpointRecord {
            id: EndpointId::new("warm-up", "", &address),
            generation: 1,
            name: address.clone(),
            address,
            availability: Availability::Ready,
            block_tokens: 16,
            kv_blocks: 10_000,
            precise: false,
            lower_tier_percent: 0,
            labels: Vec::new(),
            pools: Vec::new(),
        })
    };
    Page {
        position: Position { epoch: 1, seq: 1 },
        kind: PageKind::Snapshot { page: 0, pages: 1 },
        ops: (0..ENDPOINTS).map(endpoint).collect(),
    }
}

fn made_up_body() -> Vec<u8> {
    let mut body = br#"{"model":"m","stream":true,"messages":[{"role":"user","content":""#.to_vec();
    while body.len() < BODY_BYTES {
        body.extend_from_slice(b"some words, \\\"quoted\\\" and a line\\n");
    }
    body.extend_from_slice(br#""}]}"#);
    body
}
