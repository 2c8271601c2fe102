//! What a real engine told, batch by batch as it came over the wire: the endpoint that told it is picked for its prompts, and
//! believed to hold of them what the engine's own ids say, token for token.

use crate::captured_engine::CapturedEngine;
use anyhow::{Context as _, Result, ensure};
use e2e::access_log::Access;
use e2e::client::{Request, send};
use e2e::{Endpoint, MODEL, Setup, Stack};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Captured from vLLM 0.32 with the model and the tokenizer that the simulator has too.
const CAPTURED: &str = "metrics-agent/tests/fixtures/kv_events/cases.jsonl";
/// Tokens of the captured engine's blocks.
const CAPTURED_BLOCK: usize = 32;
const BYTE_BLOCK_BYTES: usize = 128;
/// The engine's name in the agent's YAML.
const NAME: &str = "captured";

/// One request to the engine that was captured, and what it told then.
#[derive(Deserialize)]
struct Case {
    engine: String,
    name: String,
    model: Option<String>,
    salt: Option<String>,
    /// The rendered prompt, if it is known.
    text: Option<String>,
    sequences: Vec<Sequence>,
    /// Batches, in hex.
    payloads: Vec<String>,
}

#[derive(Deserialize)]
struct Sequence {
    prompt: Vec<u32>,
    output: Vec<u32>,
}

impl Case {
    /// Cases up to the first that evicts.
    fn read(root: &Path) -> Result<Vec<Self>> {
        let text = std::fs::read_to_string(root.join(CAPTURED)).context(CAPTURED)?;
        let cases = text.lines().map(serde_json::from_str).collect::<Result<Vec<Self>, _>>()?;
        let stays = |case: &Self| !case.name.starts_with("evict");
        Ok(cases.into_iter().filter(|case| case.engine == "sha256").take_while(stays).collect())
    }

    /// Those of the plain model whose prompts have several blocks, each prompt once.
    fn prompts(cases: &[Self]) -> Vec<&Self> {
        let mut prompts: Vec<&Self> = Vec::new();
        for case in cases.iter().filter(|case| case.model.as_deref() == Some("tiny")) {
            let long = case.text.as_ref().is_some_and(|text| text.len() > 3 * BYTE_BLOCK_BYTES);
            if long && !prompts.iter().any(|p| (&p.text, &p.salt) == (&case.text, &case.salt)) {
                prompts.push(case);
            }
        }
        prompts
    }

    async fn ask(&self, stack: &Stack, id: &str) -> Result<Access> {
        let request = Request::post("/v1/completions", self.body().to_string().into())
            .header("content-type", "application/json")
            .id(id);
        send(stack.listen(), &request).await?;
        stack.access(id).await
    }

    /// Tokens of the prompt that the engine's blocks cover, down to whole byte blocks and then whole engine blocks. That is
    /// also what is known: the answers' ids are those of their text, so blocks that an answer completed count.
    fn held_tokens(&self, lengths: &HashMap<u32, usize>) -> Result<u64> {
        let Sequence { prompt, output } = self.sequences.first().context("no prompt")?;
        let text = self.text.as_ref().context("no text")?;
        // The last id was sampled, but not computed.
        let computed = (prompt.len() + output.len()).saturating_sub(1);
        let held = computed / CAPTURED_BLOCK * CAPTURED_BLOCK;
        let mut bytes = 0;
        let mut ends = Vec::new();
        for id in prompt.iter().chain(output).take(held) {
            bytes += lengths.get(id).with_context(|| format!("no id {id}"))?;
            ends.push(bytes);
        }
        let whole = bytes.min(text.len()) / BYTE_BLOCK_BYTES * BYTE_BLOCK_BYTES;
        let tokens = ends.iter().filter(|end| **end <= whole).count();
        Ok((tokens / CAPTURED_BLOCK * CAPTURED_BLOCK) as u64)
    }

    fn body(&self) -> Value {
        let mut body = json!({"model": MODEL, "prompt": self.text, "max_tokens": 1});
        if let Some(salt) = &self.salt {
            body["cache_salt"] = json!(salt);
        }
        body
    }
}

/// How many bytes each id of the vocabulary stands for. A byte is one character of a token's name.
fn lengths(model_folder: &Path) -> Result<HashMap<u32, usize>> {
    #[derive(Deserialize)]
    struct Tokenizer {
        model: Model,
        added_tokens: Vec<Added>,
    }
    #[derive(Deserialize)]
    struct Model {
        vocab: HashMap<String, u32>,
    }
    #[derive(Deserialize)]
    struct Added {
        id: u32,
        content: String,
    }
    let text = std::fs::read_to_string(model_folder.join("tokenizer.json"))?;
    let tokenizer: Tokenizer = serde_json::from_str(&text)?;
    let vocabulary = tokenizer.model.vocab.iter().map(|(name, id)| (*id, name.chars().count()));
    let added = tokenizer.added_tokens.iter().map(|added| (added.id, added.content.len()));
    Ok(vocabulary.chain(added).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_captured_engine_is_picked_for_what_it_told_that_it_holds() -> Result<()> {
    let cases = Case::read(&warmroute_demo::processes::workspace_root()?)?;
    let mut engine = CapturedEngine::start(&format!("kv@captured@{MODEL}"), CAPTURED_BLOCK).await?;
    let address = engine.address.to_string();
    let mut setup = Setup::new(2, 2).precise();
    setup.other_endpoints = vec![Endpoint::new(NAME, engine.address)];
    let stack = Stack::start(setup).await?;
    let lengths = lengths(&stack.dir().join("model"))?;
    for payload in cases.iter().flat_map(|case| &case.payloads) {
        engine.publish(from_hex(payload)?).await?;
    }
    let prompts = Case::prompts(&cases);
    let (last, others) = prompts.split_last().context("no prompts")?;
    // Events come in order, and what one worker sees the others see at their next request. So only the last prompt is
    // asked for before it is known: whoever gets it then holds it too.
    let tries = AtomicU32::new(0);
    let told = async || {
        let id = format!("last-{}", tries.fetch_add(1, Ordering::Relaxed));
        let log = last.ask(&stack, &id).await.ok()?;
        (log.matched_kind.as_deref() == Some("events")).then_some(())
    };
    stack.until("the last events in the filter", told).await?;
    ensure!(others.len() >= 5, "{} prompts", others.len());
    for case in others {
        let held = case.held_tokens(&lengths)?;
        ensure!(held >= 2 * CAPTURED_BLOCK as u64, "{}: {held}", case.name);
        let log = case.ask(&stack, &case.name).await?;
        let picked = (log.upstream.as_deref(), log.matched_kind.as_deref(), log.matched_tokens());
        assert_eq!(picked, (Some(address.as_str()), Some("events"), Some(held)), "{log:?}");
    }
    Ok(())
}

fn from_hex(hex: &str) -> Result<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}
