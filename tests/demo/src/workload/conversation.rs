//! Many conversations of several turns, each turn a prompt of known length.

use bytes::Bytes;
use serde::Serialize;

use super::{Message, PrefixLedger, Prompt, Tokens, Workload, WorkloadError, Writer};

/// Tokens of text in a fixed reply. The engine's own answer is never put into the history: it would
/// differ between the two sides, and the prompts would no longer be equal.
const REPLY_TOKENS: usize = 32;

/// How many conversations, how long, how many turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Conversations; no two share more than the template.
    pub conversations: usize,
    /// Tokens of system prompt and history that stand before the first turn.
    pub base_tokens: usize,
    /// Tokens that a turn adds: a question and its reply, with their part of the template.
    pub turn_tokens: usize,
    /// Turns.
    pub turns: usize,
    /// `max_tokens` of every request.
    pub max_tokens: u32,
    /// Seed of texts and orders.
    pub seed: u64,
}

impl Shape {
    /// Tokens of all conversations at their longest: what would have to fit into KV memory.
    #[must_use]
    pub fn working_set(&self) -> usize {
        self.conversations * (self.base_tokens + self.turns * self.turn_tokens)
    }
}

/// What the template adds to a text, in tokens.
struct Template {
    system: usize,
    user: usize,
    assistant: usize,
    /// The opening of the answer.
    generation: usize,
}

impl Template {
    fn measure(tokens: &dyn Tokens) -> Self {
        let text = tokens.text("word").len();
        let message = |role| Message { role, content: "word".to_owned() };
        // Each as the second of two messages: some templates treat the first one specially.
        let one = tokens.chat(&[message("system")]).len();
        let added = |role| tokens.chat(&[message("system"), message(role)]).len() - one - text;
        let (system, user, assistant) = (added("system"), added("user"), added("assistant"));
        Self { system, user, assistant, generation: one - text - system }
    }
}

/// Builds the prompts of all conversations and the order to send them in.
///
/// # Errors
/// When the lengths asked for cannot be met exactly.
pub fn build(tokens: &dyn Tokens, model: &str, shape: &Shape) -> Result<Workload, WorkloadError> {
    let writer = Writer::new(tokens)?;
    let template = Template::measure(tokens);
    let mut random = fastrand::Rng::with_seed(shape.seed);
    let mut scripts = Vec::with_capacity(shape.conversations);
    for conversation in 0..shape.conversations {
        let script = Script::write(tokens, &writer, &template, &mut random, shape, conversation)?;
        scripts.push(script);
    }

    let mut ledger = PrefixLedger::default();
    let mut ideal_cached_tokens = 0_u64;
    let mut turns = Vec::with_capacity(shape.turns);
    for turn in 0..shape.turns {
        let mut order: Vec<usize> = (0..shape.conversations).collect();
        random.shuffle(&mut order);
        let mut prompts = Vec::with_capacity(order.len());
        for conversation in order {
            let messages = scripts[conversation].until(turn);
            let ids = tokens.chat(messages);
            ideal_cached_tokens += ledger.add(&ids) as u64;
            let body = Body::of(model, messages, shape.max_tokens);
            prompts.push(Prompt { conversation, body, tokens: ids.len() });
        }
        turns.push(prompts);
    }
    Ok(Workload { turns, ideal_cached_tokens })
}

/// All messages of one conversation, to its last question.
struct Script {
    messages: Vec<Message>,
    /// Messages that stand before the first turn.
    base: usize,
}

impl Script {
    fn write(
        tokens: &dyn Tokens,
        writer: &Writer,
        template: &Template,
        random: &mut fastrand::Rng,
        shape: &Shape,
        conversation: usize,
    ) -> Result<Self, WorkloadError> {
        let mut messages = Vec::new();
        let mut say = |random: &mut fastrand::Rng, role, opening: &str, length| {
            let content = writer.write(tokens, random, opening, length)?;
            messages.push(Message { role, content });
            Ok::<_, WorkloadError>(())
        };

        // The base: a system prompt of two sevenths, then five exchanges of an equal share each.
        let exchanges = 5;
        let overhead = template.system + exchanges * (template.user + template.assistant);
        let too_short = |what, tokens, template| WorkloadError::TooShort { what, tokens, template };
        let text = shape
            .base_tokens
            .checked_sub(overhead)
            .filter(|text| *text >= 40 * exchanges)
            .ok_or(too_short("a base", shape.base_tokens, overhead))?;
        let question = text / 7 / 2;
        let answer = text / 7 - question;
        let system = text - exchanges * (question + answer);
        say(random, "system", &format!("Rules of desk {conversation}:"), system)?;
        for _ in 0..exchanges {
            say(random, "user", "Please", question)?;
            say(random, "assistant", "Well,", answer)?;
        }

        let overhead = template.user + template.assistant + REPLY_TOKENS;
        let question = shape
            .turn_tokens
            .checked_sub(overhead)
            .filter(|text| *text >= 8)
            .ok_or(too_short("a turn", shape.turn_tokens, overhead))?;
        for _ in 0..shape.turns {
            say(random, "user", "And", question)?;
            say(random, "assistant", "So", REPLY_TOKENS)?;
        }
        let script = Self { messages, base: 1 + 2 * exchanges };

        let expected = shape.base_tokens + template.user + question + template.generation;
        let got = tokens.chat(script.until(0)).len();
        if got == expected {
            Ok(script)
        } else {
            Err(WorkloadError::NotAdditive { got, wanted: expected })
        }
    }

    /// The messages of the prompt of `turn`: everything up to that turn's question.
    fn until(&self, turn: usize) -> &[Message] {
        &self.messages[..self.base + 2 * turn + 1]
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: &'a [Message],
    max_tokens: u32,
    stream: bool,
    stream_options: StreamOptions,
    temperature: f32,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

impl Body<'_> {
    fn of(model: &str, messages: &[Message], max_tokens: u32) -> Bytes {
        let body = Body {
            model,
            messages,
            max_tokens,
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            temperature: 0.0,
        };
        Bytes::from(serde_json::to_vec(&body).expect("strings and numbers always serialise"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A word or a number is one token, and a template of `<role> … <end>` around each message.
    pub(crate) struct Letters;

    impl Tokens for Letters {
        fn text(&self, text: &str) -> Vec<u32> {
            text.split_whitespace()
                .map(|word| xxhash_rust::xxh3::xxh3_64(word.as_bytes()) as u32)
                .collect()
        }
        fn chat(&self, messages: &[Message]) -> Vec<u32> {
            let mut ids = Vec::new();
            for message in messages {
                ids.extend(self.text(message.role));
                ids.extend(self.text(&message.content));
                ids.push(0);
            }
            ids.extend([1, 2]);
            ids
        }
    }

    const SHAPE: Shape = Shape {
        conversations: 8,
        base_tokens: 700,
        turn_tokens: 60,
        turns: 3,
        max_tokens: 4,
        seed: 7,
    };

    #[test]
    fn every_prompt_has_its_exact_length() {
        let workload = build(&Letters, "m", &SHAPE).unwrap();
        assert_eq!(workload.requests(), 24);
        for (turn, prompts) in workload.turns.iter().enumerate() {
            for prompt in prompts {
                // A turn less its reply, plus the two tokens that open the answer.
                assert_eq!(prompt.tokens, 700 + 60 * turn + (60 - 32 - 2) + 2);
            }
        }
    }

    #[test]
    fn each_turn_holds_each_conversation_once_in_another_order() {
        let workload = build(&Letters, "m", &SHAPE).unwrap();
        let orders: Vec<Vec<usize>> = workload
            .turns
            .iter()
            .map(|turn| turn.iter().map(|prompt| prompt.conversation).collect())
            .collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..8).collect::<Vec<_>>());
        }
        assert_ne!(orders[0], orders[1]);
        assert_ne!(orders[1], orders[2]);
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
        let bodies = |seed| {
            let workload = build(&Letters, "m", &Shape { seed, ..SHAPE }).unwrap();
            workload.turns.concat().into_iter().map(|prompt| prompt.body).collect::<Vec<_>>()
        };
        assert_eq!(bodies(7), bodies(7));
        assert_ne!(bodies(7), bodies(8));
    }

    #[test]
    fn conversations_share_no_block_and_a_turn_repeats_the_one_before() {
        let one = build(&Letters, "m", &Shape { turns: 1, ..SHAPE }).unwrap();
        assert_eq!(one.ideal_cached_tokens, 0);
        let two = build(&Letters, "m", &Shape { turns: 2, ..SHAPE }).unwrap();
        // What the second prompt shares with the first: all of it but the opening of the answer.
        let shared = 700 + (60 - 32 - 2) + 1;
        assert_eq!(two.ideal_cached_tokens, 8 * (shared / 16 * 16));
    }

    #[test]
    fn lengths_without_room_for_the_template_are_refused() {
        let refused = build(&Letters, "m", &Shape { base_tokens: 30, ..SHAPE }).unwrap_err();
        assert!(matches!(refused, WorkloadError::TooShort { what: "a base", .. }), "{refused}");
        let refused = build(&Letters, "m", &Shape { turn_tokens: 36, ..SHAPE }).unwrap_err();
        assert!(matches!(refused, WorkloadError::TooShort { what: "a turn", .. }), "{refused}");
    }
}
