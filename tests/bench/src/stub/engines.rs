//! What all engines of a stub have: their answers, and what they say that they hold.

use std::net::SocketAddr;
use std::time::Duration;

use engine_sim::engine::blocks::{chain_hashes, chain_root};
use engine_sim::kv_events::KvEventsConfig;
use engine_sim::kv_events::batch::{Event, Stored};
use engine_sim::kv_events::source::{Ports, Source};
use engine_sim::tokens;
use serde_json::{Value, json};

use super::Options;
use super::answers::{Answers, response};
use super::metrics;
use crate::workload::{Length, MODEL};

/// Tokens of an engine's block.
const BLOCK_TOKENS: usize = 16;
/// Bytes of a block of the index.
const INDEX_BLOCK: usize = 128;
/// Engine blocks of one stored prompt that nobody asks for.
const FILLER_BLOCKS: usize = 250;
/// Engine blocks told in a row before the others get a turn.
const BURST: usize = 2_500;
/// Pause after each such row: a quarter of a million blocks a second, which the agent can follow.
const PAUSE: Duration = Duration::from_millis(10);

/// The engines of a stub.
pub struct Engines {
    answers: Answers,
    metrics: Vec<u8>,
    /// Publishers, in the engines' order; none if they publish nothing.
    sources: Vec<Source>,
}

impl Engines {
    /// Opens the publishers.
    ///
    /// # Errors
    /// When a socket cannot be opened.
    pub(super) async fn open(options: Options, addresses: &[SocketAddr]) -> anyhow::Result<Self> {
        let config = KvEventsConfig { buffer_steps: 100_000, ..KvEventsConfig::default() };
        let mut sources = Vec::new();
        for address in addresses.iter().filter(|_| options.events) {
            let topic = format!("kv@{address}@{MODEL}");
            sources.push(Source::open(&config, Ports::default(), topic).await?);
        }
        let page = metrics::page(options.metrics_bytes);
        Ok(Self {
            answers: Answers::new(),
            metrics: response("text/plain; version=0.0.4", &page),
            sources,
        })
    }

    pub(super) fn answers(&self) -> &Answers {
        &self.answers
    }

    pub(super) fn metrics(&self) -> &[u8] {
        &self.metrics
    }

    /// The answer to `GET /kv_event_sources`.
    pub(super) fn sources(&self, index: usize) -> Value {
        self.sources.get(index).map_or_else(|| json!({}), |source| json!({"0": source.describe()}))
    }

    /// Every engine stores all prompts of the named length.
    pub(super) async fn hold(&self, length: &str) -> Value {
        let Some(length) = Length::named(length) else { return json!({"error": "no such length"}) };
        for index in 0..length.prompts() {
            let Ok(tokens) = length.tokens(index) else { return json!({"error": "no tokenizer"}) };
            for engine in 0..self.sources.len() {
                self.store(engine, &tokens);
                tokio::time::sleep(PAUSE).await;
            }
        }
        json!({"prompts": length.prompts()})
    }

    /// Engines in turn store prompts that nobody asks for, until they fill so many blocks of the index.
    pub(super) async fn fill(&self, blocks: &str) -> Value {
        let (Ok(wanted), Ok(tokenizer)) = (blocks.parse::<usize>(), tokens::shared()) else {
            return json!({"error": "how many blocks?"});
        };
        let words = tokenizer.words();
        let (mut filled, mut prompts, mut row) = (0, 0, 0);
        while filled < wanted && !self.sources.is_empty() {
            let seed = (prompts as u64 + 1) << 20;
            let tokens = words.answer(seed, FILLER_BLOCKS * BLOCK_TOKENS);
            filled += tokens.iter().map(|id| words.text(*id).len()).sum::<usize>() / INDEX_BLOCK;
            self.store(prompts % self.sources.len(), &tokens);
            prompts += 1;
            row += FILLER_BLOCKS;
            if row >= BURST {
                row = 0;
                tokio::time::sleep(PAUSE).await;
            }
        }
        json!({"blocks": filled, "prompts": prompts})
    }

    fn store(&self, engine: usize, tokens: &[u32]) {
        let Some(source) = self.sources.get(engine) else { return };
        let hashes = chain_hashes(chain_root(None, None), tokens, BLOCK_TOKENS);
        let whole = hashes.len() * BLOCK_TOKENS;
        let tokens = tokens.get(..whole).unwrap_or_default().to_vec();
        let stored = Stored { hashes, tokens, block_size: BLOCK_TOKENS, ..Stored::default() };
        source.line().publish(vec![Event::Stored(stored)]);
    }
}
