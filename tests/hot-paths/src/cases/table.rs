//! Who holds how much of a prompt.

use super::Work;
use warmroute_core::prefix_table::{ColumnMask, PrefixTable};
use warmroute_shared_state::table_op::Column;

/// Endpoints that hold something.
const ENDPOINTS: u16 = 10;

/// Blocks of a prompt of 220 kB.
const BLOCKS: u64 = 1_700;

fn hash(n: u64) -> u64 {
    (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// One walk over a whole prompt's chain, in a table with so many entries, told in the order of their prompts.
pub(super) fn walk(entries: u64) -> Work {
    walk_in(&(0..entries).collect::<Vec<_>>())
}

/// The same where they were told in the order of their hashes, as a VM gets them that starts late.
pub(super) fn walk_scattered(entries: u64) -> Work {
    let mut told: Vec<u64> = (0..entries).collect();
    told.sort_unstable_by_key(|n| hash(*n));
    walk_in(&told)
}

fn walk_in(told: &[u64]) -> Work {
    let chain: Vec<u64> = (0..BLOCKS).map(hash).collect();
    let mut table = PrefixTable::default();
    let mut live = ColumnMask::default();
    (0..ENDPOINTS).for_each(|column| live.insert(Column(column)));
    for n in told {
        table.insert(Column((n / BLOCKS % u64::from(ENDPOINTS)) as u16), 0, hash(*n));
    }
    // Another endpoint holds the first half, as if the conversation had moved.
    chain.iter().take(chain.len() / 2).for_each(|hash| table.insert(Column(1), 0, *hash));
    Box::new(move || {
        let matches = table.walk(&chain, &live, |_| Column::NONE);
        matches.iter().map(|m| m.blocks as u64).sum()
    })
}
