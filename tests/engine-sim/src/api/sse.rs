//! Stream events, field by field in the order in which vLLM writes them.

use serde::Serialize;

use super::FINGERPRINT;
use super::generate::Api;
use crate::engine::FinishReason;

/// The end of every stream.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// A comment that keeps a silent stream alive.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// What is the same in all events of a stream.
#[derive(Debug, Clone)]
pub struct StreamHead {
    /// Which API.
    pub api: Api,
    /// `id`, such as `chatcmpl-…`.
    pub id: String,
    /// Unix seconds.
    pub created: u64,
    /// Model name as the client wrote it.
    pub model: String,
    /// The limit of the answer.
    pub max_tokens: usize,
}

/// Running totals of a stream, over all its choices.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Tokens of the prompts.
    pub prompt: usize,
    /// Tokens generated so far.
    pub completion: usize,
    /// Prompt tokens that came from the cache.
    pub cached: usize,
    /// Prompt tokens that were newly cached, in whole blocks.
    pub created: usize,
}

/// One token of the answer.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// Which choice.
    pub choice: usize,
    /// Its text.
    pub text: &'a str,
    /// Its id, if the client asked for ids.
    pub token_id: Option<u32>,
    /// Set on the last token of the choice.
    pub finish: Option<FinishReason>,
    /// Whether the event ends a stream that has no usage event of its own.
    pub fingerprint: bool,
}

#[derive(Serialize)]
struct Event<'a, C> {
    id: &'a str,
    object: &'a str,
    created: u64,
    model: &'a str,
    choices: &'a [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_fingerprint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Option<&'a [u32]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_text: Option<()>,
}

#[derive(Serialize)]
struct ChatChoice<'a> {
    index: usize,
    delta: Delta<'a>,
    logprobs: (),
    finish_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<Null>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Option<[u32; 1]>>,
}

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    content: &'a str,
}

#[derive(Serialize)]
struct CompletionChoice<'a> {
    index: usize,
    text: &'a str,
    logprobs: (),
    finish_reason: Option<&'a str>,
    stop_reason: (),
    prompt_token_ids: Option<&'a [u32]>,
    token_ids: Option<[u32; 1]>,
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
    completion_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens_details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completion_tokens_details: Option<Null>,
}

#[derive(Serialize)]
struct Details {
    cached_tokens: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_cache_tokens: Option<usize>,
}

/// A field that is there, and null.
#[derive(Serialize)]
struct Null(());

impl StreamHead {
    /// The first event of a chat, which carries the role. `ids`: the prompt's, if asked for.
    pub fn role(&self, ids: Option<&[u32]>, usage: Option<Totals>) -> Vec<u8> {
        let choice = ChatChoice {
            index: 0,
            delta: Delta { role: Some("assistant"), content: "" },
            logprobs: (),
            finish_reason: None,
            stop_reason: None,
            token_ids: None,
        };
        let mut event = self.event(std::slice::from_ref(&choice));
        event.usage = usage.map(|totals| self.running_usage(totals));
        event.prompt_token_ids = Some(ids);
        event.prompt_text = Some(());
        line(&event)
    }

    /// An event with one token. `ids`: the prompt's, on a completion's first token if asked for.
    pub fn token(&self, piece: Piece<'_>, ids: Option<&[u32]>, usage: Option<Totals>) -> Vec<u8> {
        let finish_reason = piece.finish.map(FinishReason::as_str);
        let token_ids = piece.token_id.map(|id| [id]);
        let usage = usage.map(|totals| self.running_usage(totals));
        let fingerprint = piece.fingerprint.then_some(FINGERPRINT);
        match self.api {
            Api::Chat | Api::Messages | Api::Responses => {
                let choice = ChatChoice {
                    index: piece.choice,
                    delta: Delta { role: None, content: piece.text },
                    logprobs: (),
                    finish_reason,
                    stop_reason: finish_reason.map(|_| Null(())),
                    token_ids: Some(token_ids),
                };
                let mut event = self.event(std::slice::from_ref(&choice));
                (event.usage, event.system_fingerprint) = (usage, fingerprint);
                line(&event)
            }
            Api::Completion | Api::Tokens | Api::Embedding => {
                let choice = CompletionChoice {
                    index: piece.choice,
                    text: piece.text,
                    logprobs: (),
                    finish_reason,
                    stop_reason: (),
                    prompt_token_ids: ids,
                    token_ids,
                };
                let mut event = self.event(std::slice::from_ref(&choice));
                (event.usage, event.system_fingerprint) = (usage, fingerprint);
                line(&event)
            }
        }
    }

    /// The event without choices that tells the usage. `details`: whether it says what was cached.
    pub fn usage(&self, totals: Totals, details: bool) -> Vec<u8> {
        let mut event = self.event::<ChatChoice<'_>>(&[]);
        event.usage = Some(Usage {
            prompt_tokens_details: details.then(|| Details {
                cached_tokens: totals.cached,
                created_cache_tokens: (self.api == Api::Chat).then_some(totals.created),
            }),
            completion_tokens_details: None,
            ..self.running_usage(totals)
        });
        event.system_fingerprint = Some(FINGERPRINT);
        line(&event)
    }

    fn event<'a, C>(&'a self, choices: &'a [C]) -> Event<'a, C> {
        Event {
            id: &self.id,
            object: match self.api {
                Api::Chat => "chat.completion.chunk",
                _ => "text_completion",
            },
            created: self.created,
            model: &self.model,
            choices,
            usage: None,
            system_fingerprint: None,
            prompt_token_ids: None,
            prompt_text: None,
        }
    }

    fn running_usage(&self, totals: Totals) -> Usage {
        Usage {
            prompt_tokens: totals.prompt,
            total_tokens: totals.prompt + totals.completion,
            completion_tokens: totals.completion,
            prompt_tokens_details: None,
            completion_tokens_details: (self.api == Api::Chat).then_some(Null(())),
        }
    }
}

fn line<C: Serialize>(event: &Event<'_, C>) -> Vec<u8> {
    let mut out = Vec::with_capacity(320);
    out.extend_from_slice(b"data: ");
    // Writing plain data into a Vec cannot fail; a failure would show as an event without JSON.
    let _ = serde_json::to_writer(&mut out, event);
    out.extend_from_slice(b"\n\n");
    out
}
