//! One whole request and its streamed answer, host calls apart.

use super::{SLICE, Work};
use crate::bodies::{chat, stream};
use warmroute_core::config::PluginConfig;
use warmroute_core::exchange::{
    BodyBudget, Env, Exchange, Headers, RequestHead, ResponseHead, Step,
};
use warmroute_core::ledger::Outbox;
use warmroute_core::request::ScratchPool;
use warmroute_core::response::End;
use warmroute_core::vm::{MemoryStore, VmState};
use warmroute_shared_state::endpoint::{Availability, EndpointId, EndpointRecord, Load};
use warmroute_shared_state::stream::{AgentOp, Page, PageKind, Position};

const NOW_MS: u64 = 1_000_000;

/// Endpoints of the pool.
const ENDPOINTS: u16 = 10;

struct World {
    store: MemoryStore,
    vm: VmState,
    config: PluginConfig,
    scratches: ScratchPool,
    outbox: Vec<Vec<u8>>,
    bodies: BodyBudget,
    ledger: Outbox,
    seed: u64,
}

impl World {
    fn new() -> Self {
        let store = MemoryStore::default();
        let config = PluginConfig::parse(br#"{"pool":"p"}"#).expect("a good configuration");
        let mut vm = VmState::new(1, config.settings());
        vm.attach(&store);
        vm.tick(&store, NOW_MS);
        let load = Load { waiting: Some(1.0), kv_usage: Some(0.5), ..Load::default() };
        let ops = (0..ENDPOINTS).flat_map(|n| {
            let record = record(n);
            let load = AgentOp::Load { id: record.id, age_ms: 10, load };
            [AgentOp::Endpoint(record), load]
        });
        let position = Position { epoch: 1, seq: 1 };
        let kind = PageKind::Snapshot { page: 0, pages: 1 };
        let page = Page { position, kind, ops: ops.collect() };
        vm.on_page(&store, &page.encode(), NOW_MS).expect("a good page");
        Self {
            store,
            vm,
            config,
            scratches: ScratchPool::default(),
            outbox: Vec::new(),
            bodies: BodyBudget::default(),
            ledger: Outbox::new(1),
            seed: 1,
        }
    }

    fn with<T>(&mut self, event: impl FnOnce(&mut Env<'_>) -> T) -> T {
        let seed = &mut self.seed;
        let mut random = || {
            *seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
            *seed
        };
        event(&mut Env {
            vm: &mut self.vm,
            store: &self.store,
            config: &self.config,
            now_ms: NOW_MS,
            random: &mut random,
            scratches: &mut self.scratches,
            outbox: &mut self.outbox,
            bodies: &mut self.bodies,
            context: 7,
            jwt_claim: &|_| None,
            ledger: &mut self.ledger,
        })
    }

    fn request(&mut self, exchange: &mut Exchange, body: &[u8]) -> Step {
        let mut step = self.with(|env| exchange.on_request_headers(env, head(body.len())));
        for slice in body.chunks(SLICE) {
            if step == Step::Pause {
                step = self.with(|env| exchange.on_request_body(env, slice));
            }
        }
        if step == Step::Pause {
            step = self.with(|env| exchange.on_request_end(env));
        }
        step
    }
}

fn record(n: u16) -> EndpointRecord {
    let (name, address) = (format!("default/r{n}"), format!("127.0.0.1:{}", 9000 + n));
    EndpointRecord {
        id: EndpointId::new("default", &format!("r{n}"), &address),
        generation: 1,
        name,
        address,
        availability: Availability::Ready,
        block_tokens: 16,
        kv_blocks: 1_000_000,
        precise: false,
        lower_tier_percent: 0,
        labels: vec![],
        pools: vec![],
    }
}

fn head(length: usize) -> RequestHead {
    let length = length.to_string();
    let pairs = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/v1/chat/completions"),
        (":authority", "gateway.example"),
        ("content-type", "application/json"),
        ("content-length", &length),
        ("user-agent", "OpenAI/Python 2.8.1"),
        ("accept", "application/json"),
        ("x-request-id", "8f14e45f-ceea-467a-9a36-dedd4bea2543"),
        ("x-forwarded-proto", "http"),
        ("x-envoy-expected-rq-timeout-ms", "15000"),
    ];
    RequestHead { headers: Headers::new(pairs, false), end_of_stream: false }
}

/// A chat of so many bytes, picked for and answered in so many chunks. Its prefix is known from the time before.
pub(super) fn whole(bytes: usize, chunks: usize) -> Work {
    let (body, stream) = (chat(bytes, 1), stream(chunks));
    let mut world = World::new();
    Box::new(move || {
        let mut exchange = Exchange::default();
        let step = world.request(&mut exchange, &body);
        assert!(matches!(step, Step::Forward(_)), "{step:?}");
        let head = ResponseHead {
            status: 200,
            content_type: Some(b"text/event-stream"),
            content_encoding: None,
            from_engine: true,
            attempts: 1,
            end_of_stream: false,
        };
        world.with(|env| exchange.on_response_headers(env, &head, || None));
        for chunk in &stream {
            let _ = world.with(|env| exchange.on_response_body(env, chunk, false));
        }
        world.with(|env| exchange.on_response_end(env, End::Clean));
        world.with(|env| exchange.on_done(env, false));
        world.outbox.clear();
        exchange.record().request_bytes
    })
}
