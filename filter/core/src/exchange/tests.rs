//! Whole exchanges on shared data in memory.

use super::*;
use crate::config::FailureMode;
use crate::flow_control::worker::Event;
use crate::replica::tests::record as endpoint_record;
use crate::request::LocalReply;
use crate::vm::{Cas, CasMismatch, MemoryStore};
use core::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use warmroute_shared_state::model::ModelRecord;
use warmroute_shared_state::stream::{AgentOp, Page, PageKind, Position};

/// Shared data that counts what is read of each key.
#[derive(Default)]
pub(super) struct CountedStore {
    inner: MemoryStore,
    reads: RefCell<BTreeMap<String, u32>>,
}

impl SharedStore for CountedStore {
    fn get(&self, key: &str) -> Option<(Vec<u8>, Cas)> {
        *self.reads.borrow_mut().entry(key.to_owned()).or_default() += 1;
        self.inner.get(key)
    }

    fn set(&self, key: &str, value: &[u8], cas: Option<Cas>) -> Result<(), CasMismatch> {
        self.inner.set(key, value, cas)
    }
}

pub(super) struct Host {
    pub(super) store: CountedStore,
    pub(super) vm: VmState,
    config: PluginConfig,
    pub(super) now_ms: u64,
    seed: u64,
    scratches: ScratchPool,
    pub(super) outbox: Vec<Vec<u8>>,
    bodies: BodyBudget,
    pub(super) ledger: Outbox,
    claims_asked: Cell<u32>,
    epoch: u64,
}

impl Host {
    pub(super) fn new(endpoints: Option<u16>) -> Self {
        let store = CountedStore::default();
        let config = PluginConfig::parse(br#"{"pool":"p","max_body_bytes":4096}"#).unwrap();
        let mut vm = VmState::new(1, config.settings());
        vm.attach(&store);
        let now_ms = 1_000_000;
        vm.tick(&store, now_ms);
        let mut host = Self {
            store,
            vm,
            config,
            now_ms,
            seed: 1,
            scratches: ScratchPool::default(),
            outbox: vec![],
            bodies: BodyBudget::default(),
            ledger: Outbox::new(1),
            claims_asked: Cell::default(),
            epoch: 0,
        };
        if let Some(endpoints) = endpoints {
            host.tell((0..endpoints).map(|n| AgentOp::Endpoint(endpoint_record(n))).collect());
        }
        host
    }

    /// Another VM on the same shared data, which has seen what there is.
    pub(super) fn another_vm(&self) -> VmState {
        let mut vm = VmState::new(2, self.config.settings());
        vm.attach(&self.store);
        vm.tick(&self.store, self.now_ms);
        vm
    }

    /// The agent tells all this, and nothing else.
    pub(super) fn tell(&mut self, ops: Vec<AgentOp>) {
        self.epoch += 1;
        let page = Page {
            position: Position { epoch: self.epoch, seq: 1 },
            kind: PageKind::Snapshot { page: 0, pages: 1 },
            ops,
        };
        self.vm.on_page(&self.store, &page.encode(), self.now_ms).unwrap();
    }

    pub(super) fn with<T>(&mut self, event: impl FnOnce(&mut Env<'_>) -> T) -> T {
        let (seed, claims_asked) = (&mut self.seed, &self.claims_asked);
        let mut random = || {
            *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
            *seed
        };
        event(&mut Env {
            vm: &mut self.vm,
            store: &self.store,
            config: &self.config,
            now_ms: self.now_ms,
            random: &mut random,
            scratches: &mut self.scratches,
            outbox: &mut self.outbox,
            bodies: &mut self.bodies,
            context: 7,
            jwt_claim: &|_| {
                claims_asked.set(claims_asked.get() + 1);
                None
            },
            ledger: &mut self.ledger,
        })
    }

    /// How often it was asked for a token's claims.
    pub(super) fn claims_asked(&self) -> u32 {
        self.claims_asked.get()
    }

    /// How often the head and the totals of the shared data were read.
    pub(super) fn reads(&self) -> (u32, u32) {
        let reads = self.store.reads.borrow();
        let of =
            |name: &str| reads.iter().filter(|(key, _)| key.ends_with(name)).map(|(_, n)| n).sum();
        (of(".head"), of(".totals"))
    }

    /// What waiting requests are told by a tick so much later.
    pub(super) fn later(&mut self, ms: u64) -> Vec<Event> {
        self.now_ms += ms;
        self.vm.tick(&self.store, self.now_ms);
        self.vm.take_flow_events()
    }

    pub(super) fn idle(&self) -> bool {
        self.vm.ledger().is_idle()
    }

    /// A POST whose body comes in pieces of `cut` bytes.
    pub(super) fn post(&mut self, exchange: &mut Exchange, body: &[u8], cut: usize) -> Step {
        let step = self.with(|env| exchange.on_request_headers(env, head("/v1/chat/completions")));
        if step != Step::Pause {
            return step;
        }
        for piece in body.chunks(cut) {
            let step = self.with(|env| exchange.on_request_body(env, piece));
            if step != Step::Pause {
                return step;
            }
        }
        self.with(|env| exchange.on_request_end(env))
    }

    pub(super) fn routed(&mut self, body: &[u8]) -> (Exchange, String) {
        let mut exchange = Exchange::default();
        match self.post(&mut exchange, body, 100) {
            Step::Forward(forward) => (exchange, forward.destinations().unwrap().to_owned()),
            other => panic!("{other:?}"),
        }
    }

    fn status(&mut self, body: &[u8]) -> (u16, &'static str) {
        let mut exchange = Exchange::default();
        match self.post(&mut exchange, body, 7) {
            Step::Reply { reply, details } => (reply.status, details),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn head_with(path: &str, more: &[(&str, &str)]) -> RequestHead {
    let pairs = [(":method", "POST"), (":path", path), (":authority", "gateway")];
    let pairs = pairs.iter().chain(more).copied();
    RequestHead { headers: Headers::new(pairs, true), end_of_stream: false }
}

pub(super) fn head(path: &str) -> RequestHead {
    head_with(path, &[])
}

pub(super) fn chat(text: &str) -> Vec<u8> {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#).into_bytes()
}

pub(super) fn ok(attempts: u32, content_type: &[u8]) -> ResponseHead<'_> {
    ResponseHead {
        status: 200,
        content_type: Some(content_type),
        content_encoding: None,
        from_engine: true,
        attempts,
        end_of_stream: false,
    }
}

pub(super) const JSON: &[u8] = b"application/json";
pub(super) const SSE: &[u8] = b"text/event-stream";

crate::tests! {
    fn a_vm_that_had_nothing_to_do_knows_what_was_told_meanwhile() {
        let mut host = Host::new(Some(2));
        let mut idle = host.another_vm();
        let template = "{% for m in messages %}{{ m.content }}{% endfor %}".to_owned();
        let model = ModelRecord { name: "m".into(), stream: 7, template, ..ModelRecord::default() };
        let endpoints = (0..2).map(|n| AgentOp::Endpoint(endpoint_record(n)));
        host.tell(endpoints.chain([AgentOp::Model(Arc::new(model))]).collect());
        core::mem::swap(&mut host.vm, &mut idle);
        host.now_ms += 10;
        let (first, _) = host.routed(&chat(&"long prompt ".repeat(100)));
        assert_eq!(first.record().prompt_source, Some("rendered"));
    }

    fn a_model_that_becomes_known_while_a_body_comes_renders_the_next_one() {
        let mut host = Host::new(Some(4));
        let body = chat(&"long prompt ".repeat(100));
        let template = "{% for m in messages %}{{ m.content }}{% endfor %}".to_owned();
        let model = ModelRecord { name: "m".into(), stream: 7, template, ..ModelRecord::default() };
        let mut exchange = Exchange::default();
        host.with(|env| exchange.on_request_headers(env, head("/v1/chat/completions")));
        host.with(|env| exchange.on_request_body(env, &body[..600]));
        let endpoints = (0..4).map(|n| AgentOp::Endpoint(endpoint_record(n)));
        host.tell(endpoints.chain([AgentOp::Model(Arc::new(model))]).collect());
        host.now_ms += 10;
        host.with(|env| exchange.on_request_body(env, &body[600..]));
        let step = host.with(|env| exchange.on_request_end(env));
        assert!(matches!(step, Step::Forward(_)), "{step:?}");
        assert_eq!(exchange.record().prompt_source, Some("approximate"));
        let (next, _) = host.routed(&body);
        assert_eq!(next.record().prompt_source, Some("rendered"));
        // What was learned of the first one was of the approximate stream.
        assert_eq!(next.record().matched_tokens, Some(0));
    }

    fn the_same_body_gets_the_same_endpoint_however_it_is_cut() {
        let mut host = Host::new(Some(4));
        let body = chat(&"long prompt ".repeat(100));
        let (first, to) = host.routed(&body);
        host.now_ms += 10_000;
        assert_eq!(first.record().reason, Some("load"));
        for cut in [1, 2, 3, 50, 127, 5000] {
            let mut exchange = Exchange::default();
            let step = host.post(&mut exchange, &body, cut);
            let Step::Forward(forward) = step else { panic!("{step:?}") };
            let destinations = forward.destinations().unwrap();
            assert_eq!(destinations.split(',').next(), to.split(',').next(), "cut {cut}");
            assert_eq!(destinations.split(',').count(), 3);
            assert_eq!(exchange.record().reason, Some("prefix"));
            host.with(|env| exchange.on_done(env, true));
        }
    }

    fn what_cannot_be_routed_is_answered_and_charges_nobody() {
        let mut host = Host::new(Some(2));
        let large = chat(&"x".repeat(5000));
        for (body, expected) in [
            (&b"{\"model\":"[..], (400, "warmroute_bad_request")),
            (b"[]", (400, "warmroute_bad_request")),
            (b"", (400, "warmroute_bad_request")),
            (br#"{"messages":[{"role":"user","content":"x"}]}"#, (400, "warmroute_bad_request")),
            (&large, (413, "warmroute_too_large")),
        ] {
            assert_eq!(host.status(body), expected);
        }
        let compressed = head_with("/v1/completions", &[("content-encoding", "zstd")]);
        let step = host.with(|env| Exchange::default().on_request_headers(env, compressed));
        assert!(matches!(step, Step::Reply { reply: LocalReply { status: 415, .. }, .. }));
        let long = head_with("/v1/completions", &[("content-length", "5000")]);
        let step = host.with(|env| Exchange::default().on_request_headers(env, long));
        assert!(matches!(step, Step::Reply { reply: LocalReply { status: 413, .. }, .. }));
        assert!(host.idle());
    }

    fn without_a_table_the_failure_mode_decides() {
        let mut host = Host::new(None);
        assert_eq!(host.status(&chat("x")), (503, "warmroute_no_table"));
        host.config.failure_mode = FailureMode::FailOpen;
        let mut exchange = Exchange::default();
        assert_eq!(host.post(&mut exchange, &chat("x"), 9), Step::Forward(Box::default()));
        let mut host = Host::new(Some(0));
        host.config.failure_mode = FailureMode::FailOpen;
        assert_eq!(host.status(&chat("x")), (503, "warmroute_no_endpoint"));
    }

    fn other_paths_are_routed_by_load_without_reading_the_body() {
        let mut host = Host::new(Some(2));
        let mut exchange = Exchange::default();
        let step = host.with(|env| exchange.on_request_headers(env, head("/v1/models")));
        assert!(matches!(step, Step::Forward(forward) if forward.destinations().is_some()));
        assert!(!host.idle());
        host.with(|env| exchange.on_done(env, false));
        assert!(host.idle());
    }

    fn an_exchange_may_end_at_any_moment() {
        let body = chat(&"some prompt ".repeat(40));
        for events in 0..8 {
            for client_gone in [false, true] {
                let mut host = Host::new(Some(2));
                let mut exchange = Exchange::default();
                host.with(|env| {
                    if events > 0 { exchange.on_request_headers(env, head("/v1/chat/completions")); }
                    if events > 1 { exchange.on_request_body(env, &body[..30]); }
                    if events > 2 { exchange.on_request_body(env, &body[30..]); }
                    if events > 3 { exchange.on_request_end(env); }
                    if events > 4 { exchange.on_response_headers(env, &ok(1, SSE), || None); }
                    if events > 5 { exchange.on_response_body(env, b"data: {\"choi", false); }
                    if events > 6 { exchange.on_response_end(env, End::Clean); }
                    exchange.on_done(env, client_gone);
                });
                assert!(host.idle() && host.bodies.is_empty(), "after {events} events");
                // What nobody asked about, a page of the filter's own, ends without a cause.
                assert_eq!(exchange.record().cause.is_some(), events > 0);
            }
        }
    }

    fn bodies_on_their_way_share_one_budget() {
        let mut host = Host::new(Some(2));
        host.config.max_unfinished_bytes = 5000;
        let part = vec![b' '; 3000];
        let mut first = Exchange::default();
        let mut second = Exchange::default();
        host.with(|env| first.on_request_headers(env, head("/v1/completions")));
        host.with(|env| second.on_request_headers(env, head("/v1/completions")));
        assert_eq!(host.with(|env| first.on_request_body(env, &part)), Step::Pause);
        let step = host.with(|env| second.on_request_body(env, &part));
        assert!(matches!(step, Step::Reply { reply: LocalReply { status: 503, .. }, .. }), "{step:?}");
        host.with(|env| first.on_done(env, true));
        assert!(host.bodies.is_empty());
    }

    fn a_body_that_is_no_json_is_handed_over_once() {
        let mut host = Host::new(Some(2));
        let mut exchange = Exchange::default();
        host.with(|env| exchange.on_request_headers(env, head("/v1/completions")));
        for n in 1..10 {
            host.with(|env| exchange.on_request_body(env, b"xxxxxxxxxx"));
            assert_eq!(exchange.body_taken(), n * 10);
        }
        host.with(|env| exchange.on_done(env, true));
    }

    fn a_small_body_that_stands_for_a_huge_prompt_costs_nobody_anything() {
        let mut host = Host::new(Some(1));
        host.config.max_body_bytes = 1 << 20;
        let known = chat(&"a known conversation ".repeat(100));
        let (mut exchange, _) = host.routed(&known);
        host.with(|env| exchange.on_done(env, false));
        let part = r#"{"type":"video_url","video_url":{"url":"x"}}"#;
        let parts = vec![part; 940].join(",");
        let huge = format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{parts}]}}]}}"#);
        let before = host.vm.follower().applied();
        let (mut exchange, _) = host.routed(huge.as_bytes());
        host.with(|env| exchange.on_done(env, false));
        host.vm.tick(&host.store, host.now_ms);
        assert!(host.vm.follower().applied() - before < 10);
        let (again, _) = host.routed(&known);
        assert!(again.record().matched_tokens.unwrap() > 400);
    }

}
