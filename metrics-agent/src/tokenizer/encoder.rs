//! Text to ids, as the engine does it.

use super::error::TokenizerError;
use super::files::{FILES, Folder};
use crate::kv_index::Encode;
use std::collections::BTreeMap;
use tokenizers::normalizer::NormalizedString;
use tokenizers::{Model as _, Normalizer as _};

/// A tokenizer of the `tokenizers` crate, which is also the one that engines use.
pub struct Encoder {
    inner: tokenizers::Tokenizer,
}

impl Encoder {
    /// Makes it from `tokenizer.json`.
    ///
    /// # Errors
    /// If that is not one.
    pub fn new(folder: &Folder) -> Result<Self, TokenizerError> {
        let malformed = |error: tokenizers::Error| folder.malformed(FILES[0], error);
        let mut inner =
            tokenizers::Tokenizer::from_bytes(folder.tokenizer.as_bytes()).map_err(malformed)?;
        // Engines switch both off.
        inner.with_truncation(None).map_err(malformed)?;
        inner.with_padding(None);
        Ok(Self { inner })
    }

    /// The model's own vocabulary, without added tokens.
    pub(super) fn vocabulary(&self) -> impl Iterator<Item = (String, u32)> {
        self.inner.get_model().get_vocab().into_iter()
    }

    /// Added tokens, by id.
    pub(super) fn added(&self) -> BTreeMap<u32, String> {
        let added = self.inner.get_added_tokens_decoder();
        added.into_iter().map(|(id, token)| (id, token.content)).collect()
    }

    /// Ids that the post-processor puts before a text.
    pub(super) fn added_before(&self) -> Result<Vec<u32>, TokenizerError> {
        let encode = |special| {
            let encoding = self.inner.encode_fast("a", special);
            encoding.map(|encoding| encoding.get_ids().to_vec()).map_err(|error| unmappable(&error))
        };
        let (with, without) = (encode(true)?, encode(false)?);
        let before = with.windows(without.len().max(1)).position(|window| *window == *without);
        let before = before.ok_or_else(|| {
            TokenizerError::Unmappable("its post-processor changes the text's own ids".into())
        })?;
        Ok(with.into_iter().take(before).collect())
    }

    /// The text as the tokenizer's normalizer leaves it.
    pub(super) fn normalized(&self, text: &str) -> Result<String, TokenizerError> {
        let mut normalized = NormalizedString::from(text);
        if let Some(normalizer) = self.inner.get_normalizer() {
            normalizer.normalize(&mut normalized).map_err(|error| unmappable(&error))?;
        }
        Ok(normalized.get().to_owned())
    }
}

fn unmappable(error: &tokenizers::Error) -> TokenizerError {
    TokenizerError::Unmappable(error.to_string().chars().take(300).collect())
}

impl Encode for Encoder {
    fn encode(&self, text: &str, ids: &mut Vec<u32>) -> bool {
        let encoding = self.inner.encode_fast(text, false);
        encoding.map(|encoding| ids.extend_from_slice(encoding.get_ids())).is_ok()
    }
}
