//! How a vocabulary's strings stand for bytes.
//!
//! Byte-level BPE (GPT-2 and after) writes each byte as one character of a fixed alphabet;
//! SentencePiece-style vocabularies write text, with `▁` for a space and `<0xAB>` for bytes of
//! characters that they lack. Which of the two it is, the decoder says: it is what turns ids into
//! text.

use super::bytes::TokenBytes;
use super::encoder::Encoder;
use super::error::TokenizerError;
use super::files::{FILES, Folder};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashMap;

/// Most ids of a vocabulary; the largest known ones have 262,000.
const MAX_IDS: u32 = 1 << 22;

/// The two ways to write bytes in a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alphabet {
    /// One character of GPT-2's alphabet for each byte.
    ByteLevel,
    /// Text with `▁` for a space.
    SentencePiece {
        /// `<0xAB>` is a byte.
        byte_fallback: bool,
    },
}

/// What a tokenizer does to text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scheme {
    /// How its vocabulary is written.
    pub alphabet: Alphabet,
    /// It normalises to NFC.
    pub nfc: bool,
}

#[derive(Deserialize)]
struct Spec {
    normalizer: Option<Value>,
    decoder: Option<Value>,
    #[serde(default)]
    model: ModelSpec,
}

#[derive(Default, Deserialize)]
struct ModelSpec {
    #[serde(default)]
    byte_fallback: Option<bool>,
}

impl Scheme {
    /// Finds out from `tokenizer.json`.
    ///
    /// # Errors
    /// If it is neither of the two, or the text is changed in a way that ids don't tell.
    pub fn of(folder: &Folder) -> Result<Self, TokenizerError> {
        let spec: Spec = serde_json::from_str(&folder.tokenizer)
            .map_err(|error| folder.malformed(FILES[0], error))?;
        let decoder = steps(spec.decoder.as_ref(), "decoders");
        let alphabet = if decoder.iter().any(|step| kind(step) == "ByteLevel") {
            Alphabet::ByteLevel
        } else if decoder.iter().any(|step| {
            kind(step) == "Metaspace" || (kind(step) == "Replace" && replaces(step, "▁", " "))
        }) {
            Alphabet::SentencePiece { byte_fallback: spec.model.byte_fallback.unwrap_or(false) }
        } else {
            let kinds: Vec<&str> = decoder.iter().map(|step| kind(step)).collect();
            return Err(TokenizerError::Unmappable(format!(
                "its decoder is neither byte-level nor SentencePiece's ({})",
                kinds.join(", ")
            )));
        };
        let mut nfc = false;
        for step in steps(spec.normalizer.as_ref(), "normalizers") {
            match kind(step) {
                "NFC" => nfc = true,
                "Replace" if alphabet != Alphabet::ByteLevel && replaces(step, " ", "▁") => {}
                other => {
                    let why = format!("its normalizer `{other}` changes text");
                    return Err(TokenizerError::Unmappable(why));
                }
            }
        }
        Ok(Self { alphabet, nfc })
    }

    /// The bytes that the text `given` should come back as from its ids.
    pub(super) fn expected(self, encoder: &Encoder, given: &str) -> Result<String, TokenizerError> {
        let text = encoder.normalized(given)?;
        Ok(match self.alphabet {
            Alphabet::ByteLevel => text,
            Alphabet::SentencePiece { .. } => text.replace('▁', " "),
        })
    }
}

/// A step, or the steps of a sequence (of sequences, to a depth of 8).
fn steps<'a>(value: Option<&'a Value>, list: &str) -> Vec<&'a Value> {
    let mut steps: Vec<&Value> = value.into_iter().filter(|value| !value.is_null()).collect();
    for _ in 0..8 {
        steps = steps
            .into_iter()
            .flat_map(|step| match step.get(list).and_then(Value::as_array) {
                Some(inner) if kind(step) == "Sequence" => inner.iter().collect(),
                _ => vec![step],
            })
            .collect();
    }
    steps
}

fn kind(step: &Value) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or("unknown")
}

fn replaces(step: &Value, from: &str, to: &str) -> bool {
    step.pointer("/pattern/String").and_then(Value::as_str) == Some(from)
        && step.get("content").and_then(Value::as_str) == Some(to)
}

/// The bytes of all ids.
///
/// # Errors
/// If an id is too high.
pub fn table(encoder: &Encoder, scheme: Scheme) -> Result<TokenBytes, TokenizerError> {
    let bytes_of = alphabet();
    let mut strings: Vec<Vec<u8>> = Vec::new();
    let mut put = |id: u32, bytes: Vec<u8>| {
        if id >= MAX_IDS {
            let why = format!("id {id} is beyond {MAX_IDS}");
            return Err(TokenizerError::Unmappable(why));
        }
        let at = id as usize;
        if strings.len() <= at {
            strings.resize(at.saturating_add(1), Vec::new());
        }
        if let Some(place) = strings.get_mut(at) {
            *place = bytes;
        }
        Ok(())
    };
    let mut added = encoder.added();
    for (token, id) in encoder.vocabulary() {
        let bytes = match scheme.alphabet {
            // As text in the prompt they are read literally.
            Alphabet::ByteLevel if added.contains_key(&id) => continue,
            Alphabet::ByteLevel => {
                token.chars().map(|c| bytes_of.get(&c).copied()).collect::<Option<_>>()
            }
            Alphabet::SentencePiece { byte_fallback } => {
                // The model has it too, so its own way of writing holds.
                added.remove(&id);
                let byte = byte_fallback.then(|| fallback_byte(&token)).flatten();
                Some(byte.map_or_else(|| token.replace('▁', " ").into_bytes(), |byte| vec![byte]))
            }
        };
        put(id, bytes.unwrap_or_default())?;
    }
    for (id, token) in added {
        put(id, token.into_bytes())?;
    }
    Ok(TokenBytes::new(&strings))
}

/// `<0xAB>`.
fn fallback_byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// GPT-2's alphabet: printable characters of Latin-1 stand for themselves, the other bytes in order
/// for the characters from U+0100 on.
fn alphabet() -> HashMap<char, u8> {
    let mut alphabet = HashMap::new();
    let mut beyond = 0x100u32;
    for byte in 0..=u8::MAX {
        let printable = matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let character = if printable {
            char::from(byte)
        } else {
            beyond = beyond.saturating_add(1);
            char::from_u32(beyond.saturating_sub(1)).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        alphabet.insert(character, byte);
    }
    alphabet
}
