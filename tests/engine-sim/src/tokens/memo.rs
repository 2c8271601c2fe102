//! A bounded memo of encoded texts.

use std::collections::HashMap;
use std::sync::Arc;

type Ids = Arc<[u32]>;

/// Two generations: when the young one is full it becomes the old one, and the old one is dropped.
/// What is asked for again moves to the young one, so that hot texts survive at no bookkeeping cost.
pub(super) struct Memo {
    young: HashMap<u128, Ids>,
    old: HashMap<u128, Ids>,
    young_tokens: usize,
    limit: usize,
}

/// What an entry costs beside its tokens, in tokens.
const ENTRY: usize = 16;

impl Memo {
    /// A memo of at most `tokens` tokens.
    pub(super) fn new(tokens: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), young_tokens: 0, limit: tokens / 2 }
    }

    pub(super) fn get(&mut self, key: u128) -> Option<Ids> {
        if let Some(ids) = self.young.get(&key) {
            return Some(Arc::clone(ids));
        }
        let ids = self.old.remove(&key)?;
        self.put(key, Arc::clone(&ids));
        Some(ids)
    }

    pub(super) fn put(&mut self, key: u128, ids: Ids) {
        let cost = ids.len() + ENTRY;
        if cost > self.limit {
            return;
        }
        if self.young_tokens + cost > self.limit {
            self.old = std::mem::take(&mut self.young);
            self.young_tokens = 0;
        }
        self.young_tokens += cost;
        self.young.insert(key, ids);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(n: usize) -> Ids {
        vec![0; n].into()
    }

    #[test]
    fn stays_below_its_limit_and_keeps_what_is_asked_for() {
        let mut memo = Memo::new(20 * (100 + ENTRY));
        memo.put(0, ids(100));
        for key in 1..1_000 {
            memo.put(key, ids(100));
            assert!(memo.get(0).is_some(), "hot after {key}");
            assert!(memo.young.len() + memo.old.len() <= 20);
        }
        assert!(memo.get(1).is_none());
        assert!(memo.get(999).is_some());
    }

    #[test]
    fn a_text_larger_than_the_memo_is_not_kept() {
        let mut memo = Memo::new(100);
        memo.put(1, ids(1_000));
        assert!(memo.get(1).is_none());
    }
}
