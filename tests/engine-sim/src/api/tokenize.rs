//! `POST /tokenize`.

use serde_json::{Value, json};

use super::ApiConfig;
use super::chat;
use super::errors::ApiError;
use super::fields::Fields;
use crate::tokens::Tokenizer;

/// Token ids of a `prompt` or of `messages`. Whatever was tokenized here is in the tokenizer's memo
/// when it comes as a prompt.
pub fn answer(body: &[u8], config: &ApiConfig, tokenizer: &Tokenizer) -> Result<Value, ApiError> {
    let fields = Fields::parse(body)?;
    if let Some(model) = fields.text("model")? {
        config.resolve(&model)?;
    }
    let ids = match fields.text("prompt")? {
        Some(prompt) => tokenizer.encode(&[&prompt])?.to_vec(),
        None => {
            let generate = fields.get::<bool>("add_generation_prompt", "boolean")?.unwrap_or(true);
            chat::tokens(&fields, tokenizer, generate)?
        }
    };
    let strings = fields.get::<bool>("return_token_strs", "boolean")?.unwrap_or(false).then(|| {
        ids.iter().map(|&id| tokenizer.token_str(id).unwrap_or_default()).collect::<Vec<_>>()
    });
    Ok(json!({
        "count": ids.len(), "max_model_len": config.max_model_len, "tokens": ids, "token_strs": strings,
    }))
}
