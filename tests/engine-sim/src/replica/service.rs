//! Routes of a replica's port.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, Response};

use super::connection::ResetFlag;
use super::faults::{MetricsFault, Serving};
use super::generation::{self, Flight, Reply, check_content_type};
use super::records::Outcome;
use super::stream::{Cut, ReplyBody};
use super::{Replica, lock, unix_now};
use crate::api::errors::ApiError;
use crate::api::generate::Api;
use crate::api::{VERSION, messages, models, tokenize};
use crate::metrics::format::{FORMER_KV_USAGE, Format, KV_USAGE};
use crate::metrics::http::Answered;

/// Longest request body, bytes.
const MAX_BODY: usize = 64 << 20;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Routes by path: the handler's name, and the one method it takes.
const ROUTES: &[(&str, &str)] = &[
    ("/v1/chat/completions", "POST"),
    ("/v1/completions", "POST"),
    ("/v1/messages", "POST"),
    ("/v1/messages/count_tokens", "POST"),
    ("/v1/responses", "POST"),
    ("/v1/embeddings", "POST"),
    ("/v1/conversations", "POST"),
    ("/inference/v1/generate", "POST"),
    ("/tokenize", "POST"),
    ("/reset_prefix_cache", "POST"),
    ("/v1/models", "GET"),
    ("/health", "GET"),
    ("/ping", "GET"),
    ("/version", "GET"),
    ("/load", "GET"),
    ("/kv_event_sources", "GET"),
    ("/metrics", "GET"),
];

/// Answers one request.
pub(super) async fn serve(
    replica: &Arc<Replica>,
    reset: &ResetFlag,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Cut> {
    let started = Instant::now();
    until_answering(replica).await;
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let Some(&(handler, allowed)) = ROUTES.iter().find(|(route, _)| *route == path) else {
        let answer = Plain::json(404, br#"{"detail":"Not Found"}"#.to_vec());
        return Ok(replica.note(answer, "none", &parts.method, started, 0));
    };
    if parts.method.as_str() != allowed {
        let answer = Plain::json(405, br#"{"detail":"Method Not Allowed"}"#.to_vec());
        let mut response = replica.note(answer, handler, &parts.method, started, 0);
        response.headers_mut().insert("allow", HeaderValue::from_static(allowed));
        return Ok(response);
    }
    let body = match Limited::new(body, MAX_BODY).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let answer = Plain::json(413, br#"{"detail":"Request body too large"}"#.to_vec());
            return Ok(replica.note(answer, handler, &parts.method, started, MAX_BODY));
        }
        // The client went away while sending.
        Err(_) => return Err(Cut),
    };
    let api = match handler {
        "/v1/chat/completions" => Api::Chat,
        "/v1/completions" => Api::Completion,
        "/v1/messages" => Api::Messages,
        "/v1/responses" => Api::Responses,
        "/v1/embeddings" => Api::Embedding,
        "/inference/v1/generate" => Api::Tokens,
        "/v1/messages/count_tokens" | "/v1/conversations" => {
            let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
            let seq = replica.records().arrived(target, &parts.headers, &body);
            let answer = replica.answer_plain(handler, &parts.headers, &body);
            let fine = answer.status == 200;
            replica.records().update(seq, |record| {
                record.status = answer.status;
                record.outcome = if fine { Outcome::Finished } else { Outcome::Rejected };
            });
            return Ok(replica.note(answer, handler, &parts.method, started, body.len()));
        }
        "/metrics" => return replica.answer_metrics(started).await,
        _ => {
            let answer = replica.answer_plain(handler, &parts.headers, &body);
            return Ok(replica.note(answer, handler, &parts.method, started, body.len()));
        }
    };
    let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
    let seq = replica.records().arrived(target, &parts.headers, &body);
    let answered = Answered {
        handler,
        method: "POST",
        status: 0,
        request_bytes: body.len(),
        response_bytes: 0,
        seconds: 0.0,
    };
    let flight = Flight::new(replica, seq, started, answered);
    let reply = generation::generate(flight, api, &parts.headers, &body, reset).await?;
    let asked_id = parts.headers.get("x-request-id").cloned();
    Ok(replica.respond(reply, asked_id))
}

/// Waits while the replica hangs.
async fn until_answering(replica: &Replica) {
    let mut faults = replica.faults.subscribe();
    // The sender lives as long as the replica, so this cannot fail.
    let _ = faults.wait_for(|faults| faults.serving != Serving::Hang).await;
}

/// An answer in one piece.
struct Plain {
    status: u16,
    kind: Option<&'static str>,
    body: Vec<u8>,
}

impl Plain {
    fn json(status: u16, body: Vec<u8>) -> Self {
        Self { status, kind: Some(JSON), body }
    }

    fn error(error: &ApiError) -> Self {
        Self::json(error.status, error.body())
    }
}

impl Replica {
    fn answer_plain(&self, handler: &str, headers: &hyper::HeaderMap, body: &Bytes) -> Plain {
        let value = match handler {
            "/v1/models" => models::list(&self.config.api, self.core.snapshot().created as u64),
            "/version" => serde_json::json!({ "version": VERSION }),
            "/load" => serde_json::json!({ "server_load": 0 }),
            "/kv_event_sources" => self.event_sources(),
            "/reset_prefix_cache" => {
                serde_json::json!({ "success": self.core.reset_prefix_cache() })
            }
            "/v1/conversations" => serde_json::json!({
                "id": format!("conv_{}", self.fresh_id()), "object": "conversation",
                "created_at": unix_now() as u64, "metadata": {},
            }),
            "/v1/messages/count_tokens" => {
                let answer = check_content_type(headers)
                    .and_then(|()| messages::count(body, &self.config.api, &self.tokenizer));
                match answer {
                    Ok(value) => value,
                    Err(error) => return Plain::json(error.status, messages::error(&error)),
                }
            }
            "/tokenize" => {
                let answer = check_content_type(headers)
                    .and_then(|()| tokenize::answer(body, &self.config.api, &self.tokenizer));
                match answer {
                    Ok(value) => value,
                    Err(error) => return Plain::error(&error),
                }
            }
            // /health and /ping
            _ => return Plain { status: 200, kind: None, body: Vec::new() },
        };
        Plain::json(200, value.to_string().into_bytes())
    }

    async fn answer_metrics(&self, started: Instant) -> Result<Response<ReplyBody>, Cut> {
        let fault = self.faults.borrow().metrics.clone();
        let (status, text) = match fault {
            MetricsFault::None => (200, self.metrics()),
            MetricsFault::Drop => return Err(Cut),
            MetricsFault::Blank => (200, String::new()),
            MetricsFault::Error => (500, "Internal Server Error".to_owned()),
            MetricsFault::Freeze { text } => (200, text.to_string()),
            MetricsFault::Truncate => {
                let whole = self.metrics();
                // Inside the value of the gauge that matters most.
                let [usage, _] = self.format.signals();
                let cut = whole.find(usage).map_or(whole.len() / 2, |at| at + 40);
                (200, whole.get(..cut).unwrap_or(&whole).to_owned())
            }
            MetricsFault::OldNames => (200, self.metrics().replace(KV_USAGE, FORMER_KV_USAGE)),
            MetricsFault::Nan => (200, with_nan(&self.metrics(), self.format)),
            MetricsFault::Hang => {
                let mut faults = self.faults.subscribe();
                // As in `until_answering`.
                let _ = faults.wait_for(|faults| faults.metrics != MetricsFault::Hang).await;
                (200, self.metrics())
            }
        };
        let answer = Plain { status, kind: Some(TEXT), body: text.into_bytes() };
        Ok(self.note(answer, "/metrics", &Method::GET, started, 0))
    }

    /// Counts an answer in one piece and makes a response of it.
    fn note(
        &self,
        answer: Plain,
        handler: &'static str,
        method: &Method,
        started: Instant,
        request_bytes: usize,
    ) -> Response<ReplyBody> {
        // vLLM does not count scrapes and health checks.
        if !matches!(handler, "/metrics" | "/health" | "/ping" | "/version" | "/load") {
            lock(&self.http).note(Answered {
                handler,
                method: method_word(method),
                status: answer.status,
                request_bytes,
                response_bytes: answer.body.len(),
                seconds: started.elapsed().as_secs_f64(),
            });
        }
        let body = (!answer.body.is_empty()).then(|| answer.body.into());
        self.response(answer.status, answer.kind, ReplyBody::Whole(body))
    }

    fn respond(&self, reply: Reply, asked_id: Option<HeaderValue>) -> Response<ReplyBody> {
        let kind = if reply.stream { EVENTS } else { JSON };
        let mut response = self.response(reply.status, Some(kind), reply.body);
        if let Some(cached) = reply.cached {
            response.headers_mut().insert("x-sim-cached-tokens", HeaderValue::from(cached));
        }
        if self.config.request_id_headers {
            let id = asked_id.or_else(|| HeaderValue::try_from(self.fresh_id()).ok());
            id.map(|id| response.headers_mut().insert("x-request-id", id));
        }
        response
    }

    fn response(
        &self,
        status: u16,
        kind: Option<&'static str>,
        body: ReplyBody,
    ) -> Response<ReplyBody> {
        let mut response = Response::new(body);
        *response.status_mut() =
            hyper::StatusCode::from_u16(status).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert("server", HeaderValue::from_static("uvicorn"));
        kind.map(|kind| headers.insert("content-type", HeaderValue::from_static(kind)));
        headers.insert("vary", HeaderValue::from_static("Origin"));
        if let Ok(endpoint) = HeaderValue::try_from(self.addr.to_string()) {
            headers.insert(HeaderName::from_static("x-sim-endpoint"), endpoint);
        }
        response
    }

    /// 16 hex digits that no other request of this process got.
    pub(super) fn fresh_id(&self) -> String {
        let count = self.core.next_id();
        let seed = (unix_now() * 1e9) as u64 ^ u64::from(self.addr.port());
        format!("{:016x}", xxhash_rust::xxh3::xxh3_64_with_seed(&count.to_le_bytes(), seed))
    }
}

fn method_word(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        "PATCH" => "PATCH",
        _ => "OTHER",
    }
}

fn with_nan(exposition: &str, format: Format) -> String {
    let mut out = String::with_capacity(exposition.len());
    for line in exposition.lines() {
        let spoilt = format.signals().iter().any(|signal| line.starts_with(signal));
        match line.rsplit_once(' ').filter(|_| spoilt) {
            Some((series, _)) => out.extend([series, " NaN\n"]),
            None => out.extend([line, "\n"]),
        }
    }
    out
}
