mod chains;
mod decode;
mod fixtures;
mod loss;
mod random;

use super::*;
use crate::kv_events::event::{Event, ExtraKey, Medium, Removed, Stored};
use crate::tokenizer::Tokenizer;
use crate::tokenizer::files::Folder;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use warmroute_shared_state::prefix::{BLOCK_BYTES, ChainScope};

const STREAM: u64 = 77;

/// The tokenizer that the fixtures were captured with.
static REAL: LazyLock<Tokenizer> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/engine-sim/assets");
    let tokenizer = std::fs::read_to_string(path.join("tokenizer.json")).unwrap();
    Tokenizer::from_folder(&Folder { tokenizer, ..Folder::default() }).unwrap()
});

/// Encodes nothing: for tests without decode.
struct NoEncoder;

impl Encode for NoEncoder {
    fn encode(&self, _: &str, _: &mut Vec<u32>) -> bool {
        false
    }
}

fn real() -> ModelContext<'static> {
    ModelContext { model: "tiny", stream: STREAM, tokens: &REAL.tokens, encoder: &REAL.encoder }
}

/// Ids 0 to 199: id `n` is 1 + n % 40 bytes of its own. Id 200 is unknown.
static MADE_UP: LazyLock<TokenBytes> = LazyLock::new(|| {
    let string = |n: u8| vec![b'0' + n % 64; 1 + usize::from(n) % 40];
    TokenBytes::new(&(0..200).map(string).collect::<Vec<_>>())
});

fn made_up() -> ModelContext<'static> {
    ModelContext { model: "m", stream: STREAM, tokens: &MADE_UP, encoder: &NoEncoder }
}

fn bytes_of(table: &TokenBytes, ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| table.get(*id).unwrap().to_vec()).collect()
}

fn scope(model: &str) -> ChainScope<'_> {
    ChainScope { stream: STREAM, model, adapter: None, cache_salt: None }
}

/// Blocks of `size` tokens, `hashes` by name, the last of them with its parent.
fn stored(hashes: &[u64], parent: Option<u64>, tokens: &[u32], size: u32) -> Stored {
    Stored {
        hashes: hashes.to_vec(),
        parent,
        tokens: tokens.to_vec(),
        block_size: size,
        ..Stored::default()
    }
}

fn removed(hashes: &[u64]) -> Event {
    Event::Removed(Removed { hashes: hashes.to_vec(), ..Removed::default() })
}

/// What a reader knows who was told every change.
#[derive(Default)]
struct Told {
    device: BTreeMap<u64, u32>,
    any: BTreeMap<u64, u32>,
}

impl Told {
    /// Drains the index; fails if it tells what was told, or takes back what was not.
    fn take(&mut self, index: &mut Index) -> Changes {
        let mut changes = Changes::default();
        index.drain(&mut changes);
        if changes.cleared {
            self.device.clear();
            self.any.clear();
        }
        for (known, tier) in [(&mut self.device, &changes.device), (&mut self.any, &changes.any)] {
            for hash in &tier.removed {
                assert!(known.remove(hash).is_some(), "removed, but not known");
            }
            for block in &tier.stored {
                assert!(known.insert(block.hash, block.tokens).is_none(), "stored twice");
            }
        }
        changes
    }

    fn hashes(&self) -> Vec<u64> {
        self.device.keys().copied().collect()
    }
}

fn sorted(mut hashes: Vec<u64>) -> Vec<u64> {
    hashes.sort_unstable();
    hashes
}

/// Chain hashes of the whole byte blocks of these tokens.
fn chain(scope: &ChainScope<'_>, table: &TokenBytes, ids: &[u32]) -> Vec<u64> {
    warmroute_shared_state::prefix::chain(scope, &bytes_of(table, ids))
}
