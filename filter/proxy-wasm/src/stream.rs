//! One HTTP stream: callbacks to events of its exchange, steps to host calls.

use crate::edits::change_response;
use crate::{faults, host, last_words, runtime, turns};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, BufferType, MapType};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use warmroute_core::config::PluginConfig;
use warmroute_core::debug;
use warmroute_core::exchange::{Env, Exchange, Headers, RequestHead, ResponseHead, Step};
use warmroute_core::request::LocalReply;
use warmroute_core::response::End;
use warmroute_core::telemetry::SetId;

const ATTEMPTS: &str = "x-envoy-attempt-count";

/// How much of a refused request's body is taken in and dropped before the refusal is sent all the same.
const DRAIN_BYTES: usize = 64 << 20;

/// A body is read in pieces of at least this size, but for its end: Envoy shows it in pieces of 16 kB, and each look costs
/// three calls between host and VM.
const READ_BYTES: usize = 64 << 10;

/// And of at most this one, since a VM gives no memory back: Envoy may show a megabyte at once.
const MOST_BYTES: usize = 128 << 10;

/// More than any body: trailers come without saying how large theirs is.
const ALL: usize = usize::MAX >> 1;

/// A refusal that waits for the end of the request's body. Over HTTP/2 Envoy follows an answer to an
/// unfinished request with a reset of the stream; that is allowed, but curl and Node's client then drop the answer.
struct LateReply {
    reply: LocalReply,
    details: &'static str,
    dropped: usize,
}

/// What a stream shares with whoever tells it that it is its turn.
pub(crate) struct Shared {
    pub(crate) config: Rc<PluginConfig>,
    pub(crate) exchange: RefCell<Exchange>,
    /// It was answered by us.
    pub(crate) replied: Cell<bool>,
    /// Its response has begun.
    pub(crate) response_began: Cell<bool>,
    /// What it took to decide on it so far, in ns.
    pub(crate) decision_ns: Cell<u64>,
    /// Labels of its metrics, once it was sent on.
    pub(crate) labels: Cell<Option<SetId>>,
}

impl Shared {
    /// Measures a part of the decision, and tells how long all parts took once it is made: not while the request waits.
    pub(crate) fn decide<T>(&self, begun_ns: u64, part: impl FnOnce() -> T) -> T {
        let done = part();
        let took_ns = host::now_ns().saturating_sub(begun_ns);
        self.decision_ns.set(self.decision_ns.get().saturating_add(took_ns));
        if !self.exchange.borrow().waits() {
            runtime::with(|runtime| runtime.metrics.decided(self.decision_ns.get()));
        }
        done
    }
}

/// One stream.
pub(crate) struct Stream {
    id: u32,
    config: Rc<PluginConfig>,
    shared: Rc<Shared>,
    late: Option<Box<LateReply>>,
    recorded: bool,
    /// When the callback began that runs: one look at the clock is enough for all that it does.
    now_ns: u64,
}

impl Stream {
    pub(crate) fn new(id: u32, config: Rc<PluginConfig>) -> Self {
        let shared = Shared {
            config: Rc::clone(&config),
            exchange: RefCell::default(),
            replied: Cell::new(false),
            response_began: Cell::new(false),
            decision_ns: Cell::default(),
            labels: Cell::default(),
        };
        Self { id, config, shared: Rc::new(shared), late: None, recorded: false, now_ns: 0 }
    }

    /// A callback begins.
    fn begin(&mut self) {
        self.now_ns = host::now_ns();
    }

    fn now_ms(&self) -> u64 {
        self.now_ns / 1_000_000
    }

    fn event<T>(&mut self, event: impl FnOnce(&mut Exchange, &mut Env<'_>) -> T) -> Option<T> {
        let now_ms = self.now_ms();
        let mut exchange = self.shared.exchange.try_borrow_mut().ok()?;
        runtime::with(|runtime| {
            runtime.event(&self.config, self.id, now_ms, |env| event(&mut exchange, env))
        })
    }

    fn awaits_body(&self) -> bool {
        self.shared.exchange.borrow().awaits_body()
    }

    /// It waits for its turn, or runs with one: it may be told of that from now on. Whether it waits still: its turn may
    /// have come at once.
    fn waits_for_turn(&mut self) -> bool {
        if !self.shared.exchange.borrow().waits() {
            return false;
        }
        let shared = Rc::clone(&self.shared);
        runtime::with(|runtime| runtime.turns.insert(self.id, shared));
        turns::deliver(self.id, Some(self.id));
        let waits = self.shared.exchange.borrow().waits();
        if waits {
            last_words::waits(self.id);
        }
        waits
    }

    /// `request_ended`: the client has sent all of it.
    fn carry_out(&mut self, step: Option<Step>, request_ended: bool) -> Action {
        match step {
            Some(Step::Pause) => {
                if self.waits_for_turn() || self.awaits_body() || self.shared.replied.get() {
                    Action::Pause
                } else {
                    Action::Continue
                }
            }
            Some(Step::Forward(forward)) => {
                if self.shared.exchange.borrow().has_turn() {
                    let shared = Rc::clone(&self.shared);
                    runtime::with(|runtime| runtime.turns.insert(self.id, shared));
                }
                turns::forward(&self.shared, &forward);
                Action::Continue
            }
            Some(Step::Reply { reply, details }) => {
                runtime::with(|runtime| runtime.metrics.rejected.add(1));
                self.shared.replied.set(true);
                if !request_ended && over_http2() {
                    self.late = Some(Box::new(LateReply { reply, details, dropped: 0 }));
                } else {
                    host::reply(reply.status, &reply.header_pairs(), &reply.body, details);
                }
                Action::Pause
            }
            // Never configured: nothing was decided, so nothing is forwarded by chance.
            None => {
                self.shared.replied.set(true);
                host::reply(500, &[], b"", "warmroute_not_configured");
                Action::Pause
            }
        }
    }

    /// No client steers routing, identity or a sidecar.
    fn strip_internal_headers(headers: &Headers) {
        for name in headers.internal_names() {
            host::remove_header(MapType::HttpRequestHeaders, name);
        }
    }

    fn reply_with_state(&mut self) -> Action {
        let now_ms = self.now_ms();
        let state = runtime::with(|runtime| {
            runtime.vm.refresh(&host::HostStore);
            runtime.measure_events();
            debug::state_json(&runtime.vm, now_ms, host::memory_bytes())
        });
        self.shared.replied.set(true);
        let headers = [("content-type", "application/json")];
        host::reply(200, &headers, state.unwrap_or_default().as_bytes(), "warmroute_debug");
        Action::Pause
    }

    fn request_end(&mut self) -> Action {
        let shared = Rc::clone(&self.shared);
        let step =
            shared.decide(self.now_ns, || self.event(|exchange, env| exchange.on_request_end(env)));
        self.carry_out(step, true)
    }

    /// Reads what is new of the body, of which Envoy holds `size` bytes, or [`ALL`].
    fn read_body(&mut self, size: usize, request_ended: bool) -> Action {
        let mut taken = self.shared.exchange.borrow().body_taken();
        loop {
            let unread = size.saturating_sub(taken).min(MOST_BYTES);
            let slice = host::buffer(BufferType::HttpRequestBody, taken, unread);
            taken = taken.saturating_add(slice.len());
            let step = self.event(|exchange, env| exchange.on_request_body(env, &slice));
            if step != Some(Step::Pause) {
                let action = self.carry_out(step, request_ended);
                self.drop_body(if size == ALL { taken } else { size }, request_ended);
                return action;
            }
            if slice.len() < MOST_BYTES {
                return if request_ended { self.request_end() } else { Action::Pause };
            }
        }
    }

    /// Drops what has come of a refused request's body; refuses it once that was all, or enough.
    fn drop_body(&mut self, size: usize, request_ended: bool) {
        let Some(late) = &mut self.late else { return };
        host::clear_buffer(BufferType::HttpRequestBody, size);
        late.dropped = late.dropped.saturating_add(size);
        if request_ended || late.dropped > DRAIN_BYTES {
            let LateReply { reply, details, .. } = &**late;
            host::reply(reply.status, &reply.header_pairs(), &reply.body, details);
            self.late = None;
        }
    }

    fn response_end(&mut self) {
        self.event(|exchange, env| exchange.on_response_end(env, End::Clean));
        self.write_record();
    }

    /// What the access log reads as filter state `wasm.warmroute.*`.
    fn write_record(&mut self) {
        if !self.recorded {
            self.recorded = true;
            let exchange = self.shared.exchange.borrow();
            let record = exchange.record();
            for (name, value) in record.fields() {
                host::set_property(name, value.as_bytes());
            }
            let started = self.shared.labels.take();
            runtime::with(|runtime| runtime.count_end(record, started));
        }
    }

    /// Whether the body is still of interest. `body_came`: more of it, or its end, is there.
    fn still_reads(&mut self, body_came: bool) -> bool {
        let awaited = self.awaits_body() || self.late.is_some();
        // Only a body that was held back for us proves Envoy's setting.
        runtime::with(|runtime| runtime.watchdog.forget(self.id, body_came && awaited));
        self.awaits_body()
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        self.begin();
        faults::on_request();
        let map = host::header_map(MapType::HttpRequestHeaders);
        let headers = Headers::from_wire(map, self.config.trust_control_headers);
        Self::strip_internal_headers(&headers);
        let head = RequestHead { headers, end_of_stream };
        if self.config.debug_path.as_ref().is_some_and(|path| path == head.path()) {
            return self.reply_with_state();
        }
        let step = self.event(|exchange, env| exchange.on_request_headers(env, head));
        let action = self.carry_out(step, end_of_stream);
        if self.awaits_body() || self.late.is_some() {
            let now_ms = self.now_ms();
            runtime::with(|runtime| runtime.watchdog.watch(self.id, now_ms));
        }
        action
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        self.begin();
        if !self.still_reads(true) {
            self.drop_body(size, end_of_stream);
            let held = self.shared.replied.get() || self.shared.exchange.borrow().waits();
            return if held { Action::Pause } else { Action::Continue };
        }
        let taken = self.shared.exchange.borrow().body_taken();
        if size.saturating_sub(taken) < READ_BYTES && !end_of_stream {
            return Action::Pause;
        }
        self.read_body(size, end_of_stream)
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        self.begin();
        if self.still_reads(true) {
            return self.read_body(ALL, true);
        }
        self.drop_body(0, true);
        if self.shared.replied.get() || self.shared.exchange.borrow().waits() {
            Action::Pause
        } else {
            Action::Continue
        }
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        if self.shared.replied.get() {
            return Action::Continue;
        }
        self.begin();
        self.shared.response_began.set(true);
        let headers = Headers::from_wire(host::header_map(MapType::HttpResponseHeaders), false);
        let number = |name| headers.get(name)?.parse::<u16>().ok();
        if headers.get(ATTEMPTS).is_some() {
            host::remove_header(MapType::HttpResponseHeaders, ATTEMPTS);
        }
        let status = number(":status").unwrap_or(0);
        let head = ResponseHead {
            status,
            from_engine: status < 400 || code_details() == "via_upstream",
            content_type: headers.bytes("content-type"),
            content_encoding: headers.bytes("content-encoding"),
            attempts: number(ATTEMPTS).map_or(1, u32::from),
            end_of_stream,
        };
        let edit =
            self.event(|exchange, env| exchange.on_response_headers(env, &head, upstream_address));
        if let Some(edit) = edit {
            change_response(&edit);
        }
        if end_of_stream {
            self.write_record();
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if self.shared.replied.get() {
            return Action::Continue;
        }
        let (begun, reads) = {
            let exchange = self.shared.exchange.borrow();
            (exchange.has_begun_to_answer(), exchange.reads_response())
        };
        let slice =
            if reads { host::buffer(BufferType::HttpResponseBody, 0, size) } else { Vec::new() };
        // Between the first token and the end nothing is timed, and nothing is told to others.
        let instead = if begun && !end_of_stream {
            runtime::with(|runtime| runtime.works());
            let mut exchange = self.shared.exchange.borrow_mut();
            if reads {
                exchange.on_more_response_body(&slice)
            } else {
                exchange.on_more_unread_response_body(size);
                None
            }
        } else {
            self.begin();
            self.event(|exchange, env| {
                if reads {
                    exchange.on_response_body(env, &slice, end_of_stream)
                } else {
                    exchange.on_unread_response_body(env, size);
                    None
                }
            })
            .flatten()
        };
        if let Some(bytes) = instead {
            host::set_buffer(BufferType::HttpResponseBody, size, &bytes);
        }
        if end_of_stream {
            self.response_end();
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        if !self.shared.replied.get() {
            self.begin();
            self.response_end();
        }
        Action::Continue
    }

    fn on_log(&mut self) {
        self.begin();
        self.still_reads(false);
        let client_gone = !self.recorded && !self.shared.replied.get() && downstream_left();
        self.event(|exchange, env| exchange.on_done(env, client_gone));
        runtime::with(|runtime| runtime.turns.remove(&self.id));
        last_words::waits_no_longer(self.id);
        self.write_record();
        turns::deliver(self.id, None);
    }
}

/// Costs tens of microseconds: only asked for a refusal.
fn over_http2() -> bool {
    host::property(&["request", "protocol"]).is_some_and(|protocol| protocol != b"HTTP/1.1")
}

/// The address that answered, `ip:port`. Costs tens of microseconds: only asked after a retry.
fn upstream_address() -> Option<String> {
    host::property(&["upstream", "address"]).and_then(|address| String::from_utf8(address).ok())
}

/// Whether Envoy says that the client ended the stream.
fn downstream_left() -> bool {
    let details = code_details();
    let words = ["downstream", "remote_reset", "codec"];
    // An engine that resets is not the client, though its details hold the same word.
    !details.starts_with("upstream_") && words.iter().any(|word| details.contains(word))
}

/// What Envoy says of how the response came about. Not asked on the common path.
fn code_details() -> String {
    let details = host::property(&["response", "code_details"]).unwrap_or_default();
    String::from_utf8(details).unwrap_or_default()
}
