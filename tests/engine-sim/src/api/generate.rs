//! Requests that the engine runs: from body bytes to token ids and limits.

use std::borrow::Cow;

use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use super::ApiConfig;
use super::chat;
use super::errors::ApiError;
use super::fields::{Fields, Text, wrong_type};
use super::messages;
use super::responses;
use super::transfer::{self, Transfer};
use crate::engine::FinishReason;
use crate::tokens::{Tokenizer, TokenizerError};

/// Most prompts in one completion request.
const MAX_PROMPTS: usize = 128;

/// Which API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completion,
    /// Anthropic's `/v1/messages`.
    Messages,
    /// `/v1/responses`.
    Responses,
    /// vLLM's `/inference/v1/generate`.
    Tokens,
    /// `/v1/embeddings`: the prompts are computed, and nothing is generated.
    Embedding,
}

/// One prompt and the answer planned for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Prompt tokens followed by the answer's.
    pub tokens: Vec<u32>,
    /// How many are the prompt's.
    pub prompt_len: usize,
}

/// A request that passed every check.
#[derive(Debug, Clone)]
pub struct Generate {
    /// Which API.
    pub api: Api,
    /// Model name as the client wrote it.
    pub model: String,
    /// Adapter behind that name.
    pub adapter: Option<String>,
    /// One or more prompts; a chat has one.
    pub prompts: Vec<Prompt>,
    /// Why the planned answers end.
    pub finish: FinishReason,
    /// The limit in force.
    pub max_tokens: usize,
    /// Answer as a stream of events.
    pub stream: bool,
    /// Usage in an event of its own at the end of the stream.
    pub include_usage: bool,
    /// Usage on every event.
    pub continuous_usage: bool,
    /// Token ids beside the text.
    pub return_token_ids: bool,
    /// Keeps the cache of one tenant apart from another's.
    pub cache_salt: Option<String>,
    /// `session_id` of the body.
    pub session: Option<String>,
    /// `request_id` of the body.
    pub request_id: Option<String>,
    /// Which part of prefill and decode at different engines this request is; `None`: both are here.
    pub transfer: Option<Transfer>,
}

impl From<TokenizerError> for ApiError {
    fn from(error: TokenizerError) -> Self {
        Self { status: 500, kind: "InternalServerError", message: error.to_string(), param: None }
    }
}

/// Reads and checks a request body.
pub fn parse(
    api: Api,
    body: &[u8],
    config: &ApiConfig,
    tokenizer: &Tokenizer,
) -> Result<Generate, ApiError> {
    let fields = Fields::parse(body)?;
    let stream = !matches!(api, Api::Tokens | Api::Embedding)
        && fields.get::<bool>("stream", "boolean")?.unwrap_or(false);
    let (include_usage, continuous_usage) = stream_options(&fields, stream, config)?;
    check_scalars(&fields)?;
    let cache_salt = fields.text("cache_salt")?.map(Cow::into_owned);
    if cache_salt.as_deref() == Some("") {
        return Err(ApiError::bad_request(
            "Parameter 'cache_salt' must be a non-empty string if provided. (parameter=cache_salt)",
            Some("cache_salt"),
        ));
    }
    let model = match fields.text("model")? {
        Some(model) => model.into_owned(),
        None => config.models.first().cloned().unwrap_or_default(),
    };
    let limit = match api {
        Api::Chat => fields.count("max_completion_tokens")?.or(fields.count("max_tokens")?),
        // OpenAI's default for completions.
        Api::Completion => fields.count("max_tokens")?.or(Some(16)),
        Api::Messages => {
            Some(fields.count("max_tokens")?.ok_or_else(|| fields.missing("max_tokens"))?)
        }
        Api::Responses => fields.count("max_output_tokens")?,
        Api::Tokens => match fields.raw("sampling_params") {
            Some(raw) => Fields::nested(raw, "body.sampling_params")?.count("max_tokens")?,
            None => None,
        }
        .or(Some(16)),
        Api::Embedding => Some(1),
    };
    let raw_prompts = match api {
        Api::Chat => vec![chat::tokens(&fields, tokenizer, true)?],
        Api::Completion => several(&fields, "prompt", tokenizer)?,
        Api::Messages => vec![messages::tokens(&fields, tokenizer)?],
        Api::Responses => vec![responses::tokens(&fields, tokenizer)?],
        Api::Tokens => several(&fields, "token_ids", tokenizer)?,
        Api::Embedding => several(&fields, "input", tokenizer)?,
    };
    let adapter = config.resolve(&model)?.map(str::to_owned);
    let longest = raw_prompts.iter().map(Vec::len).max().unwrap_or(0);
    let room = check_lengths(api, longest, limit, config.max_model_len)?;
    // An answer is as long as the limit allows unless `sim_reply_tokens` ends it earlier.
    let natural = fields.count("sim_reply_tokens")?;
    let max_tokens = limit.unwrap_or(room);
    let wanted = natural.or(limit).unwrap_or(config.default_reply_tokens).max(1);
    let finish = if wanted < max_tokens { FinishReason::Stop } else { FinishReason::Length };
    let answer_len = wanted.min(max_tokens);
    let prompts =
        raw_prompts.into_iter().map(|tokens| plan(tokens, answer_len, tokenizer)).collect();
    Ok(Generate {
        api,
        model,
        adapter,
        prompts,
        finish,
        max_tokens,
        stream,
        include_usage,
        continuous_usage,
        return_token_ids: api == Api::Tokens
            || fields.get::<bool>("return_token_ids", "boolean")?.unwrap_or(false),
        cache_salt,
        session: fields.text("session_id")?.map(Cow::into_owned),
        request_id: fields.text("request_id")?.map(Cow::into_owned),
        transfer: transfer::read(&fields)?,
    })
}

/// Prompts of a field that holds texts or token ids, one or several.
fn several(
    fields: &Fields<'_>,
    name: &str,
    tokenizer: &Tokenizer,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let raw = fields.raw(name).ok_or_else(|| fields.missing(name))?;
    let prompts = if raw.get().starts_with('"') {
        vec![one_prompt(raw, tokenizer)?]
    } else if let Ok(ids) = serde_json::from_str::<Vec<u32>>(raw.get()) {
        vec![ids]
    } else {
        let list: Vec<&RawValue> = serde_json::from_str(raw.get())
            .map_err(|_| wrong_type(&format!("body.{name}"), "list"))?;
        if list.len() > MAX_PROMPTS {
            return Err(ApiError::bad_request(
                format!("At most {MAX_PROMPTS} prompts in one request."),
                Some("prompt"),
            ));
        }
        list.into_iter().map(|raw| one_prompt(raw, tokenizer)).collect::<Result<_, _>>()?
    };
    if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
        return Err(ApiError::bad_request(
            "Either prompt or prompt_embeds must be provided and non-empty.",
            None,
        ));
    }
    let vocab = tokenizer.vocab_size();
    match prompts.iter().flatten().find(|&&id| id >= vocab) {
        Some(id) => Err(ApiError::bad_request(format!("Token id {id} is out of vocabulary"), None)),
        None => Ok(prompts),
    }
}

fn one_prompt(raw: &RawValue, tokenizer: &Tokenizer) -> Result<Vec<u32>, ApiError> {
    if let Ok(Text(text)) = serde_json::from_str(raw.get()) {
        return Ok(tokenizer.encode(&[&text])?.to_vec());
    }
    serde_json::from_str(raw.get()).map_err(|_| wrong_type("body.prompt", "list"))
}

fn stream_options(
    fields: &Fields<'_>,
    stream: bool,
    config: &ApiConfig,
) -> Result<(bool, bool), ApiError> {
    if config.force_include_usage {
        return Ok((true, true));
    }
    let Some(raw) = fields.raw("stream_options") else { return Ok((false, false)) };
    if !stream {
        return Err(ApiError::bad_request(
            "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
            Some("stream_options"),
        ));
    }
    let options = Fields::nested(raw, "body.stream_options")?;
    let include = options.get::<bool>("include_usage", "boolean")?.unwrap_or(false);
    let continuous = options.get::<bool>("continuous_usage_stats", "boolean")?.unwrap_or(false);
    Ok((include, include && continuous))
}

fn check_scalars(fields: &Fields<'_>) -> Result<(), ApiError> {
    if let Some(temperature) =
        fields.get::<f64>("temperature", "number")?.filter(|value| *value < 0.0)
    {
        return Err(ApiError::bad_request(
            format!(
                "temperature must be non-negative, got {temperature:?}. (parameter=temperature, value={temperature:?})"
            ),
            Some("temperature"),
        ));
    }
    for name in ["n", "best_of"] {
        if let Some(n) = fields.count(name)?.filter(|&n| n != 1) {
            return Err(ApiError::bad_request(
                format!("The simulator supports {name} = 1 only, got {n}."),
                Some(name),
            ));
        }
    }
    Ok(())
}

/// Checks the request against the context length and returns what is left for the answer.
fn check_lengths(
    api: Api,
    prompt: usize,
    limit: Option<usize>,
    max_len: usize,
) -> Result<usize, ApiError> {
    if prompt >= max_len {
        // A chat is tokenized no further than it takes to see that it is too long.
        let (least, prompt) = match api {
            Api::Chat => ("at least ", prompt.min(max_len + 1)),
            _ => ("", prompt),
        };
        return Err(ApiError::bad_request(
            format!(
                "This model's maximum context length is {max_len} tokens. However, your prompt contains {least}{prompt} \
                 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the \
                 input prompt. (parameter=input_tokens, value={prompt})"
            ),
            Some("input_tokens"),
        ));
    }
    let room = max_len - prompt;
    match limit {
        Some(0) => Err(ApiError::bad_request(
            "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
            Some("max_tokens"),
        )),
        Some(limit) if limit > max_len => Err(ApiError::bad_request(
            format!(
                "max_tokens={limit} cannot be greater than max_model_len={max_len}. Please request fewer output \
                 tokens. (parameter=max_tokens, value={limit})"
            ),
            Some("max_tokens"),
        )),
        Some(limit) if limit > room => Err(ApiError::bad_request(
            format!(
                "This model's maximum context length is {max_len} tokens. However, you requested {limit} output tokens \
                 and your prompt contains {prompt} input tokens, for a total of {} tokens. Please reduce the length of \
                 the input prompt or the number of requested output tokens. (parameter=input_tokens, value={prompt})",
                prompt.saturating_add(limit)
            ),
            Some("input_tokens"),
        )),
        _ => Ok(room),
    }
}

fn plan(mut tokens: Vec<u32>, answer_len: usize, tokenizer: &Tokenizer) -> Prompt {
    let prompt_len = tokens.len();
    let bytes: Vec<u8> = tokens.iter().flat_map(|id| id.to_le_bytes()).collect();
    tokens.extend(tokenizer.words().answer(xxh3_64(&bytes), answer_len));
    Prompt { tokens, prompt_len }
}
