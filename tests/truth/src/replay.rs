//! Sends conversations, several at a time, and notes what the engines counted.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::client;
use crate::workload::conversation::{Ask, Conversation};

/// How requests are sent.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Conversations at a time.
    pub parallel: usize,
    /// What a user takes to read an answer.
    pub pause: Duration,
    /// Most turns of each conversation before the next one has its turn.
    pub turns: usize,
}

/// How many bytes a prompt has.
#[derive(Clone, Copy, Debug)]
pub enum Rendering {
    /// The prompt is what ChatML makes of it.
    ChatMl,
    /// The engine at this address tells, by `/tokenize` and `/detokenize`.
    Engine(SocketAddr),
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Its `x-request-id`.
    pub request: String,
    /// As the engine counted.
    pub prompt_tokens: u64,
    /// As the engine counted.
    pub cached_tokens: u64,
    /// Bytes of the rendered prompt.
    pub prompt_bytes: u64,
}

/// Sends up to `pace.turns` turns of each conversation; returns the conversations as they then are,
/// and what was answered.
///
/// # Errors
/// When a request is not answered.
pub async fn run(
    listen: SocketAddr,
    conversations: Vec<Conversation>,
    pace: Pace,
    rendering: Rendering,
    label: &str,
) -> Result<(Vec<Conversation>, Vec<Answered>)> {
    let count = conversations.len();
    let waiting: VecDeque<_> = conversations.into_iter().enumerate().collect();
    let waiting = Arc::new(Mutex::new(waiting));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..pace.parallel.max(1) {
        let (waiting, label) = (Arc::clone(&waiting), label.to_owned());
        workers.spawn(async move {
            let (mut done, mut answered) = (Vec::new(), Vec::new());
            loop {
                let taken = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                let Some((number, mut conversation)) = taken else { break };
                for turn in 0..pace.turns {
                    let Some(ask) = conversation.ask()? else { break };
                    let request = format!("{label}-{number}-{turn}");
                    let (text, facts) = send(listen, &ask, request, rendering).await?;
                    conversation.answered(text);
                    answered.push(facts);
                    tokio::time::sleep(pace.pause).await;
                }
                done.push((number, conversation));
            }
            anyhow::Ok((done, answered))
        });
    }
    let (mut all, mut answered) = (Vec::with_capacity(count), Vec::new());
    while let Some(worker) = workers.join_next().await {
        let (done, facts) = worker.context("a task that sends requests")??;
        all.extend(done);
        answered.extend(facts);
    }
    all.sort_by_key(|(number, _)| *number);
    Ok((all.into_iter().map(|(_, conversation)| conversation).collect(), answered))
}

async fn send(
    listen: SocketAddr,
    ask: &Ask,
    request: String,
    rendering: Rendering,
) -> Result<(String, Answered)> {
    let prompt_bytes = match rendering {
        Rendering::ChatMl => ask.rendered.len() as u64,
        Rendering::Engine(engine) => rendered_by(engine, &ask.body, &request).await?,
    };
    let answer = client::post(listen, ask.path, &request, &ask.body).await?;
    let choice = &answer["choices"][0];
    let text = choice["message"]["content"].as_str().or(choice["text"].as_str());
    let text = text.with_context(|| format!("{request}: an answer without text"))?.to_owned();
    let usage = &answer["usage"];
    let prompt_tokens = usage["prompt_tokens"].as_u64();
    let cached_tokens = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
    let facts = Answered {
        prompt_tokens: prompt_tokens.with_context(|| format!("{request}: no usage"))?,
        cached_tokens: cached_tokens.with_context(|| {
            format!("{request}: usage says nothing of cached tokens; the engine needs --enable-prompt-tokens-details")
        })?,
        prompt_bytes,
        request,
    };
    Ok((text, facts))
}

/// Bytes of the prompt that an engine makes of a body.
async fn rendered_by(engine: SocketAddr, body: &Value, request: &str) -> Result<u64> {
    if let Some(prompt) = body["prompt"].as_str() {
        return Ok(prompt.len() as u64);
    }
    let ids = client::post(engine, "/tokenize", request, body).await?;
    let text = serde_json::json!({ "model": body["model"], "tokens": ids["tokens"] });
    let prompt = client::post(engine, "/detokenize", request, &text).await?;
    let prompt = prompt["prompt"].as_str().context("/detokenize gave no prompt")?;
    Ok(prompt.len() as u64)
}
