//! The chat template: plain ChatML.
//!
//! ```text
//! <|im_start|>ROLE\nCONTENT<|im_end|>\n        for each message
//! <|im_start|>assistant\n                      before the answer
//! ```
//! This is the model's `chat_template.jinja` for chats without tools, and quicker; the others are
//! rendered by [`tools`](super::tools).

use std::borrow::Cow;

use super::{Tokenizer, TokenizerError};

/// One message, reduced to what the template prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    /// `system`, `user`, `assistant`, `tool` or whatever the client says.
    pub role: Cow<'a, str>,
    /// Its text; parts are joined by a newline.
    pub content: Cow<'a, str>,
}

impl<'a> Message<'a> {
    /// A message of plain text.
    pub fn new(role: impl Into<Cow<'a, str>>, content: impl Into<Cow<'a, str>>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// The text that the engine would tokenize.
pub fn render(messages: &[Message<'_>], add_generation_prompt: bool) -> String {
    let mut text = String::new();
    for message in messages {
        for part in ["<|im_start|>", &message.role, "\n", &message.content, "<|im_end|>\n"] {
            text.push_str(part);
        }
    }
    if add_generation_prompt {
        text.push_str("<|im_start|>assistant\n");
    }
    text
}

/// Token ids of [`render`]'s text, message by message. Special tokens bound every segment, so that
/// encoding them apart gives the same ids as encoding the whole.
pub fn tokenize(
    tokenizer: &Tokenizer,
    messages: &[Message<'_>],
    add_generation_prompt: bool,
) -> Result<Vec<u32>, TokenizerError> {
    let special = tokenizer.special;
    let newline = tokenizer.encode(&["\n"])?;
    let mut ids = Vec::new();
    for message in messages {
        let segment = tokenizer.encode(&[&message.role, "\n", &message.content])?;
        ids.reserve(segment.len() + newline.len() + 2);
        ids.push(special.start);
        ids.extend_from_slice(&segment);
        ids.push(special.end);
        ids.extend_from_slice(&newline);
    }
    if add_generation_prompt {
        ids.push(special.start);
        ids.extend_from_slice(&tokenizer.encode(&["assistant\n"])?);
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::super::shared;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn renders_chatml() {
        let messages = [Message::new("system", "Be brief."), Message::new("user", "Hi")];
        assert_eq!(
            render(&messages, true),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        );
        // The real engine's ids for the same two messages.
        let ids = tokenize(shared().unwrap(), &messages, true).unwrap();
        assert_eq!(
            ids,
            [
                4097, 2668, 198, 33, 68, 309, 438, 68, 69, 13, 4098, 198, 4097, 1545, 198, 39, 72,
                4098, 198, 4097, 346, 2763, 198
            ]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn segments_encode_like_the_whole(
            messages in prop::collection::vec(("[a-z]{0,6}", "(\\PC|\\s|<\\|im_end\\|>|e\u{301}){0,30}"), 0..4),
            generate: bool,
        ) {
            let tokenizer = shared().unwrap();
            let messages: Vec<_> = messages.iter().map(|(role, text)| Message::new(&**role, &**text)).collect();
            let whole = tokenizer.encode(&[&render(&messages, generate)]).unwrap();
            prop_assert_eq!(tokenize(tokenizer, &messages, generate).unwrap(), whole.to_vec());
        }
    }
}
