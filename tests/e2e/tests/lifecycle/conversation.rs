//! A conversation: each turn is the one before and something new.

use anyhow::{Context as _, Result, ensure};
use e2e::Stack;
use e2e::client::{Request, Response, send};
use e2e::prompts::{chat_of, fresh_text};
use serde_json::{Value, json};

/// Its messages so far.
pub(crate) struct Conversation {
    id: String,
    messages: Vec<Value>,
    turns: usize,
}

impl Conversation {
    /// A new one, with a first message of about `bytes` bytes that nobody else has.
    pub(crate) fn new(id: &str, bytes: usize) -> Self {
        let first = json!({"role": "user", "content": fresh_text(bytes)});
        Self { id: id.to_owned(), messages: vec![first], turns: 0 }
    }

    /// The next turn, and its `x-request-id`. Sent again after this, the conversation is longer.
    pub(crate) fn turn(&mut self, reply_tokens: u32) -> (String, Value) {
        if self.turns > 0 {
            self.messages.push(json!({"role": "assistant", "content": "Go on."}));
            self.messages.push(json!({"role": "user", "content": fresh_text(200)}));
        }
        let id = format!("{}-{}", self.id, self.turns);
        self.turns += 1;
        (id, chat_of(&json!(self.messages), reply_tokens))
    }
}

/// What came of a turn.
pub(crate) struct Turn {
    pub(crate) id: String,
    pub(crate) engine: String,
    /// Tokens of the prompt that the engine held when it came.
    pub(crate) cached: u64,
    pub(crate) prompt: u64,
}

impl Turn {
    pub(crate) fn of(id: String, answer: &Response) -> Result<Self> {
        ensure!(answer.status == 200, "{id}: status {}: {}", answer.status, answer.text());
        let cached =
            answer.header("x-sim-cached-tokens").context("x-sim-cached-tokens")?.parse()?;
        let prompt = answer.json()["usage"]["prompt_tokens"].as_u64().context("a usage")?;
        let engine = answer.engine().context("x-sim-endpoint")?.to_owned();
        Ok(Self { id, engine, cached, prompt })
    }
}

/// Sends the next turn, which must be answered well.
pub(crate) async fn go_on(stack: &Stack, conversation: &mut Conversation) -> Result<Turn> {
    let (id, body) = conversation.turn(1);
    let answer = send(stack.listen(), &Request::chat(&body).id(&id)).await?;
    Turn::of(id, &answer)
}
