//! Chats whose outcome is compared with what the filter believed.

use anyhow::{Context as _, Result};
use e2e::Stack;
use e2e::access_log::Access;
use e2e::client::{Request, send};
use e2e::prompts::{chat_of, fresh_text};
use serde_json::{Value, json};

/// Tokens of an engine's block.
pub(crate) const BLOCK: u64 = 16;

/// A byte block in tokens, at most: one of the simulator's tokens has a byte at least.
pub(crate) const BYTE_BLOCK: u64 = 128;

/// What came of one request.
pub(crate) struct Outcome {
    /// Who served it.
    pub(crate) engine: String,
    /// The answer's text.
    pub(crate) reply: String,
    /// What the engine counted.
    pub(crate) cached: u64,
    /// The access log's record.
    pub(crate) log: Access,
}

impl Outcome {
    /// What the filter believed to be cached.
    pub(crate) fn believed(&self) -> u64 {
        self.log.matched_tokens().unwrap_or(0)
    }

    pub(crate) fn kind(&self) -> &str {
        self.log.matched_kind.as_deref().unwrap_or_default()
    }

    /// The belief was not above what was held, and below it by no more than the two roundings.
    pub(crate) fn assert_exact(&self) {
        let (believed, cached) = (self.believed(), self.cached);
        assert_eq!(self.log.prompt_source.as_deref(), Some("rendered"));
        assert!(
            believed <= cached && cached - believed <= BYTE_BLOCK + BLOCK,
            "believed {believed}, cached {cached}: {:?}",
            self.log
        );
    }
}

/// Sends a chat and awaits its record.
pub(crate) async fn ask(stack: &Stack, id: &str, body: &Value) -> Result<Outcome> {
    let answer = send(stack.listen(), &Request::chat(body).id(id)).await?;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let json = answer.json();
    let reply = json["choices"][0]["message"]["content"].as_str().context("no reply")?.to_owned();
    let cached = json["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    let engine = answer.engine().context("no engine")?.to_owned();
    let cached = cached.context("no count of cached tokens")?;
    Ok(Outcome { engine, reply, cached, log: stack.access(id).await? })
}

/// A conversation as the client keeps it.
#[derive(Clone)]
pub(crate) struct Conversation {
    messages: Vec<Value>,
    /// Other fields of its requests.
    fields: Value,
    reply_tokens: u32,
}

impl Conversation {
    /// With a first message of so many bytes.
    pub(crate) fn new(bytes: usize, reply_tokens: u32) -> Self {
        let messages = vec![
            json!({"role": "system", "content": "Answer in one word."}),
            json!({"role": "user", "content": fresh_text(bytes)}),
        ];
        Self { messages, fields: json!({}), reply_tokens }
    }

    /// The same with these other fields in its requests.
    pub(crate) fn with(&self, fields: &Value) -> Self {
        Self { fields: fields.clone(), ..self.clone() }
    }

    /// The next request's body.
    pub(crate) fn body(&self) -> Value {
        let mut body = chat_of(&json!(self.messages), self.reply_tokens);
        if let (Some(body), Some(fields)) = (body.as_object_mut(), self.fields.as_object()) {
            body.extend(fields.clone());
        }
        body
    }

    /// The answer came; the next question is short.
    pub(crate) fn go_on(&mut self, reply: &str) {
        self.messages.push(json!({"role": "assistant", "content": reply}));
        self.messages.push(json!({"role": "user", "content": fresh_text(100)}));
    }

    /// Asks the next question.
    pub(crate) async fn turn(&mut self, stack: &Stack, id: &str) -> Result<Outcome> {
        let outcome = ask(stack, id, &self.body()).await?;
        self.go_on(&outcome.reply);
        Ok(outcome)
    }

    /// Asks again and again, changing nothing, until the belief rests on events: those of the last turn have come.
    pub(crate) async fn told(&self, stack: &Stack, id: &str) -> Result<Outcome> {
        let tries = std::sync::atomic::AtomicU32::new(0);
        let told = async || {
            let n = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut body = self.body();
            body["max_tokens"] = json!(1);
            let outcome = ask(stack, &format!("{id}-{n}"), &body).await.ok()?;
            (outcome.kind() == "events").then_some(outcome)
        };
        stack.until("a belief that rests on events", told).await
    }
}
