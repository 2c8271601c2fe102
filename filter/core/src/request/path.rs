//! Which API a request path names.

/// The API behind a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathClass {
    /// `…/chat/completions`, and its `/render`.
    Chat,
    /// `…/completions`, and its `/render`.
    Completions,
    /// `…/messages`, and its `/render`: Anthropic's API.
    Messages,
    /// Anything else: the body is not read.
    Other,
}

impl PathClass {
    /// Classes a request target (`:path`): the longest known suffix of whole segments wins, whatever stands
    /// before it (vendor prefixes), behind it (`?query`), and however many slashes are written.
    ///
    /// Percent escapes are decoded first, as the engine does: `/v1/chat/complet%69ons` must not slip by.
    #[must_use]
    pub fn of(target: &[u8]) -> Self {
        let path = target.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
        let decoded = percent_decoded(path);
        let mut segments = decoded.rsplit(|&byte| byte == b'/').filter(|s| !s.is_empty());
        let mut last = segments.next();
        if last == Some(b"render") {
            last = segments.next();
        }
        match (last, segments.next()) {
            (Some(b"completions"), Some(b"chat")) => Self::Chat,
            (Some(b"completions"), _) => Self::Completions,
            (Some(b"messages"), _) => Self::Messages,
            _ => Self::Other,
        }
    }
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
    use super::PathClass::{self, Chat, Completions, Messages, Other};

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
                ("/v1/messages?beta=true", Messages),
                ("/v1/messages/render", Messages),
                ("/anthropic/v1/messages/", Messages),
                ("/v1/messages/count_tokens", Other),
                ("/v1/messages/batches", Other),
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
