//! Proves on some texts that ids come back as the bytes that they were made of.

use super::bytes::TokenBytes;
use super::encoder::Encoder;
use super::error::TokenizerError;
use super::files::TokenizerConfig;
use super::vocabulary::Scheme;
use crate::kv_index::Encode as _;

/// What each of them is about, and the text. The combining characters are there in both forms.
const PROBES: &[(&str, &str)] = &[
    ("plain text", "The quick brown fox jumps over the lazy dog. It's 12,345.67 o'clock!"),
    ("text that begins with a space", " hello"),
    ("text that begins with a newline", "\n\nhello\r\n"),
    ("umlauts", "Größenwahn, Ärger, naïve façade, smørrebrød"),
    (
        "combining characters",
        "e\u{301}a\u{308}o\u{302}\u{323} \u{1112}\u{1161}\u{11ab} \u{212b} \u{e9}",
    ),
    ("Chinese, Japanese and Korean", "你好，世界。カタカナとひらがな、漢字。안녕하세요 세계"),
    ("other scripts", "Здравствуй שלום مرحبا नमस्ते สวัสดี ქართული"),
    ("emoji", "👍🏽 👨‍👩‍👧‍👦 🇩🇪 ☃️ 🫠"),
    ("rare characters", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𓀀 \u{10ffff} \u{fffd} \u{feff} \u{ad}"),
    ("runs of spaces", "a  b   c    d                                x \t\t y\n \n  \n   z   "),
    ("code", "fn main() {\n    let x = vec![1, 2];\n\tif x[0] != 0 { return; }\n}\n"),
    ("JSON", "{\"a\":[1,-2.5e+10,true,null],\"b\":\"\\u00e9\\n\"}"),
    ("control characters", "\u{0}\u{1}\u{1b}[0m\u{7f}\u{85}\u{a0}\u{2028}\u{3000}"),
    (
        "long words",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ),
    ("markup", "<b>&amp;</b> <|x|> [INST] </s> ### **bold** `code` --- ___ ==="),
];

/// Runs it.
///
/// # Errors
/// With the first text that does not come back.
pub fn run(
    encoder: &Encoder,
    tokens: &TokenBytes,
    scheme: Scheme,
    config: &TokenizerConfig,
) -> Result<(), TokenizerError> {
    for (what, text) in PROBES {
        check(encoder, tokens, scheme, what, text)?;
    }
    for (name, token) in config.special_tokens() {
        let text = format!("x{token}y{token}\nz");
        check(encoder, tokens, scheme, &name, &text)?;
    }
    Ok(())
}

fn check(
    encoder: &Encoder,
    tokens: &TokenBytes,
    scheme: Scheme,
    what: &str,
    text: &str,
) -> Result<(), TokenizerError> {
    let unmappable = |why: String| TokenizerError::Unmappable(format!("{what}: {why}"));
    let mut ids = Vec::new();
    if !encoder.encode(text, &mut ids) {
        return Err(unmappable("it cannot be encoded".into()));
    }
    let mut bytes = Vec::new();
    for id in ids {
        let known = tokens.get(id);
        bytes.extend_from_slice(known.ok_or_else(|| unmappable(format!("id {id} has no bytes")))?);
    }
    if bytes == scheme.expected(encoder, text)?.as_bytes() {
        Ok(())
    } else {
        Err(unmappable("its ids stand for another text".into()))
    }
}
