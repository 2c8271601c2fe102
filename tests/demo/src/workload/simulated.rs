//! The simulator's own tokenizer and template.

use engine_sim::tokens::{Tokenizer, TokenizerError, template};

use super::{Message, Tokens};

/// Counts as the simulated engines do.
pub struct SimulatedTokens(Tokenizer);

impl SimulatedTokens {
    /// Loads the tokenizer that the simulator has inside.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn new() -> Result<Self, TokenizerError> {
        Tokenizer::new().map(Self)
    }
}

// What cannot be encoded counts as empty here; the builders then report a wrong length.
impl Tokens for SimulatedTokens {
    fn text(&self, text: &str) -> Vec<u32> {
        self.0.encode(&[text]).map(|ids| ids.to_vec()).unwrap_or_default()
    }

    fn chat(&self, messages: &[Message]) -> Vec<u32> {
        let messages: Vec<_> = messages
            .iter()
            .map(|message| template::Message::new(message.role, message.content.as_str()))
            .collect();
        template::tokenize(&self.0, &messages, true).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Shape, build};

    #[test]
    fn the_articles_prompts_have_their_exact_length_in_the_simulators_tokens() {
        let tokens = SimulatedTokens::new().unwrap();
        let shape = Shape {
            conversations: 2,
            base_tokens: 7_000,
            turn_tokens: 200,
            turns: 2,
            max_tokens: 32,
            seed: 1,
        };
        let workload = build(&tokens, "llama-70b", &shape).unwrap();
        let lengths: Vec<Vec<usize>> = workload
            .turns
            .iter()
            .map(|turn| turn.iter().map(|prompt| prompt.tokens).collect())
            .collect();
        assert_eq!(lengths[0][0], lengths[0][1]);
        assert_eq!(lengths[1][0], lengths[0][0] + 200);
        // Less than a whole turn: the question and the opening of the answer, but no reply yet.
        assert!((7_100..7_200).contains(&lengths[0][0]), "{lengths:?}");
        // The second turn finds the first one; the conversations find nothing of each other.
        let per_conversation = workload.ideal_cached_tokens / 2;
        assert!((7_080..7_200).contains(&per_conversation), "{per_conversation}");
    }
}
