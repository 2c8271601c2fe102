//! Runs the hot path on a made-up body at configuration time: the first pass through fresh memory costs ten times
//! what later ones do, and no client should pay for it.

use warmroute_core::config::PluginConfig;
use warmroute_core::exchange::{Env, Exchange, RequestHead, Step};
use warmroute_core::vm::{MemoryStore, VmState};

const PASSES: usize = 24;
const BODY_BYTES: usize = 128 << 10;

/// Warms code and memory up. Touches nothing that is shared.
pub(crate) fn run() {
    let Ok(config) = PluginConfig::parse(br#"{"pool":"warm-up","failure_mode":"FailOpen"}"#) else {
        return;
    };
    let store = MemoryStore::default();
    let mut vm = VmState::new(1, config.settings());
    let mut body = br#"{"model":"m","stream":true,"messages":[{"role":"user","content":""#.to_vec();
    while body.len() < BODY_BYTES {
        body.extend_from_slice(b"some words, \\\"quoted\\\" and a line\\n");
    }
    body.extend_from_slice(br#""}]}"#);
    let (mut scratches, mut outbox) = (Vec::new(), Vec::new());
    for _ in 0..PASSES {
        let mut exchange = Exchange::default();
        let mut env = Env {
            vm: &mut vm,
            store: &store,
            config: &config,
            now_ms: 0,
            random: &mut || 0,
            scratches: &mut scratches,
            outbox: &mut outbox,
        };
        let head = RequestHead {
            method: b"POST",
            path: b"/v1/chat/completions",
            ..RequestHead::default()
        };
        if exchange.on_request_headers(&mut env, &head) == Step::Pause {
            exchange.on_request_body(&mut env, &body);
            exchange.on_request_end(&mut env);
        }
        exchange.on_done(&mut env, false);
    }
}
