//! One HTTP stream: callbacks to events of its exchange, steps to host calls.

use crate::request_stats::RequestStats;
use crate::runtime;
use crate::{faults, host};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::{Action, BufferType, MapType};
use std::rc::Rc;
use warmroute_core::config::PluginConfig;
use warmroute_core::debug;
use warmroute_core::exchange::{
    Env, Exchange, Forward, Headers, Record, RequestHead, ResponseEdit, ResponseHead, Step,
    is_internal,
};
use warmroute_core::request::{LocalReply, Splice, spliced};
use warmroute_core::response::End;
use warmroute_core::telemetry::{Labels, Phase, counter};

const ATTEMPTS: &str = "x-envoy-attempt-count";

/// How much of a refused request's body is taken in and dropped before the refusal is sent all the same.
const DRAIN_BYTES: usize = 64 << 20;

/// A refusal that waits for the end of the request's body. Over HTTP/2 Envoy follows an answer to an
/// unfinished request with a reset of the stream; that is allowed, but curl and Node's client then drop the answer.
struct LateReply {
    reply: LocalReply,
    details: &'static str,
    dropped: usize,
}

/// One stream.
pub(crate) struct Stream {
    id: u32,
    config: Rc<PluginConfig>,
    exchange: Exchange,
    replied: bool,
    late: Option<Box<LateReply>>,
    recorded: bool,
    /// Labels of its metrics, once it was sent on.
    labels: Option<Labels>,
}

impl Stream {
    pub(crate) fn new(id: u32, config: Rc<PluginConfig>) -> Self {
        Self {
            id,
            config,
            exchange: Exchange::default(),
            replied: false,
            late: None,
            recorded: false,
            labels: None,
        }
    }

    fn event<T>(&mut self, event: impl FnOnce(&mut Exchange, &mut Env<'_>) -> T) -> Option<T> {
        let exchange = &mut self.exchange;
        runtime::with(|runtime| runtime.event(&self.config, |env| event(exchange, env)))
    }

    /// `request_ended`: the client has sent all of it.
    fn carry_out(&mut self, step: Option<Step>, request_ended: bool) -> Action {
        match step {
            Some(Step::Pause) => Action::Pause,
            Some(Step::Forward(forward)) => {
                let record = self.exchange.record();
                let labels = record.labels();
                runtime::with(|runtime| {
                    runtime.metrics.forwarded(record.reason);
                    runtime.metrics.prompt(record.prompt_source);
                    count_start(&mut runtime.request_stats, record, &labels);
                });
                self.labels = Some(labels);
                change_request(&forward);
                Action::Continue
            }
            Some(Step::Reply { reply, details }) => {
                runtime::with(|runtime| runtime.metrics.rejected.add(1));
                self.replied = true;
                if !request_ended && over_http2() {
                    self.late = Some(Box::new(LateReply { reply, details, dropped: 0 }));
                } else {
                    host::reply(reply.status, &reply.header_pairs(), &reply.body, details);
                }
                Action::Pause
            }
            // Never configured: nothing was decided, so nothing is forwarded by chance.
            None => {
                self.replied = true;
                host::reply(500, &[], b"", "warmroute_not_configured");
                Action::Pause
            }
        }
    }

    /// No client steers routing, identity or a sidecar.
    fn strip_internal_headers(pairs: &[(String, Vec<u8>)]) {
        for (name, _) in pairs.iter().filter(|(name, _)| is_internal(name.as_bytes())) {
            host::remove_header(MapType::HttpRequestHeaders, name);
        }
    }

    fn reply_with_state(&mut self) -> Action {
        let now_ms = host::now_ms();
        let state = runtime::with(|runtime| {
            runtime.vm.refresh(&host::HostStore);
            runtime.measure_events();
            debug::state_json(&runtime.vm, now_ms, host::memory_bytes())
        });
        self.replied = true;
        let headers = [("content-type", "application/json")];
        host::reply(200, &headers, state.unwrap_or_default().as_bytes(), "warmroute_debug");
        Action::Pause
    }

    fn request_end(&mut self) -> Action {
        let step = self.event(|exchange, env| exchange.on_request_end(env));
        self.carry_out(step, true)
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
            let record = self.exchange.record();
            for (name, value) in record.fields() {
                host::set_property(&format!("warmroute.{name}"), value.as_bytes());
            }
            let started = self.labels.is_some();
            // Neither sent on nor refused: the filter's own page.
            if started || record.cause.is_some() {
                let labels = self.labels.take().unwrap_or_else(|| record.labels());
                let phase = Phase::Ended { started };
                runtime::with(|runtime| runtime.request_stats.observe(record, &labels, phase));
            }
        }
    }

    /// Whether the body is still of interest. `body_came`: more of it, or its end, is there.
    fn still_reads(&mut self, body_came: bool) -> bool {
        let awaited = self.exchange.awaits_body() || self.late.is_some();
        // Only a body that was held back for us proves Envoy's setting.
        runtime::with(|runtime| runtime.watchdog.forget(self.id, body_came && awaited));
        self.exchange.awaits_body()
    }
}

impl Context for Stream {}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        let pairs = host::header_pairs(MapType::HttpRequestHeaders);
        faults::on_request(&pairs);
        Self::strip_internal_headers(&pairs);
        let headers = Headers::new(pairs, self.config.trust_control_headers);
        let head = RequestHead { headers, end_of_stream };
        if self.config.debug_path.as_ref().is_some_and(|path| path == head.path()) {
            return self.reply_with_state();
        }
        let step = self.event(|exchange, env| exchange.on_request_headers(env, head));
        let action = self.carry_out(step, end_of_stream);
        if self.exchange.awaits_body() || self.late.is_some() {
            let now_ms = host::now_ms();
            runtime::with(|runtime| runtime.watchdog.watch(self.id, now_ms));
        }
        action
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if !self.still_reads(true) {
            self.drop_body(size, end_of_stream);
            return if self.replied { Action::Pause } else { Action::Continue };
        }
        let taken = self.exchange.body_taken();
        let slice = host::buffer(BufferType::HttpRequestBody, taken, size.saturating_sub(taken));
        let step = self.event(|exchange, env| exchange.on_request_body(env, &slice));
        if step == Some(Step::Pause) && end_of_stream {
            return self.request_end();
        }
        let action = self.carry_out(step, end_of_stream);
        self.drop_body(size, end_of_stream);
        action
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        if self.still_reads(true) {
            return self.request_end();
        }
        self.drop_body(0, true);
        if self.replied { Action::Pause } else { Action::Continue }
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        if self.replied {
            return Action::Continue;
        }
        let header = |name| host::header(MapType::HttpResponseHeaders, name);
        let number = |value: Vec<u8>| core::str::from_utf8(&value).ok()?.parse().ok();
        let attempts = header(ATTEMPTS);
        if attempts.is_some() {
            host::remove_header(MapType::HttpResponseHeaders, ATTEMPTS);
        }
        let (content_type, content_encoding) = (header("content-type"), header("content-encoding"));
        let status = header(":status").and_then(number).unwrap_or(0);
        let head = ResponseHead {
            status,
            from_engine: status < 400 || code_details() == "via_upstream",
            content_type: content_type.as_deref(),
            content_encoding: content_encoding.as_deref(),
            attempts: attempts.and_then(number).map_or(1, u32::from),
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
        if self.replied {
            return Action::Continue;
        }
        let slice = host::buffer(BufferType::HttpResponseBody, 0, size);
        let instead =
            self.event(|exchange, env| exchange.on_response_body(env, &slice, end_of_stream));
        if let Some(bytes) = instead.flatten() {
            host::set_buffer(BufferType::HttpResponseBody, size, &bytes);
        }
        if end_of_stream {
            self.response_end();
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        if !self.replied {
            self.response_end();
        }
        Action::Continue
    }

    fn on_log(&mut self) {
        self.still_reads(false);
        let client_gone = !self.recorded && !self.replied && downstream_left();
        self.event(|exchange, env| exchange.on_done(env, client_gone));
        self.write_record();
    }
}

fn count_start(stats: &mut RequestStats, record: &Record, labels: &Labels) {
    stats.observe(record, labels, Phase::Started);
    let target = labels.target_model.as_str();
    if let Some(rewrite) = &record.rewritten_by {
        let all = [
            ("model_rewrite_name", rewrite.as_str()),
            ("model_name", &labels.model),
            ("target_model", target),
        ];
        stats.count(counter::REWRITES, &all);
    }
    if let Some(stages) = &record.stages {
        let all = [
            ("plugin_name", stages.plugin_name.as_str()),
            ("plugin_type", &stages.plugin_type),
            ("model_name", &labels.model),
            ("decision_type", stages.decision),
        ];
        stats.count(counter::DISAGG, &all);
        stats.count(counter::PD, &all);
    }
    let name = record.endpoint_name.as_deref().unwrap_or_default();
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let port = record.endpoint.as_deref().and_then(|address| address.rsplit_once(':'));
    let status = if record.endpoint.is_some() { "success" } else { "failure" };
    let all = [
        ("status", status),
        ("target_model_name", target),
        ("endpoint_name", name),
        ("namespace", namespace),
        ("port", port.map_or("", |(_, port)| port)),
    ];
    stats.count(counter::ATTEMPTS, &all);
}

/// Changes a request on its way out.
fn change_request(forward: &Forward) {
    const MAP: MapType = MapType::HttpRequestHeaders;
    if !forward.splices.is_empty() {
        host::remove_header(MAP, "content-length");
        splice_body(&forward.splices);
    }
    for name in &forward.remove_headers {
        host::remove_header(MAP, name);
    }
    for (name, value) in &forward.set_headers {
        host::set_header(MAP, name, value);
    }
    for (name, value) in &forward.add_headers {
        host::add_header(MAP, name, value);
    }
}

/// The whole body is held back in Envoy: a few bytes of it are replaced, all else goes as it was sent.
fn splice_body(splices: &[Splice]) {
    let body = host::buffer(BufferType::HttpRequestBody, 0, usize::MAX >> 1);
    if let Some(changed) = spliced(&body, &mut splices.to_vec()) {
        host::set_buffer(BufferType::HttpRequestBody, body.len(), &changed);
    }
}

fn change_response(edit: &ResponseEdit) {
    const MAP: MapType = MapType::HttpResponseHeaders;
    if edit.changes_length {
        host::remove_header(MAP, "content-length");
    }
    for (name, value) in &edit.set_headers {
        host::set_header(MAP, name, value);
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
