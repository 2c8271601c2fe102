//! vLLM's HTTP shapes: what requests mean, and how answers, chunks and errors are spelled. No
//! socket and no clock in here.

pub mod answer;
pub mod chat;
pub mod embeddings;
pub mod errors;
pub mod fields;
pub mod framing;
pub mod generate;
pub mod messages;
pub mod models;
pub mod responses;
pub mod sse;
pub mod token_answer;
pub mod tokenize;
pub mod transfer;

/// Version that the simulator claims.
pub const VERSION: &str = "0.32.0";

/// `system_fingerprint` of every answer.
pub const FINGERPRINT: &str = "vllm-0.32.0-sim";

/// What of the server's configuration shapes requests and answers.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Served names of the base model; the first is its id in `/metrics`.
    pub models: Vec<String>,
    /// LoRA adapters, usable as model names.
    pub loras: Vec<String>,
    /// Most tokens of prompt and answer together.
    pub max_model_len: usize,
    /// Length of an answer for which the request set no limit.
    pub default_reply_tokens: usize,
    /// Whether usage says how many tokens were cached.
    pub prompt_tokens_details: bool,
    /// Usage on every chunk of every stream, asked for or not.
    pub force_include_usage: bool,
}

impl ApiConfig {
    /// The adapter that a served model name stands for, or `None` for the base model.
    pub fn resolve(&self, model: &str) -> Result<Option<&str>, errors::ApiError> {
        if self.models.iter().any(|name| name == model) {
            return Ok(None);
        }
        let known = self.models.first().map_or("", |name| name);
        self.loras
            .iter()
            .find(|name| *name == model)
            .map(|name| Some(name.as_str()))
            .ok_or_else(|| errors::ApiError::unknown_model(model, known))
    }
}
