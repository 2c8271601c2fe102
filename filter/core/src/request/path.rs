//! Which API a request path names.

use super::parsers::ParserSet;

/// The API behind a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathClass {
    /// `…/chat/completions`, and its `/render`.
    Chat,
    /// `…/completions`, and its `/render`.
    Completions,
    /// `…/embeddings`.
    Embeddings,
    /// `…/responses`, and its `/render`.
    Responses,
    /// `…/conversations`.
    Conversations,
    /// `…/images/generations`.
    Images,
    /// `…/messages`, and its `/render`: Anthropic's API.
    Messages,
    /// `…/messages/count_tokens`: the body is not read.
    CountTokens,
    /// `…/inference/v1/generate`: vLLM's API of token ids.
    Generate,
    /// `…/generate`: SGLang's API of token ids.
    SglangGenerate,
    /// Anything else: the body is not read.
    Other,
}

impl PathClass {
    /// Classes a request target (`:path`) as the default parsers do; see [`ParserSet::class`].
    #[must_use]
    pub fn of(target: &[u8]) -> Self {
        ParserSet::default().class(target).unwrap_or(Self::Other)
    }

    /// Whether bodies are read. The others pass as they are, and so do their answers.
    #[must_use]
    pub fn reads_body(self) -> bool {
        !matches!(self, Self::CountTokens | Self::Other)
    }

    /// Whether bodies name a model, which must be there and may be rewritten.
    #[must_use]
    pub fn names_model(self) -> bool {
        self.reads_body() && self != Self::SglangGenerate
    }

    /// Whether a stream of it tells its usage only if `stream_options.include_usage` asks for it.
    #[must_use]
    pub fn asks_for_usage(self) -> bool {
        matches!(self, Self::Chat | Self::Completions)
    }
}

/// A request target's path as parsers see it: without query and empty segments, valid `%XX` replaced by their
/// bytes, as engines do: `/v1/chat/complet%69ons` must not slip by.
pub(super) fn plain(target: &[u8]) -> Vec<u8> {
    let path = target.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
    let mut plain = Vec::with_capacity(path.len());
    for &byte in &percent_decoded(path) {
        if byte != b'/' || plain.last().is_some_and(|last| *last != b'/') {
            plain.push(byte);
        }
    }
    if plain.last() == Some(&b'/') {
        plain.pop();
    }
    plain
}

/// `path` with each valid `%XX` replaced by its byte.
fn percent_decoded(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let hex = |at: usize| {
            let digit = tail.get(at).and_then(|&b| char::from(b).to_digit(16));
            digit.and_then(|d| u8::try_from(d).ok())
        };
        match (byte, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high << 4) | low);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => decoded.push(byte),
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::PathClass::{self, *};

    crate::tests! {
        fn suffix_decides() {
            for (target, expected) in [
                ("/v1/chat/completions", Chat),
                ("/v1/chat/completions?stream=true&x=/v1/completions", Chat),
                ("/v1/chat/completions/", Chat),
                ("//v1//chat///completions//", Chat),
                ("/openai/v1/chat/completions", Chat),
                ("/openai/deployments/m/chat/completions?api-version=1", Chat),
                ("/v1/chat/completions/render", Chat),
                ("/chat/completions", Chat),
                ("/v1/chat/complet%69ons", Chat),
                ("/v1/chat%2fcompletions", Chat),
                ("/v1/completions", Completions),
                ("/v1/completions/render?x", Completions),
                ("/completions", Completions),
                ("/v1/xchat/completions", Completions),
                ("/v1/chat/completions/batch", Other),
                ("/v1/chatcompletions", Other),
                ("/v1/Chat/Completions", Other),
                ("/v1/chat/completions%", Other),
                ("/v1/chat/completions%2", Other),
                ("/v1/embeddings", Embeddings),
                ("/v1/responses", Responses),
                ("/v1/responses/render", Responses),
                ("/v1/responses/resp_1/cancel", Other),
                ("/v1/conversations", Conversations),
                ("/v1/conversations/conv_1/items", Other),
                ("/v1/images/generations", Images),
                ("/v1/generations", Other),
                ("/v1/messages?beta=true", Messages),
                ("/v1/messages/render", Messages),
                ("/anthropic/v1/messages/", Messages),
                ("/v1/xmessages", Other),
                ("/v1/messages/count_tokens", CountTokens),
                ("/v1/messages/batches", Other),
                ("/inference/v1/generate", Generate),
                // SGLang's parser is none of the default ones.
                ("/generate", Other),
                ("/v1/models", Other),
                ("/render", Other),
                ("/v1/models?next=/v1/completions", Other),
                ("/", Other),
                ("", Other),
                ("*", Other),
            ] {
                assert_eq!(PathClass::of(target.as_bytes()), expected, "{target}");
            }
        }
    }
}
