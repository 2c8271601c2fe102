//! The cases, and the prompts that they send. All of it follows from fixed seeds: stub and load generator, in two
//! processes, have the same prompts without telling each other.

use bytes::Bytes;
use engine_sim::tokens::{self, TokenizerError, template};
use serde_json::json;

/// The model that all requests name.
pub const MODEL: &str = "llama-70b";
/// The tenant's key that all requests carry; only `warmroute-full` asks for one.
pub const KEY: &str = "sk-bench-tenant";

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// A chat of half a kilobyte, answered in one piece.
    Small,
    /// A chat of 220 kB: the size of the best public measurement of an endpoint picker.
    Large,
    /// Half a kilobyte, answered with 200 chunks, one a millisecond.
    Stream,
    /// 220 kB, answered with a short stream: what counts is the time to its first token.
    LargeStream,
    /// A chat of 4 MB, about a million tokens of English.
    Million,
    /// The same with a streamed answer, whose usage a tenant's account needs.
    MillionStream,
}

impl Case {
    /// Cases of the base rows.
    pub const BASE: [Self; 4] = [Self::Small, Self::Large, Self::Million, Self::Stream];

    /// Its name in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "chat-0.5k",
            Self::Large => "chat-220k",
            Self::Stream => "stream-200-chunks",
            Self::LargeStream => "stream-220k",
            Self::Million => "prompt-1M-tokens",
            Self::MillionStream => "stream-1M-tokens",
        }
    }

    /// Chunks of the answer; `None` = it comes in one piece.
    #[must_use]
    pub fn chunks(self) -> Option<usize> {
        match self {
            Self::Stream => Some(LONG_ANSWER),
            Self::LargeStream | Self::MillionStream => Some(SHORT_ANSWER),
            _ => None,
        }
    }

    /// Length of its prompts.
    #[must_use]
    pub fn length(self) -> Length {
        match self {
            Self::Small | Self::Stream => Length::Small,
            Self::Large | Self::LargeStream => Length::Large,
            Self::Million | Self::MillionStream => Length::Million,
        }
    }

    /// Its requests' bodies, to be sent in turn.
    #[must_use]
    pub fn bodies(self) -> Vec<Bytes> {
        let chunks = self.chunks();
        (0..self.length().prompts())
            .map(|index| {
                let messages: Vec<_> = self
                    .length()
                    .messages(index)
                    .into_iter()
                    .map(|(role, content)| json!({"role": role, "content": content}))
                    .collect();
                let mut body = json!({
                    "model": MODEL,
                    "messages": messages,
                    "max_tokens": chunks.unwrap_or(SHORT_ANSWER),
                });
                if chunks.is_some() {
                    body["stream"] = true.into();
                }
                Bytes::from(body.to_string())
            })
            .collect()
    }
}

/// Chunks of a long answer: its `max_tokens`, by which the stub knows it.
pub const LONG_ANSWER: usize = 200;
/// Chunks of a short one.
pub const SHORT_ANSWER: usize = 8;

/// How long prompts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Half a kilobyte.
    Small,
    /// 220 kB.
    Large,
    /// 4 MB.
    Million,
}

impl Length {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Small, Self::Large, Self::Million];

    /// By its name in a path of the stub.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|length| length.name() == name)
    }

    /// Name in a path of the stub.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Million => "million",
        }
    }

    /// Different prompts. The small and large ones are ten thousand blocks of the index together.
    #[must_use]
    pub fn prompts(self) -> usize {
        match self {
            Self::Small => 64,
            Self::Large => 6,
            Self::Million => 2,
        }
    }

    /// Messages, and bytes of each one's text.
    fn shape(self) -> (usize, usize) {
        match self {
            Self::Small => (2, 170),
            Self::Large => (20, 10_940),
            Self::Million => (40, 99_900),
        }
    }

    /// Roles and texts of a prompt. Prompts differ from their first message on.
    #[must_use]
    pub fn messages(self, index: usize) -> Vec<(&'static str, String)> {
        let (count, length) = self.shape();
        let mut random = fastrand::Rng::with_seed((count * 1_000 + index) as u64);
        let role =
            |at: usize| ["system", "user", "assistant"][if at == 0 { 0 } else { 2 - at % 2 }];
        (0..count).map(|at| (role(at), text(&mut random, length))).collect()
    }

    /// Tokens of a prompt, as the simulated model has them.
    ///
    /// # Errors
    /// When the tokenizer cannot be loaded.
    pub fn tokens(self, index: usize) -> Result<Vec<u32>, TokenizerError> {
        let messages: Vec<_> = self
            .messages(index)
            .into_iter()
            .map(|(role, content)| template::Message::new(role, content))
            .collect();
        template::tokenize(tokens::shared()?, &messages, true)
    }
}

/// Words of small letters, now and then a new line.
fn text(random: &mut fastrand::Rng, length: usize) -> String {
    let mut text = String::with_capacity(length + 8);
    while text.len() < length {
        for _ in 0..random.usize(2..9) {
            text.push(random.lowercase());
        }
        text.push(if random.u8(..) < 6 { '\n' } else { ' ' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_sizes_and_differ() {
        let cases = [
            (Case::Small, 500, 60),
            (Case::Large, 220_000, 2_000),
            (Case::LargeStream, 220_000, 2_000),
            (Case::Million, 4_000_000, 20_000),
        ];
        for (case, size, off) in cases {
            let bodies = case.bodies();
            assert!(bodies[0].len().abs_diff(size) < off, "{}: {}", case.name(), bodies[0].len());
            assert_ne!(bodies[0].get(..200), bodies[1].get(..200), "{}", case.name());
            assert_eq!(bodies, case.bodies());
        }
    }

    #[test]
    fn roles_alternate_behind_the_system_message() {
        let roles: Vec<_> = Length::Large.messages(0).into_iter().map(|(role, _)| role).collect();
        assert_eq!(roles[..4], ["system", "user", "assistant", "user"]);
    }

    #[test]
    fn small_and_large_prompts_are_ten_thousand_blocks_of_the_index() {
        let blocks: usize = [Length::Small, Length::Large]
            .into_iter()
            .map(|length| {
                let (count, bytes) = length.shape();
                length.prompts() * (count * (bytes + 35) / 128)
            })
            .sum();
        assert!(blocks.abs_diff(10_000) < 1_000, "{blocks}");
    }
}
