//! Prompts for the ids of a trace: a block is a message, and an id always the same text.

use std::fmt::Write as _;

use bytes::Bytes;

use super::slice::Request;
use crate::workload::{Tokens, WorkloadError, one_token_words};

/// Tokens that the template puts around a message.
const AROUND: usize = 5;

/// Tokens of the answer's opening, behind all messages.
pub(super) const OPENING: usize = 4;

/// Tokens of a message for `wanted` tokens of prompt: that, unless it has no room for a word.
pub(super) fn message_tokens(wanted: usize) -> usize {
    wanted.max(AROUND + 1)
}

/// Writes prompts.
#[derive(Clone, Debug)]
pub struct Writer {
    words: Vec<String>,
    model: String,
}

impl Writer {
    /// For the model of this name.
    ///
    /// # Errors
    /// When no word is a single token.
    pub fn new(tokens: &dyn Tokens, model: &str) -> Result<Self, WorkloadError> {
        let words = one_token_words(tokens);
        if words.is_empty() {
            return Err(WorkloadError::NoExactText(1));
        }
        Ok(Self { words, model: model.to_owned() })
    }

    /// The body of a streamed chat, its answer as long as told.
    #[must_use]
    pub fn body(&self, request: &Request, reply_tokens: usize) -> Bytes {
        let mut out = String::with_capacity(request.tokens() * 8);
        let model = serde_json::Value::from(self.model.as_str());
        put(
            &mut out,
            format_args!(
                "{{\"model\":{model},\"stream\":true,\"stream_options\":{{\"include_usage\":true}},\
                 \"max_tokens\":{reply_tokens},\"messages\":["
            ),
        );
        for (index, (block, tokens)) in request.blocks.iter().zip(&request.block_tokens).enumerate()
        {
            // As at any other place, or an id would not be the same tokens everywhere.
            out.push_str(if index == 0 { "" } else { "," });
            out.push_str("{\"role\":\"user\",\"content\":\"");
            self.text(*block, tokens.saturating_sub(AROUND), &mut out);
            out.push_str("\"}");
        }
        out.push_str("]}");
        Bytes::from(out)
    }

    /// Letters and spaces, which JSON takes as they are. A shorter text is the start of a longer one.
    fn text(&self, block: u64, tokens: usize, out: &mut String) {
        let mut random = fastrand::Rng::with_seed(block);
        for _ in 0..tokens {
            if let Some(word) = random.choice(&self.words) {
                out.push_str(word);
            }
        }
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::super::slice::Slice;
    use super::super::trace::Row;
    use super::*;
    use crate::workload::{Message, SimulatedTokens};

    fn prompts(rows: &[(usize, &[u64])]) -> Vec<(Request, Vec<u32>)> {
        let tokens = SimulatedTokens::new().unwrap();
        let writer = Writer::new(&tokens, "a \"model\"").unwrap();
        let rows: Vec<Row> = rows
            .iter()
            .map(|(prompt_tokens, blocks)| Row {
                at_ms: 0,
                prompt_tokens: *prompt_tokens,
                reply_tokens: 9,
                blocks: blocks.to_vec(),
            })
            .collect();
        let of = |request: Request| {
            let body: serde_json::Value =
                serde_json::from_slice(&writer.body(&request, 7)).unwrap();
            assert_eq!(body["max_tokens"], 7);
            assert_eq!(body["model"], "a \"model\"");
            let messages = body["messages"].as_array().unwrap().iter();
            let messages: Vec<Message> = messages
                .map(|message| Message {
                    role: "user",
                    content: message["content"].as_str().unwrap().to_owned(),
                })
                .collect();
            let ids = tokens.chat(&messages);
            (request, ids)
        };
        Slice::of(&rows).requests.into_iter().map(of).collect()
    }

    #[test]
    fn prompts_are_as_long_as_the_trace_says_and_share_what_it_says() {
        let prompts = prompts(&[
            (1_536, &[0, 1, 2]),
            (1_100, &[0, 1, 3]),
            (1_536, &[0, 1, 2]),
            (1, &[0]),
            (1_024, &[1, 0]),
        ]);
        for (request, ids) in &prompts {
            assert_eq!(ids.len(), request.tokens(), "{request:?}");
        }
        assert_eq!(prompts[0].1.len(), 1_536 + OPENING);
        let shared = |a: usize, b: usize| {
            prompts[a].1.iter().zip(&prompts[b].1).take_while(|(a, b)| a == b).count()
        };
        // The template opens every message alike, and a first word may be the same by chance.
        assert!((1_024..1_040).contains(&shared(0, 1)), "{}", shared(0, 1));
        assert_eq!(shared(0, 2), 1_536 + OPENING);
        assert_eq!(shared(0, 3), message_tokens(1) - 2);
        assert!(shared(0, 4) < 16, "{}", shared(0, 4));
        // An id is the same tokens wherever it stands.
        assert_eq!(prompts[0].1[512..1_024], prompts[4].1[..512]);
    }
}
