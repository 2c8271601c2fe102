//! The msgpack spelling of a batch.
//!
//! `[timestamp, [event, …], data_parallel_rank]`. vLLM 0.32 spells an event as a map that begins
//! with its `type`; 0.16 as an array that begins with it and has no `extra_keys`. Optional keys that
//! have nothing to say are left out.

use std::convert::Infallible;

use rmp::encode as mp;
use rmp::encode::ValueWriteError;
use rmp::encode::buffer::ByteBuf;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::batch::{Event, Stored};
use crate::engine::blocks::BlockHash;

/// Spelling of events and of replay answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Encoding {
    /// As vLLM 0.32: events are maps, replay answers have a topic
    #[default]
    Map,
    /// As vLLM 0.16: events are arrays, replay answers have no topic
    Array,
}

/// Spelling of block hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Hashes {
    /// Unsigned integers, the low 64 bits
    #[default]
    Int,
    /// 32 bytes, of which the last eight are the integer
    Bytes,
}

/// Where blocks are said to be; vLLM says so on every device.
const MEDIUM: &str = "GPU";

/// Payload of a batch. `at`: Unix time in seconds.
pub fn encode(at: f64, events: &[Event], encoding: Encoding, hashes: Hashes) -> Vec<u8> {
    let mut writer = Writer { out: ByteBuf::new(), hashes };
    writer.array(3);
    sure(mp::write_f64(&mut writer.out, at));
    writer.array(events.len());
    for event in events {
        match encoding {
            Encoding::Map => writer.event_map(event),
            Encoding::Array => writer.event_array(event),
        }
    }
    writer.number(0);
    writer.out.into_vec()
}

/// A buffer in memory takes whatever is written.
#[allow(clippy::needless_pass_by_value, reason = "it takes a write's result as it comes")]
fn sure<T>(result: Result<T, ValueWriteError<Infallible>>) {
    match result {
        Ok(_) => {}
        Err(
            ValueWriteError::InvalidMarkerWrite(never) | ValueWriteError::InvalidDataWrite(never),
        ) => match never {},
    }
}

struct Writer {
    out: ByteBuf,
    hashes: Hashes,
}

impl Writer {
    fn event_map(&mut self, event: &Event) {
        match event {
            Event::Stored(stored) => self.stored_map(stored),
            Event::Removed(hash) => {
                self.map(4);
                self.pair("type", "BlockRemoved");
                self.text("block_hashes");
                self.block_hashes(&[*hash]);
                self.pair("medium", MEDIUM);
                self.text("group_idx");
                self.number(0);
            }
            Event::Cleared => {
                self.map(1);
                self.pair("type", "AllBlocksCleared");
            }
        }
    }

    fn stored_map(&mut self, stored: &Stored) {
        self.map(11 + usize::from(stored.session.is_some()));
        self.pair("type", "BlockStored");
        self.text("block_hashes");
        self.block_hashes(&stored.hashes);
        self.text("parent_block_hash");
        self.optional_hash(stored.parent);
        self.text("token_ids");
        self.tokens(&stored.tokens);
        self.text("block_size");
        self.number(stored.block_size as u64);
        self.text("lora_id");
        self.adapter_number(stored);
        self.pair("medium", MEDIUM);
        self.text("lora_name");
        self.adapter_name(stored);
        self.text("extra_keys");
        self.extra_keys(stored);
        self.text("group_idx");
        self.number(0);
        self.pair("kv_cache_spec_kind", "full_attention");
        if let Some(session) = &stored.session {
            self.pair("session_id", session);
        }
    }

    fn event_array(&mut self, event: &Event) {
        match event {
            Event::Stored(stored) => {
                self.array(8);
                self.text("BlockStored");
                self.block_hashes(&stored.hashes);
                self.optional_hash(stored.parent);
                self.tokens(&stored.tokens);
                self.number(stored.block_size as u64);
                self.adapter_number(stored);
                self.text(MEDIUM);
                self.adapter_name(stored);
            }
            Event::Removed(hash) => {
                self.array(3);
                self.text("BlockRemoved");
                self.block_hashes(&[*hash]);
                self.text(MEDIUM);
            }
            Event::Cleared => {
                self.array(1);
                self.text("AllBlocksCleared");
            }
        }
    }

    /// What beside tokens enters each block's hash: the adapter's name in every block, the salt in
    /// the first of a prompt.
    fn extra_keys(&mut self, stored: &Stored) {
        self.array(stored.hashes.len());
        for index in 0..stored.hashes.len() {
            let adapter = stored.adapter.as_ref().map(|(_, name)| name.as_str());
            let first = index == 0 && stored.parent.is_none();
            let salt = stored.cache_salt.as_deref().filter(|_| first);
            let keys: Vec<&str> = adapter.into_iter().chain(salt).collect();
            if keys.is_empty() {
                self.nil();
                continue;
            }
            self.array(keys.len());
            for key in keys {
                self.text(key);
            }
        }
    }

    fn block_hashes(&mut self, hashes: &[BlockHash]) {
        self.array(hashes.len());
        for &hash in hashes {
            self.hash(hash);
        }
    }

    fn optional_hash(&mut self, hash: Option<BlockHash>) {
        match hash {
            Some(hash) => self.hash(hash),
            None => self.nil(),
        }
    }

    fn hash(&mut self, hash: BlockHash) {
        match self.hashes {
            Hashes::Int => self.number(hash),
            Hashes::Bytes => {
                let mut bytes = [0; 32];
                for (word, seed) in bytes.chunks_exact_mut(8).zip([1, 2, 3]) {
                    word.copy_from_slice(
                        &xxh3_64_with_seed(&hash.to_be_bytes(), seed).to_be_bytes(),
                    );
                }
                bytes[24..].copy_from_slice(&hash.to_be_bytes());
                sure(mp::write_bin(&mut self.out, &bytes));
            }
        }
    }

    fn tokens(&mut self, tokens: &[u32]) {
        self.array(tokens.len());
        for &token in tokens {
            self.number(u64::from(token));
        }
    }

    fn adapter_number(&mut self, stored: &Stored) {
        match &stored.adapter {
            Some((number, _)) => self.number(*number as u64),
            None => self.nil(),
        }
    }

    fn adapter_name(&mut self, stored: &Stored) {
        match &stored.adapter {
            Some((_, name)) => self.text(name),
            None => self.nil(),
        }
    }

    fn pair(&mut self, key: &str, value: &str) {
        self.text(key);
        self.text(value);
    }

    fn text(&mut self, text: &str) {
        sure(mp::write_str(&mut self.out, text));
    }

    fn number(&mut self, number: u64) {
        sure(mp::write_uint(&mut self.out, number));
    }

    fn nil(&mut self) {
        let Ok(()) = mp::write_nil(&mut self.out);
    }

    fn array(&mut self, len: usize) {
        sure(mp::write_array_len(&mut self.out, length(len)));
    }

    fn map(&mut self, len: usize) {
        sure(mp::write_map_len(&mut self.out, length(len)));
    }
}

/// A step of more than four billion of anything does not come about.
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
