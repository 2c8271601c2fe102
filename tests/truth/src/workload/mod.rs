//! What is sent: conversations of several turns, with system prompts that many share, adapters,
//! cache salts, and texts of different kinds.

pub mod conversation;
pub mod text;

use conversation::{Api, Plan};
use serde_json::{Value, json};
use text::Style;

/// What the conversations are to be like.
#[derive(Clone, Debug)]
pub struct Shape {
    /// How many.
    pub conversations: usize,
    /// Requests in each.
    pub turns: usize,
    /// Served name of the model.
    pub model: String,
    /// Served names of adapters; may be empty.
    pub adapters: Vec<String>,
    /// Whether some chats offer tools.
    pub tools: bool,
    /// System prompts that are shared: words in the shortest and in the longest.
    pub system_words: (usize, usize),
    /// Words that a user says in a turn: fewest and most.
    pub user_words: (usize, usize),
    /// Tokens of an answer: fewest and most.
    pub answer_tokens: (usize, usize),
}

/// System prompts of each style that conversations share.
const SYSTEMS: usize = 2;

/// Tenants with a cache salt of their own.
const SALTS: usize = 3;

/// Tools as clients send them: keys in another order than the engine renders them, one that it drops.
fn offered(random: &mut fastrand::Rng) -> Value {
    let tool = |name: &str, about: &str| {
        json!({"function": {
            "parameters": {"type": "object", "properties": {
                "place": {"type": "string", "description": "Où? – e.g. \"Kraków\" & <co>"},
                "days": {"type": "integer"}}, "required": ["place"]},
            "description": about, "name": name, "unknown": true,
        }, "type": "function"})
    };
    let mut tools = vec![tool("weather", "Tells the weather.")];
    if random.bool() {
        tools.push(tool("tickets", "Sells tickets to a place."));
    }
    Value::Array(tools)
}

/// Plans every conversation from a seed.
#[must_use]
pub fn plan(shape: &Shape, seed: u64) -> Vec<Plan> {
    let mut random = fastrand::Rng::with_seed(seed);
    let between = |random: &mut fastrand::Rng, (from, to): (usize, usize)| random.usize(from..=to);
    // One prompt is of one style: the error is told in blocks of the prompt's average density, which
    // would mean little where a dense text follows a thin one.
    let systems: Vec<(Style, String)> = std::iter::repeat_n(text::ALL, SYSTEMS)
        .flatten()
        .map(|style| {
            let words = between(&mut random, shape.system_words);
            (style, text::write(&mut random, style, words))
        })
        .collect();
    (0..shape.conversations)
        .map(|_| {
            let model = match random.u8(..100) {
                0..25 => random.choice(&shape.adapters).unwrap_or(&shape.model),
                _ => &shape.model,
            };
            let salt = (random.u8(..100) < 20).then(|| format!("tenant-{}", random.usize(..SALTS)));
            let api = if random.u8(..100) < 12 { Api::Completion } else { Api::Chat };
            let with_tools = shape.tools && api == Api::Chat && random.u8(..100) < 15;
            let tools = with_tools.then(|| offered(&mut random));
            let style = Style::any(&mut random);
            let turns = (0..shape.turns)
                .map(|_| {
                    let words = between(&mut random, shape.user_words);
                    let answer = between(&mut random, shape.answer_tokens);
                    (text::write(&mut random, style, words), answer)
                })
                .collect();
            let fitting: Vec<_> = systems.iter().filter(|(of, _)| *of == style).collect();
            let system = random.choice(fitting).map(|(_, text)| text.clone()).unwrap_or_default();
            Plan { api, model: model.clone(), salt, tools, system, turns }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_conversation_occurs_and_a_seed_gives_the_same_again() {
        let shape = Shape {
            conversations: 100,
            turns: 3,
            model: "m".to_owned(),
            adapters: vec!["lora-a".to_owned(), "lora-b".to_owned()],
            tools: true,
            system_words: (10, 20),
            user_words: (1, 9),
            answer_tokens: (1, 3),
        };
        let plans = plan(&shape, 7);
        assert_eq!(plans, plan(&shape, 7));
        assert_ne!(plans, plan(&shape, 8));
        let count = |wanted: &dyn Fn(&Plan) -> bool| plans.iter().filter(|one| wanted(one)).count();
        for (what, count) in [
            ("completions", count(&|one| one.api == Api::Completion)),
            ("salts", count(&|one| one.salt.is_some())),
            ("tools", count(&|one| one.tools.is_some())),
            ("lora-a", count(&|one| one.model == "lora-a")),
            ("lora-b", count(&|one| one.model == "lora-b")),
            ("one system prompt", count(&|one| one.system == plans[0].system)),
        ] {
            assert!((5..50).contains(&count), "{count} with {what}");
        }
        assert!(plans.iter().all(|one| one.turns.len() == 3));
    }
}
