//! Tells streams that it is their turn, that it will not be, or that they are to end.

use crate::edits::change_request;
use crate::stream::Shared;
use crate::{host, last_words, runtime};
use proxy_wasm::hostcalls;
use std::rc::Rc;
use warmroute_core::exchange::{Ending, Env, Exchange, Forward, Step};
use warmroute_core::flow_control::protocol::Usage;
use warmroute_core::flow_control::worker::Event;

/// Events taken in one go: each may bring about more, in the same VM.
const ROUNDS: usize = 64;

/// Sends a stream's request on. Its context is the one that host calls act on.
pub(crate) fn forward(shared: &Shared, forward: &Forward) {
    let exchange = shared.exchange.borrow();
    let record = exchange.record();
    let labels = runtime::with(|runtime| {
        runtime.metrics.forwarded(record.reason);
        runtime.metrics.prompt(record.prompt_source);
        runtime.count_start(record)
    });
    shared.labels.set(labels);
    change_request(forward);
}

/// Tells all that is to be told. `current`: the context that host calls act on, and will afterwards. `inside`: the stream
/// in whose callback this is; its request goes on by what the callback returns.
pub(crate) fn deliver(current: u32, inside: Option<u32>) {
    for _ in 0..ROUNDS {
        let events = runtime::with(|runtime| runtime.vm.take_flow_events()).unwrap_or_default();
        if events.is_empty() {
            return;
        }
        for event in events {
            deliver_one(event, inside);
        }
        host::act_on(current);
    }
}

fn deliver_one(event: Event, inside: Option<u32>) {
    let context = match &event {
        Event::Granted { context, .. }
        | Event::Refused { context, .. }
        | Event::Evicted { context } => *context,
    };
    let known = runtime::with(|runtime| runtime.turns.get(&context).cloned()).flatten();
    let Some(shared) = known.filter(|_| host::act_on(context)) else {
        // Its stream is gone.
        let now_ms = host::now_ms();
        runtime::with(|runtime| {
            runtime.turns.remove(&context);
            if let Event::Granted { ticket, .. } = event {
                runtime.vm.release(ticket, Usage::default(), None, now_ms);
                runtime.flush(now_ms);
            }
        });
        return;
    };
    let inside = inside == Some(context);
    match event {
        Event::Granted { ticket, waited_ms, .. } => {
            let step = shared.decide(host::now_ns(), || {
                exchange_event(&shared, context, |exchange, env| {
                    exchange.on_grant(env, ticket, waited_ms)
                })
            });
            carry_out(&shared, step, inside);
        }
        Event::Refused { refused, .. } => {
            let step = exchange_event(&shared, context, |exchange, env| {
                exchange.on_refused(env, &refused)
            });
            carry_out(&shared, step, inside);
        }
        Event::Evicted { .. } => {
            let began = shared.response_began.get();
            let ending = shared.exchange.try_borrow_mut().ok().map(|mut e| e.on_evicted(began));
            match ending {
                Some(Ending::Reply { reply, details }) => {
                    host::reply(reply.status, &reply.header_pairs(), &reply.body, details);
                }
                Some(Ending::Reset) => {
                    let _ = hostcalls::reset_http_response();
                }
                None => {}
            }
        }
    }
    last_words::waits_no_longer(context);
}

fn exchange_event<T>(
    shared: &Rc<Shared>,
    context: u32,
    event: impl FnOnce(&mut Exchange, &mut Env<'_>) -> T,
) -> Option<T> {
    let mut exchange = shared.exchange.try_borrow_mut().ok()?;
    let now_ms = host::now_ms();
    runtime::with(|runtime| {
        runtime.event(&shared.config, context, now_ms, |env| event(&mut exchange, env))
    })
}

fn carry_out(shared: &Shared, step: Option<Step>, inside: bool) {
    match step {
        Some(Step::Forward(step)) => {
            forward(shared, &step);
            if !inside {
                let _ = hostcalls::resume_http_request();
            }
        }
        Some(Step::Reply { reply, details }) => {
            runtime::with(|runtime| runtime.metrics.rejected.add(1));
            shared.replied.set(true);
            host::reply(reply.status, &reply.header_pairs(), &reply.body, details);
        }
        Some(Step::Pause) | None => {}
    }
}
