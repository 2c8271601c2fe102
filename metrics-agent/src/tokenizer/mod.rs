//! A model's tokenizer and template, read from its folder.
//!
//! - [`files`]: the folder's files, and all that the filter needs of them ([`ModelFiles`]);
//! - [`bytes`]: the bytes of each token id; [`vocabulary`]: how they are found;
//! - [`encoder`]: text to ids, as the engine does it;
//! - [`self_check`]: whether all that holds for this tokenizer.
//!
//! A tokenizer that fails the check is refused, and its model stays approximate.

pub mod bytes;
pub mod encoder;
pub mod error;
pub mod files;
pub mod self_check;
#[cfg(test)]
mod tests;
pub mod vocabulary;

pub use error::TokenizerError;
pub use files::ModelFiles;

use bytes::TokenBytes;
use encoder::Encoder;
use files::{Folder, MAX_TEXT_BYTES, TokenizerConfig};
use std::path::Path;
use warmroute_shared_state::wire::Writer;
use xxhash_rust::xxh3::xxh3_64;

/// A model whose tokens can be told as bytes.
pub struct Tokenizer {
    /// What the filter needs of the model.
    pub files: ModelFiles,
    /// Bytes of each id.
    pub tokens: TokenBytes,
    /// Text to ids.
    pub encoder: Encoder,
}

impl Tokenizer {
    /// Loads a model's folder: `tokenizer.json`, and if there are any `tokenizer_config.json` and
    /// `chat_template.jinja`. Takes a second or two of one core for the largest vocabularies.
    ///
    /// # Errors
    /// If a file cannot be read or understood, or the tokenizer cannot be mapped to bytes.
    pub fn load(folder: &Path) -> Result<Self, TokenizerError> {
        Self::from_folder(&Folder::read(folder)?)
    }

    /// The same from files that are at hand.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_folder(folder: &Folder) -> Result<Self, TokenizerError> {
        let config = TokenizerConfig::parse(folder)?;
        let scheme = vocabulary::Scheme::of(folder)?;
        let encoder = Encoder::new(folder)?;
        let tokens = vocabulary::table(&encoder, scheme)?;
        self_check::run(&encoder, &tokens, scheme, &config)?;
        let completion_prefix = completion_prefix(&encoder, &tokens, &config)?;
        let mut files = ModelFiles {
            template: config.template(folder),
            tool_template: config.tool_template(folder),
            special_tokens: config.special_tokens(),
            completion_prefix,
            nfc: scheme.nfc,
            stream: 0,
        };
        let bytes = files.text_bytes();
        if bytes > MAX_TEXT_BYTES {
            let (path, limit) = (folder.path.clone(), MAX_TEXT_BYTES);
            return Err(TokenizerError::TooLong { path, bytes, limit });
        }
        files.stream = stream(folder, &files);
        Ok(Self { files, tokens, encoder })
    }
}

/// Names one way of turning this model's prompts into bytes, whoever reads it from whatever folder.
fn stream(folder: &Folder, files: &ModelFiles) -> u64 {
    let mut writer = Writer::new();
    writer.u64(xxh3_64(folder.tokenizer.as_bytes()));
    for text in [&files.template, &files.tool_template] {
        writer.u8(u8::from(text.is_some()));
        let text = text.as_deref().unwrap_or_default();
        writer.u64(text.len() as u64);
        writer.bytes(text.as_bytes());
    }
    for (name, value) in &files.special_tokens {
        writer.text(name);
        writer.text(value);
    }
    writer.text(&files.completion_prefix);
    writer.u8(u8::from(files.nfc));
    xxh3_64(writer.as_bytes()).max(1)
}

/// What an engine puts before the prompt of a completions request, as text.
///
/// `transformers` 5, which vLLM uses: if `tokenizer_config.json` says `add_bos_token` or
/// `add_eos_token` at all, these replace the post-processor of `tokenizer.json`.
fn completion_prefix(
    encoder: &Encoder,
    tokens: &TokenBytes,
    config: &TokenizerConfig,
) -> Result<String, TokenizerError> {
    if config.add_bos_token.is_some() || config.add_eos_token.is_some() {
        let bos = config.add_bos_token.unwrap_or_default().then(|| config.bos_token()).flatten();
        return Ok(bos.unwrap_or_default());
    }
    let mut bytes = Vec::new();
    for id in encoder.added_before()? {
        let known = tokens.get(id);
        bytes.extend_from_slice(known.ok_or_else(|| {
            TokenizerError::Unmappable(format!("id {id} before completions has no bytes"))
        })?);
    }
    String::from_utf8(bytes)
        .map_err(|_| TokenizerError::Unmappable("what goes before completions is no text".into()))
}
