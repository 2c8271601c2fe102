//! Requests on their way through the engine.

use std::sync::Arc;
use std::time::Instant;

use hyper::HeaderMap;
use serde_json::Value;
use tokio::sync::mpsc;

use super::connection::ResetFlag;
use super::core::{Ending, Heard};
use super::faults::RequestFaultKind;
use super::records::Outcome;
use super::stream::{Cut, EventStream, ReplyBody};
use super::{Replica, SimConfig, lock, unix_now};
use crate::api::answer::{self, Choice};
use crate::api::errors::ApiError;
use crate::api::generate::{self, Api, Generate, Prompt};
use crate::api::messages;
use crate::api::sse::{StreamHead, Totals};
use crate::api::transfer::{self, Transfer};
use crate::engine::blocks::{chain_hashes, chain_root};
use crate::engine::{FinishReason, RequestId, Submission, SubmitError};
use crate::kv_events::evictions::Lack;
use crate::metrics::http::Answered;
use crate::tokens::Tokenizer;

/// What a request holds while it is in flight. Dropping it gives everything back, however the
/// request ends.
pub(super) struct Flight {
    replica: Arc<Replica>,
    ids: Vec<RequestId>,
    seq: u64,
    outcome: Outcome,
    completion: usize,
    started: Instant,
    answered: Answered,
}

impl Flight {
    /// `started`: when the request's head was read.
    pub(super) fn new(
        replica: &Arc<Replica>,
        seq: u64,
        started: Instant,
        answered: Answered,
    ) -> Self {
        Self {
            replica: Arc::clone(replica),
            ids: Vec::new(),
            seq,
            outcome: Outcome::Aborted,
            completion: 0,
            started,
            answered,
        }
    }

    pub(super) fn config(&self) -> &SimConfig {
        &self.replica.config
    }

    pub(super) fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.replica.tokenizer
    }

    /// Says how it ended; without this it counts as aborted.
    pub(super) fn end(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    /// Says how many tokens of its answer there are so far.
    pub(super) fn note_completion(&mut self, tokens: usize) {
        self.completion = tokens;
    }

    /// Says how many tokens of one of its prompts admission found cached.
    pub(super) fn note_cached(&self, tokens: usize) {
        self.replica.records().update(self.seq, |record| record.cached_tokens += tokens);
    }

    fn status(&mut self, status: u16, bytes: usize) {
        self.answered.status = status;
        self.answered.response_bytes = bytes;
        self.replica.records().update(self.seq, |record| record.status = status);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        for &id in &self.ids {
            self.replica.core.cancel(id);
        }
        let (outcome, completion) = (self.outcome, self.completion);
        self.replica.records().update(self.seq, |record| {
            (record.outcome, record.completion_tokens) = (outcome, completion);
        });
        if self.answered.status != 0 {
            let seconds = self.started.elapsed().as_secs_f64();
            lock(&self.replica.http).note(Answered { seconds, ..self.answered });
        }
    }
}

/// An answer to a generation request, before it becomes an HTTP response.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: ReplyBody,
    pub(super) stream: bool,
    /// Prompt tokens that were cached on arrival, if the request got that far.
    pub(super) cached: Option<usize>,
}

impl Reply {
    fn error(api: Api, error: &ApiError, mut flight: Flight) -> Self {
        let body = match api {
            Api::Messages => messages::error(error),
            _ => error.body(),
        };
        flight.status(error.status, body.len());
        flight.end(Outcome::Rejected);
        Self {
            status: error.status,
            body: ReplyBody::Whole(Some(body.into())),
            stream: false,
            cached: None,
        }
    }
}

/// Serves one request whose body is read and whose arrival is noted in `flight`.
pub(super) async fn generate(
    mut flight: Flight,
    api: Api,
    headers: &HeaderMap,
    body: &[u8],
    reset: &ResetFlag,
) -> Result<Reply, Cut> {
    let replica = Arc::clone(&flight.replica);
    let fault = replica.take_request_fault();
    let mut reset_after = None;
    match fault {
        Some(RequestFaultKind::Status(status)) => {
            return Ok(Reply::error(api, &ApiError::on_command(status), flight));
        }
        Some(RequestFaultKind::ResetBefore) => {
            reset.set();
            return Err(Cut);
        }
        Some(RequestFaultKind::ResetAfterTokens(tokens)) => {
            reset_after = Some((tokens, reset.clone()));
        }
        None => {}
    }
    if replica.draining() {
        return Ok(Reply::error(api, &ApiError::on_command(503), flight));
    }
    let parsed = check_content_type(headers)
        .and_then(|()| generate::parse(api, body, &replica.config.api, &replica.tokenizer));
    let mut generate = match parsed {
        Ok(generate) => generate,
        Err(error) => return Ok(Reply::error(api, &error, flight)),
    };
    let session = headers.get("x-session-id").and_then(|session| session.to_str().ok());
    generate.session = session.map(str::to_owned).or(generate.session);
    let (to, heard) = mpsc::unbounded_channel();
    let submitted = submit(&mut flight, &generate, &to);
    // From here on only the engine can speak, and its silence for good is heard.
    drop(to);
    let cached = match submitted {
        Ok(cached) => cached,
        Err(error) => return Ok(Reply::error(api, &error, flight)),
    };
    let head = head(&generate, headers, &replica);
    if generate.stream {
        flight.status(200, 0);
        let events = EventStream::new(head, generate, flight, heard, reset_after);
        return Ok(Reply {
            status: 200,
            body: ReplyBody::Events(Box::new(events)),
            stream: true,
            cached: Some(cached),
        });
    }
    let (choices, totals) = match collect(&generate, heard, &flight).await? {
        Ok(collected) => collected,
        Err(error) => return Ok(Reply::error(api, &error, flight)),
    };
    if let Some((_, reset)) = reset_after {
        reset.set();
        return Err(Cut);
    }
    let offer = offer(&replica, &generate);
    let details = replica.config.api.prompt_tokens_details;
    let body = answer::body(&head, &choices, totals, details, offer);
    flight.status(200, body.len());
    flight.note_completion(totals.completion);
    flight.end(Outcome::Finished);
    Ok(Reply {
        status: 200,
        body: ReplyBody::Whole(Some(body.into())),
        stream: false,
        cached: Some(cached),
    })
}

fn submit(
    flight: &mut Flight,
    generate: &Generate,
    to: &mpsc::UnboundedSender<Heard>,
) -> Result<usize, ApiError> {
    let core = &flight.replica.core;
    let mut cached = 0;
    for (choice, Prompt { tokens, prompt_len }) in generate.prompts.iter().enumerate() {
        let submission = Submission {
            id: core.next_id(),
            tokens: tokens.clone(),
            prompt_len: *prompt_len,
            finish: generate.finish,
            max_tokens: generate.max_tokens,
            adapter: generate.adapter.as_deref().map(Arc::from),
            cache_salt: generate.cache_salt.as_deref().map(Arc::from),
            session: generate.session.as_deref().map(Arc::from),
            transferred: generate.transfer == Some(Transfer::Decode),
        };
        flight.ids.push(submission.id);
        cached +=
            core.submit(submission, choice, generate.stream, to.clone()).map_err(|error| {
                match error {
                    SubmitError::QueueFull { .. } => ApiError::queue_full(),
                    SubmitError::Unservable { .. } => {
                        ApiError::bad_request(error.to_string(), Some("input_tokens"))
                    }
                }
            })?;
    }
    let prompt_tokens: usize = generate.prompts.iter().map(|prompt| prompt.prompt_len).sum();
    let first_missing = first_missing(&flight.replica, generate, cached);
    flight.replica.records().update(flight.seq, |record| {
        record.prompt_tokens = prompt_tokens;
        record.cached_on_arrival = cached;
        record.first_missing = first_missing;
        record.model.clone_from(&generate.model);
        record.transfer = generate.transfer;
        if generate.transfer == Some(Transfer::Decode) {
            // Of each prompt the last token is computed here.
            let last = generate.prompts.len();
            record.transferred_tokens = prompt_tokens.saturating_sub(last).saturating_sub(cached);
        }
    });
    Ok(cached)
}

/// Where another engine finds the KV of a request that is only to be prefilled here.
fn offer(replica: &Replica, generate: &Generate) -> Value {
    if generate.transfer != Some(Transfer::Prefill) {
        return Value::Null;
    }
    let block_size = replica.config.engine.block_size;
    let blocks = generate.prompts.iter().map(|prompt| prompt.prompt_len.div_ceil(block_size)).sum();
    transfer::offered(&replica.addr.ip().to_string(), replica.addr.port(), blocks)
}

/// Why the block after the `held` tokens of a request's only prompt is not held.
fn first_missing(replica: &Replica, generate: &Generate, held: usize) -> Option<Lack> {
    let line = replica.event_line()?;
    let [Prompt { tokens, prompt_len }] = &generate.prompts[..] else { return None };
    let block_size = replica.config.engine.block_size;
    let end = held + block_size;
    let known = tokens.get(..end).filter(|_| end < *prompt_len)?;
    let root = chain_root(generate.adapter.as_deref(), generate.cache_salt.as_deref());
    let hash = chain_hashes(root, known, block_size).last().copied()?;
    Some(line.lack(hash))
}

/// Waits for all answers of a request that is not streamed.
async fn collect(
    generate: &Generate,
    mut heard: mpsc::UnboundedReceiver<Heard>,
    flight: &Flight,
) -> Result<Result<(Vec<Choice>, Totals), ApiError>, Cut> {
    let block_size = flight.config().engine.block_size;
    let mut totals = Totals::default();
    let mut ends: Vec<Option<FinishReason>> = vec![None; generate.prompts.len()];
    while ends.contains(&None) {
        match heard.recv().await {
            Some(Heard::Token { choice, cached, finish, .. }) => {
                let (Some(end), Some(prompt)) =
                    (ends.get_mut(choice), generate.prompts.get(choice))
                else {
                    continue;
                };
                *end = finish;
                totals.prompt += prompt.prompt_len;
                totals.completion += prompt.tokens.len() - prompt.prompt_len;
                totals.cached += cached;
                flight.note_cached(cached);
                totals.created +=
                    (prompt.prompt_len / block_size * block_size).saturating_sub(cached);
            }
            Some(Heard::Gone(Ending::ErrorEvent)) => return Ok(Err(ApiError::engine_dead())),
            Some(Heard::Gone(Ending::Cut | Ending::Silence)) | None => return Err(Cut),
        }
    }
    let words = flight.tokenizer().words();
    let choices = generate.prompts.iter().zip(ends).map(|(prompt, finish)| {
        let (asked, answer) = prompt.tokens.split_at(prompt.prompt_len);
        Choice {
            text: answer.iter().map(|&id| words.text(id)).collect(),
            finish: finish.unwrap_or(generate.finish),
            token_ids: generate.return_token_ids.then(|| answer.to_vec()),
            prompt_token_ids: generate.return_token_ids.then(|| asked.to_vec()),
        }
    });
    Ok(Ok((choices.collect(), totals)))
}

fn head(generate: &Generate, headers: &HeaderMap, replica: &Replica) -> StreamHead {
    let prefix = match generate.api {
        // vLLM makes a chat of messages.
        Api::Chat | Api::Messages => "chatcmpl",
        Api::Completion => "cmpl",
        Api::Responses => "resp",
        Api::Tokens => "generate-tokens",
        Api::Embedding => "embd",
    };
    let asked = headers
        .get("x-request-id")
        .and_then(|id| id.to_str().ok())
        .or(generate.request_id.as_deref());
    let id = asked.map_or_else(|| replica.fresh_id(), str::to_owned);
    StreamHead {
        api: generate.api,
        id: format!("{prefix}-{id}"),
        created: unix_now() as u64,
        model: generate.model.clone(),
        max_tokens: generate.max_tokens,
    }
}

pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(ApiError::validation("Unsupported Media Type: Only 'application/json' is allowed", None))
}
