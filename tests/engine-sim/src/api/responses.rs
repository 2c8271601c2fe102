//! OpenAI's `/v1/responses` as vLLM answers it.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::Choice;
use super::chat;
use super::errors::ApiError;
use super::fields::{Fields, wrong_type};
use super::sse::{StreamHead, Totals};
use crate::engine::FinishReason;
use crate::tokens::Tokenizer;
use crate::tokens::template::{self, Message};

/// Token ids of a body's instructions and input: a text, or a list of messages.
pub fn tokens(fields: &Fields<'_>, tokenizer: &Tokenizer) -> Result<Vec<u32>, ApiError> {
    let raw = fields.raw("input").ok_or_else(|| fields.missing("input"))?;
    let mut messages: Vec<Message<'_>> = Vec::new();
    if let Some(instructions) = fields.text("instructions")? {
        messages.push(Message::new("system", instructions));
    }
    if raw.get().starts_with('"') {
        messages.push(Message::new("user", fields.text("input")?.unwrap_or_default()));
    } else {
        let items: Vec<&RawValue> =
            serde_json::from_str(raw.get()).map_err(|_| wrong_type("body.input", "list"))?;
        for item in items {
            let item = Fields::nested(item, "body.input")?;
            let role = item.text("role")?.unwrap_or(Cow::Borrowed("user"));
            messages.push(Message { role, content: chat::content(&item)? });
        }
    }
    if messages.is_empty() {
        let message = "Cannot apply chat template to an empty conversation.";
        return Err(ApiError::bad_request(message, None));
    }
    Ok(template::tokenize(tokenizer, &messages, true)?)
}

#[derive(Serialize)]
struct Response<'a> {
    id: &'a str,
    created_at: u64,
    incomplete_details: Option<Incomplete>,
    instructions: (),
    metadata: (),
    model: &'a str,
    object: &'static str,
    output: Vec<Item<'a>>,
    parallel_tool_calls: bool,
    temperature: f64,
    tool_choice: &'static str,
    tools: [(); 0],
    top_p: f64,
    background: bool,
    max_output_tokens: usize,
    max_tool_calls: (),
    previous_response_id: (),
    prompt: (),
    reasoning: (),
    service_tier: &'static str,
    status: &'static str,
    text: (),
    top_logprobs: (),
    truncation: &'static str,
    usage: Option<Usage>,
    user: (),
    presence_penalty: f64,
    frequency_penalty: f64,
    kv_transfer_params: (),
    ec_transfer_params: (),
    input_messages: (),
    output_messages: (),
}

#[derive(Serialize)]
struct Incomplete {
    reason: &'static str,
}

#[derive(Serialize)]
struct Item<'a> {
    id: &'a str,
    content: Vec<Part<'a>>,
    role: &'static str,
    status: &'static str,
    r#type: &'static str,
    phase: (),
}

#[derive(Serialize)]
struct Part<'a> {
    annotations: [(); 0],
    text: &'a str,
    r#type: &'static str,
    logprobs: Option<[(); 0]>,
}

#[derive(Serialize)]
struct Usage {
    input_tokens: usize,
    input_tokens_details: InputDetails,
    output_tokens: usize,
    output_tokens_details: OutputDetails,
    total_tokens: usize,
}

#[derive(Serialize)]
struct InputDetails {
    cached_tokens: usize,
    cache_write_tokens: usize,
    input_tokens_per_turn: [(); 0],
    cached_tokens_per_turn: [(); 0],
}

#[derive(Serialize)]
struct OutputDetails {
    reasoning_tokens: usize,
    tool_output_tokens: usize,
    output_tokens_per_turn: [(); 0],
    tool_output_tokens_per_turn: [(); 0],
}

impl<'a> Response<'a> {
    /// Before anything was generated.
    fn begun(id: &'a str, head: &'a StreamHead) -> Self {
        Self {
            id,
            created_at: head.created,
            incomplete_details: None,
            instructions: (),
            metadata: (),
            model: &head.model,
            object: "response",
            output: Vec::new(),
            parallel_tool_calls: true,
            temperature: 0.0,
            tool_choice: "none",
            tools: [],
            top_p: 1.0,
            background: false,
            max_output_tokens: head.max_tokens,
            max_tool_calls: (),
            previous_response_id: (),
            prompt: (),
            reasoning: (),
            service_tier: "auto",
            status: "in_progress",
            text: (),
            top_logprobs: (),
            truncation: "disabled",
            usage: None,
            user: (),
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            kv_transfer_params: (),
            ec_transfer_params: (),
            input_messages: (),
            output_messages: (),
        }
    }

    fn ended(self, item: Item<'a>, totals: Totals, details: bool, finish: FinishReason) -> Self {
        let cut = finish == FinishReason::Length;
        let told = |tokens: usize| if details { tokens } else { 0 };
        Self {
            incomplete_details: cut.then_some(Incomplete { reason: "max_output_tokens" }),
            status: if cut { "incomplete" } else { "completed" },
            output: vec![item],
            usage: Some(Usage {
                input_tokens: totals.prompt,
                input_tokens_details: InputDetails {
                    cached_tokens: told(totals.cached),
                    cache_write_tokens: told(totals.created),
                    input_tokens_per_turn: [],
                    cached_tokens_per_turn: [],
                },
                output_tokens: totals.completion,
                output_tokens_details: OutputDetails {
                    reasoning_tokens: 0,
                    tool_output_tokens: 0,
                    output_tokens_per_turn: [],
                    tool_output_tokens_per_turn: [],
                },
                total_tokens: totals.prompt + totals.completion,
            }),
            ..self
        }
    }
}

fn part(text: &str, logprobs: Option<[(); 0]>) -> Part<'_> {
    Part { annotations: [], text, r#type: "output_text", logprobs }
}

fn item<'a>(id: &'a str, content: Vec<Part<'a>>, status: &'static str) -> Item<'a> {
    Item { id, content, role: "assistant", status, r#type: "message", phase: () }
}

/// `resp_X` and `msg_X` of the head's `…-X`.
fn ids(head: &StreamHead) -> (String, String) {
    let id = head.id.rsplit_once('-').map_or(head.id.as_str(), |(_, id)| id);
    (format!("resp_{id}"), format!("msg_{id}"))
}

/// The answer in one piece.
pub fn body(head: &StreamHead, choice: &Choice, totals: Totals, details: bool) -> Vec<u8> {
    let (id, item_id) = ids(head);
    let item = item(&item_id, vec![part(&choice.text, None)], "completed");
    let response = Response::begun(&id, head).ended(item, totals, details, choice.finish);
    serde_json::to_vec(&response).unwrap_or_default()
}

/// The events of one stream, numbered.
#[derive(Debug)]
pub struct Events {
    id: String,
    item_id: String,
    sequence: u64,
    text: String,
}

impl Events {
    /// Of an answer with this head.
    pub fn new(head: &StreamHead) -> Self {
        let (id, item_id) = ids(head);
        Self { id, item_id, sequence: 0, text: String::new() }
    }

    /// One event: `fields` are its other fields, in the order of their names, of which those before
    /// `sequence_number` come first.
    fn event(&mut self, name: &str, before: &str, after: &str) -> Vec<u8> {
        let number = self.sequence;
        self.sequence += 1;
        format!(
            "event: {name}\ndata: {{{before}\"sequence_number\":{number},{after}\"type\":\"{name}\"}}\n\n"
        )
        .into_bytes()
    }

    /// The events before the first token.
    pub(super) fn begin(&mut self, head: &StreamHead) -> Vec<Vec<u8>> {
        let response = json(&Response::begun(&self.id, head));
        let response = format!("\"response\":{response},");
        let added = json(&item(&self.item_id, Vec::new(), "in_progress"));
        let added = format!("\"item\":{added},\"output_index\":0,");
        let part = json(&part("", Some([])));
        let part = format!("{}\"part\":{part},", self.place());
        vec![
            self.event("response.created", &response, ""),
            self.event("response.in_progress", &response, ""),
            self.event("response.output_item.added", &added, ""),
            self.event("response.content_part.added", &part, ""),
        ]
    }

    fn place(&self) -> String {
        format!("\"content_index\":0,\"item_id\":\"{}\",\"output_index\":0,", self.item_id)
    }

    /// The event of a token.
    pub(super) fn token(&mut self, text: &str) -> Vec<u8> {
        self.text.push_str(text);
        let before = format!(
            "\"content_index\":0,\"delta\":{},\"item_id\":\"{}\",\"logprobs\":[],\"output_index\":0,",
            Value::from(text),
            self.item_id
        );
        self.event("response.output_text.delta", &before, "")
    }

    /// The events after the last token.
    pub(super) fn end(
        &mut self,
        head: &StreamHead,
        totals: Totals,
        details: bool,
        finish: FinishReason,
    ) -> Vec<Vec<u8>> {
        let text = std::mem::take(&mut self.text);
        let (id, item_id) = (self.id.clone(), self.item_id.clone());
        let whole = || item(&item_id, vec![part(&text, None)], "completed");
        let response = Response::begun(&id, head).ended(whole(), totals, details, finish);
        let response = format!("\"response\":{},", json(&response));
        let done = format!("\"item\":{},\"output_index\":0,", json(&whole()));
        let text_place = format!(
            "\"content_index\":0,\"item_id\":\"{item_id}\",\"logprobs\":[],\"output_index\":0,"
        );
        let text_after = format!("\"text\":{},", Value::from(text.as_str()));
        let part = format!("{}\"part\":{},", self.place(), json(&part(&text, None)));
        vec![
            self.event("response.output_text.done", &text_place, &text_after),
            self.event("response.content_part.done", &part, ""),
            self.event("response.output_item.done", &done, ""),
            self.event("response.completed", &response, ""),
        ]
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
