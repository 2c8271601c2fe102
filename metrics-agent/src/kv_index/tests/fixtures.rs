//! What a real engine told (`tests/fixtures/kv_events/cases.jsonl`), against the prompts it was sent.

use super::*;
use crate::kv_events::decode;
use std::collections::BTreeSet;

#[derive(serde::Deserialize)]
struct Case {
    engine: String,
    name: String,
    model: Option<String>,
    salt: Option<String>,
    text: Option<String>,
    sequences: Vec<Sequence>,
    payloads: Vec<String>,
}

#[derive(serde::Deserialize)]
struct Sequence {
    prompt: Vec<u32>,
    output: Vec<u32>,
}

/// Tokens of an engine block in all captures.
const SIZE: usize = 32;

fn cases(engine: &str) -> Vec<Case> {
    let text = include_str!("../../../tests/fixtures/kv_events/cases.jsonl");
    let cases = text.lines().map(|line| serde_json::from_str::<Case>(line).unwrap());
    cases.filter(|case| case.engine == engine).collect()
}

/// How many ids come before the first that the vocabulary has not: the engine's model samples those too.
fn known(ids: &[u32]) -> usize {
    ids.iter().position(|id| REAL.tokens.get(*id).is_none()).unwrap_or(ids.len())
}

fn from_hex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

impl Case {
    /// Byte blocks of the first `blocks` engine blocks of these ids.
    fn chain(&self, ids: &[u32], blocks: usize) -> Vec<u64> {
        let model = self.model.as_deref().unwrap();
        let scope = ChainScope { cache_salt: self.salt.as_deref(), ..scope(model) };
        let ids = &ids[..blocks * SIZE];
        super::chain(&scope, &REAL.tokens, &ids[..known(ids)])
    }

    /// What the engine holds after it served this case: the prompts' whole blocks, and those of the
    /// answers as far as encoding the whole text anew gives the same ids.
    fn held(&self) -> BTreeSet<u64> {
        let mut held = BTreeSet::new();
        for Sequence { prompt, output } in &self.sequences {
            let all: Vec<u32> = prompt.iter().chain(output).copied().collect();
            // The last id was sampled, but not computed.
            let computed = if output.is_empty() { all.len() } else { all.len() - 1 };
            let mut blocks = prompt.len() / SIZE;
            while (blocks + 1) * SIZE <= computed {
                let ids = &all[..(blocks + 1) * SIZE];
                let ids = &ids[..known(ids)];
                let mut again = Vec::new();
                let text = String::from_utf8(bytes_of(&REAL.tokens, ids)).unwrap_or_default();
                REAL.encoder.encode(&text, &mut again);
                if again != ids {
                    break;
                }
                blocks += 1;
            }
            held.extend(self.chain(&all, blocks));
        }
        held
    }

    fn apply(&self, index: &mut Index, told: &mut Told) {
        for payload in &self.payloads {
            let batch = decode::batch(&from_hex(payload)).unwrap();
            assert_eq!(batch.undecodable, 0);
            for event in &batch.events {
                index.apply(batch.rank.unwrap_or(0), event, &real());
            }
            told.take(index);
        }
    }
}

fn replay(engine: &str) -> Index {
    let mut index = Index::default();
    let mut told = Told::default();
    let mut expected = BTreeSet::new();
    let mut evicting = false;
    for case in cases(engine) {
        case.apply(&mut index, &mut told);
        let name = &case.name;
        evicting |= name.contains("evict");
        let hashes: BTreeSet<u64> = told.device.keys().copied().collect();
        if let Some(text) = &case.text {
            // The chain is that of the prompt's text, which is what a filter has.
            let model = case.model.as_deref().unwrap();
            let scope = ChainScope { cache_salt: case.salt.as_deref(), ..scope(model) };
            let prompt = &case.sequences[0].prompt;
            let chain = warmroute_shared_state::prefix::chain(&scope, text.as_bytes());
            let whole = case.chain(prompt, prompt.len() / SIZE);
            assert!(chain.starts_with(&whole), "{name}");
            assert!(whole.iter().all(|hash| hashes.contains(hash)), "{name}");
        }
        expected.extend(case.held());
        if evicting {
            // What is left of earlier prompts, only the engine knows.
            assert!(hashes.is_subset(&expected), "{name}");
            assert!(case.held().is_subset(&hashes), "{name}");
        } else {
            assert_eq!(hashes, expected, "{name}");
        }
    }
    assert_eq!((index.counters().orphans, index.counters().malformed), (0, 0));
    assert_eq!(index.counters().unknown_removals, 0);
    index
}

#[test]
fn hashes_as_numbers() {
    let index = replay("sha256");
    assert!(index.counters().removed > 0 && index.counters().checked > 0);
}

#[test]
fn hashes_by_cbor() {
    replay("cbor");
}

#[test]
fn hashes_as_bytes_and_groups_of_sliding_windows() {
    let index = replay("hybrid_bytes");
    assert!(index.counters().other_groups > 0);
}
