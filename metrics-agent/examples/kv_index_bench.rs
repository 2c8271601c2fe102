//! What decoding and indexing KV events costs in time and memory, one core.
//!
//! `cargo run --profile native --package warmroute-agent --example kv_index_bench -- [MODEL FOLDER]`
//! prints one `name value` a line. Without a folder it takes the simulator's tokenizer. Texts are made up of words, so
//! that a token has about 4 bytes, as in prose.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a measurement stops at a surprise, and prints"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use warmroute_agent::kv_events::decode;
use warmroute_agent::kv_index::{Changes, Encode as _, Index, Limits, ModelContext};
use warmroute_agent::tokenizer::Tokenizer;

const ENDPOINTS: usize = 256;
const BLOCKS: usize = 10_000;
/// Tokens of an engine block.
const SIZE: usize = 16;
/// Blocks of a prompt: the first ones are shared by eight prompts.
const SHARED: usize = 20;
const OWN: usize = 40;

fn main() {
    let before = resident();
    let folder = std::env::args().nth(1).map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/engine-sim/assets")
    });
    let tokenizer = Tokenizer::load(&folder).unwrap();
    let model = ModelContext {
        model: "m",
        stream: tokenizer.files.stream,
        tokens: &tokenizer.tokens,
        encoder: &tokenizer.encoder,
    };
    let ids = words(&tokenizer);
    let bytes: usize = ids.iter().map(|id| tokenizer.tokens.get(*id).unwrap().len()).sum();
    println!("bytes_per_token {:.2}", bytes as f64 / ids.len() as f64);
    println!("tokenizer_mb {}", mb(resident() - before));

    let empty = resident();
    let mut changes = Changes::default();
    let mut indexes = Vec::new();
    let (mut spent, mut told) = (Duration::ZERO, 0);
    for endpoint in 0..ENDPOINTS {
        let payloads = prompts(&ids, endpoint as u64);
        let mut index = Index::new(Limits::default());
        let start = Instant::now();
        for payload in &payloads {
            apply(&mut index, payload, &model, &mut changes);
            told += changes.device.stored.len();
        }
        spent += start.elapsed();
        assert_eq!(index.counters().orphans, 0);
        indexes.push(index);
    }
    let blocks: usize = indexes.iter().map(Index::blocks).sum();
    let grown = resident() - empty;
    println!("endpoints {ENDPOINTS}");
    println!("engine_blocks {blocks}");
    println!("byte_blocks {told}");
    println!("prefill_blocks_per_s {:.0}", blocks as f64 / spent.as_secs_f64());
    println!("index_mb {}", mb(grown));
    println!("index_bytes_per_block {:.1}", grown as f64 / blocks as f64);

    // As many more, each for one that goes.
    let (mut spent, mut count) = (Duration::ZERO, 0);
    for (endpoint, index) in indexes.iter_mut().enumerate().take(16) {
        let old = names(endpoint as u64);
        let next = prompts(&ids, (endpoint + ENDPOINTS) as u64);
        let gone: Vec<Vec<u8>> = old.iter().rev().map(|names| removed(names)).collect();
        let start = Instant::now();
        for (gone, payload) in gone.iter().zip(&next) {
            apply(index, gone, &model, &mut changes);
            apply(index, payload, &model, &mut changes);
        }
        spent += start.elapsed();
        count += index.counters().removed as usize * 2;
    }
    println!("churned_blocks_per_s {:.0}", count as f64 / spent.as_secs_f64());

    let (blocks, seconds) = decoded(&ids, &model);
    println!("decoded_blocks_per_s {:.0}", blocks as f64 / seconds);
    println!("resident_mb {}", mb(resident()));
}

fn apply(index: &mut Index, payload: &[u8], model: &ModelContext<'_>, changes: &mut Changes) {
    let batch = decode::batch(payload).unwrap();
    for event in &batch.events {
        index.apply(batch.rank.unwrap_or(0), event, model);
    }
    index.drain(changes);
}

/// Blocks of an answer, one at a time, each encoded again.
fn decoded(ids: &[u32], model: &ModelContext<'_>) -> (usize, f64) {
    let mut index = Index::new(Limits::default());
    let mut changes = Changes::default();
    let count = 4_000.min(ids.len() / SIZE);
    let payloads: Vec<Vec<u8>> = (0..count)
        .map(|block| {
            let parent = block.checked_sub(1).map(|block| block as u64);
            stored(&[block as u64], parent, &ids[block * SIZE..(block + 1) * SIZE])
        })
        .collect();
    let start = Instant::now();
    for payload in &payloads {
        apply(&mut index, payload, model, &mut changes);
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("decoded_blocks_differing {}", index.counters().differing);
    (count, seconds)
}

/// Names of the blocks of each prompt of an endpoint, those that are new with it.
fn names(seed: u64) -> Vec<Vec<u64>> {
    let mut names = Vec::new();
    let (mut held, mut prompt) = (0, 0u64);
    while held < BLOCKS {
        let shared = prompt.is_multiple_of(8);
        let count = if shared { SHARED + OWN } else { OWN };
        let count = count.min(BLOCKS - held);
        let first = (seed << 32) | (prompt << 8);
        names.push((0..count as u64).map(|block| mix(first + block)).collect());
        held += count;
        prompt += 1;
    }
    names
}

/// Payloads that store them.
fn prompts(ids: &[u32], seed: u64) -> Vec<Vec<u8>> {
    let mut random = mix(seed);
    let mut parent = None;
    let mut payloads = Vec::new();
    for (prompt, names) in names(seed).iter().enumerate() {
        let len = names.len() * SIZE;
        random = mix(random);
        let from = random as usize % (ids.len() - len);
        let shared = prompt % 8 == 0;
        payloads.push(stored(names, if shared { None } else { parent }, &ids[from..from + len]));
        if shared {
            parent = names.get(SHARED - 1).copied();
        }
    }
    payloads
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (value ^ (value >> 31)).wrapping_add(0x9e37_79b9_7f4a_7c15)
}

/// Ids of prose: 200,000 words out of 2,000.
fn words(tokenizer: &Tokenizer) -> Vec<u32> {
    let mut random = 1;
    let syllables =
        ["ca", "che", "rou", "ter", "block", "to", "ken", "en", "gine", "pre", "fix", "ing"];
    let mut word = |_| {
        random = mix(random);
        let count = 1 + random % 3;
        (0..count).map(|n| syllables[(random >> (8 * n + 8)) as usize % 12]).collect::<String>()
    };
    let words: Vec<String> = (0..2_000).map(&mut word).collect();
    let mut ids = Vec::new();
    for part in 0..200u64 {
        let text: Vec<&str> =
            (0..1_000u64).map(|n| words[mix(part << 20 | n) as usize % 2_000].as_str()).collect();
        assert!(tokenizer.encoder.encode(&format!(" {}", text.join(" ")), &mut ids));
    }
    ids
}

/// A batch as vLLM 0.32 packs it.
fn batch(event: &[u8]) -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend(1.7e9f64.to_be_bytes());
    out.push(0x91);
    out.extend_from_slice(event);
    out.push(0);
    out
}

fn stored(hashes: &[u64], parent: Option<u64>, tokens: &[u32]) -> Vec<u8> {
    let mut out = vec![0x8a];
    text(&mut out, "type");
    text(&mut out, "BlockStored");
    text(&mut out, "block_hashes");
    list(&mut out, hashes.len());
    hashes.iter().for_each(|hash| number(&mut out, *hash));
    text(&mut out, "parent_block_hash");
    match parent {
        Some(parent) => number(&mut out, parent),
        None => out.push(0xc0),
    }
    text(&mut out, "token_ids");
    list(&mut out, tokens.len());
    tokens.iter().for_each(|id| number(&mut out, u64::from(*id)));
    text(&mut out, "block_size");
    number(&mut out, SIZE as u64);
    for nil in ["lora_id", "lora_name"] {
        text(&mut out, nil);
        out.push(0xc0);
    }
    text(&mut out, "medium");
    text(&mut out, "GPU");
    text(&mut out, "group_idx");
    number(&mut out, 0);
    text(&mut out, "kv_cache_spec_kind");
    text(&mut out, "full_attention");
    batch(&out)
}

/// One event per block, last block first, as engines evict.
fn removed(hashes: &[u64]) -> Vec<u8> {
    let mut out = vec![0x93, 0xcb];
    out.extend(1.7e9f64.to_be_bytes());
    list(&mut out, hashes.len());
    for hash in hashes.iter().rev() {
        out.push(0x83);
        text(&mut out, "type");
        text(&mut out, "BlockRemoved");
        text(&mut out, "block_hashes");
        list(&mut out, 1);
        number(&mut out, *hash);
        text(&mut out, "medium");
        text(&mut out, "GPU");
    }
    out.push(0);
    out
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.push(0xa0 | text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

fn list(out: &mut Vec<u8>, len: usize) {
    out.push(0xdc);
    out.extend((len as u16).to_be_bytes());
}

fn number(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=127 => out.push(value as u8),
        128..=0xff => out.extend([0xcc, value as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend((value as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend((value as u32).to_be_bytes());
        }
        _ => {
            out.push(0xcf);
            out.extend(value.to_be_bytes());
        }
    }
}

/// Resident memory in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn mb(bytes: usize) -> usize {
    bytes >> 20
}
