//! Tokens: a real byte-level BPE vocabulary, the chat template, and answers made from it.

mod memo;
pub mod replies;
pub mod template;
pub mod tools;

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use memo::Memo;
use xxhash_rust::xxh3::Xxh3;

/// The vocabulary that every replica uses: 4,096 byte-level BPE tokens and five special ones,
/// trained for this project.
pub const TOKENIZER_JSON: &[u8] = include_bytes!("../../assets/tokenizer.json");

/// Most tokens that the memo holds unless told otherwise: enough for the demo's largest working set,
/// 4 bytes each.
pub const MEMO_TOKENS: usize = 12_000_000;

/// Why the tokenizer could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// `assets/tokenizer.json` is not what the `tokenizers` crate reads.
    #[error("assets/tokenizer.json cannot be loaded: {0}")]
    Load(#[source] tokenizers::Error),
    /// A token that the template needs is missing.
    #[error("assets/tokenizer.json has no token {0:?}")]
    MissingToken(&'static str),
    /// The text could not be encoded.
    #[error("the text cannot be encoded: {0}")]
    Encode(#[source] tokenizers::Error),
    /// Ids could not be decoded.
    #[error("the token ids cannot be decoded: {0}")]
    Decode(#[source] tokenizers::Error),
}

/// Encodes and decodes, remembering what it encoded: a conversation is sent again whole with every
/// turn, and encoding is by far the dearest thing that the simulator does.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    memo: Mutex<Memo>,
    special: Special,
    words: replies::Words,
}

/// Ids of the template's special tokens.
#[derive(Debug, Clone, Copy)]
struct Special {
    start: u32,
    end: u32,
}

impl Tokenizer {
    /// Loads the embedded vocabulary.
    pub fn new() -> Result<Self, TokenizerError> {
        Self::remembering(MEMO_TOKENS)
    }

    /// The same with a memo of so many tokens.
    pub fn remembering(tokens: usize) -> Result<Self, TokenizerError> {
        let inner =
            tokenizers::Tokenizer::from_bytes(TOKENIZER_JSON).map_err(TokenizerError::Load)?;
        let id = |token| inner.token_to_id(token).ok_or(TokenizerError::MissingToken(token));
        let special = Special { start: id("<|im_start|>")?, end: id("<|im_end|>")? };
        let words = replies::Words::new(&inner);
        Ok(Self { inner, memo: Mutex::new(Memo::new(tokens)), special, words })
    }

    /// Token ids of `parts` joined. Special tokens spelled out in the text become their ids, as in
    /// vLLM.
    pub fn encode(&self, parts: &[&str]) -> Result<Arc<[u32]>, TokenizerError> {
        let mut hasher = Xxh3::new();
        for part in parts {
            hasher.update(part.as_bytes());
        }
        let key = hasher.digest128();
        if let Some(ids) = self.memo().get(key) {
            return Ok(ids);
        }
        let encoding =
            self.inner.encode_fast(parts.concat(), false).map_err(TokenizerError::Encode)?;
        let ids: Arc<[u32]> = encoding.get_ids().into();
        self.memo().put(key, Arc::clone(&ids));
        Ok(ids)
    }

    /// Text of `ids`, special tokens included.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.inner.decode(ids, false).map_err(TokenizerError::Decode)
    }

    /// Ids lie below this.
    pub fn vocab_size(&self) -> u32 {
        u32::try_from(self.inner.get_vocab_size(true)).unwrap_or(u32::MAX)
    }

    /// Spelling of a token inside the vocabulary (byte-level alphabet).
    pub fn token_str(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Words that answers are made of.
    pub fn words(&self) -> &replies::Words {
        &self.words
    }

    fn memo(&self) -> std::sync::MutexGuard<'_, Memo> {
        self.memo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tokenizer for the whole process, loaded when first asked for.
pub fn shared() -> Result<&'static Tokenizer, TokenizerError> {
    static SHARED: OnceLock<Tokenizer> = OnceLock::new();
    if let Some(tokenizer) = SHARED.get() {
        return Ok(tokenizer);
    }
    let tokenizer = Tokenizer::new()?;
    Ok(SHARED.get_or_init(|| tokenizer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_the_real_engine_with_this_vocabulary() {
        // From a vLLM 0.32 with this tokenizer.json: POST /tokenize.
        let tokenizer = shared().unwrap();
        let ids = tokenizer.encode(&["Hello routing world, préfixe ", "你好 🙂"]).unwrap();
        assert_eq!(
            ids[..],
            [
                3974, 3234, 279, 3999, 2566, 11, 288, 81, 127, 102, 1792, 68, 220, 160, 121, 254,
                161, 98, 121, 3295, 247, 224
            ]
        );
        assert_eq!(tokenizer.decode(&ids).unwrap(), "Hello routing world, préfixe 你好 🙂");
        assert_eq!(tokenizer.vocab_size(), 4_101);
    }

    #[test]
    fn the_memo_answers_like_the_tokenizer() {
        let tokenizer = shared().unwrap();
        let first = tokenizer.encode(&["user\n", "a <|im_end|> b"]).unwrap();
        let again = tokenizer.encode(&["user", "\na <|im_end|> b"]).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        assert_ne!(first, tokenizer.encode(&["user\na <|im_end|> c"]).unwrap());
    }
}
