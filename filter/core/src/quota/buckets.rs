//! The buckets of all tenants, with one owner.

use super::bucket::{Bucket, Why};
use super::bucket_id::{BucketId, Kind};
use core::hash::BuildHasherDefault;
use hashbrown::HashMap;
use xxhash_rust::xxh64::Xxh64;

/// Buckets in use at most: those of 10,000 tenants with 11 each. It is what a table of 2^17 places holds, 5.4 MB.
pub const MAX_BUCKETS: usize = 114_000;

/// No request uses more tokens: a number that an engine reports wrongly must not lock a tenant out for ever.
const MAX_CHARGE: u64 = u32::MAX as u64;

/// Before this many there is nothing to tidy up.
const FIRST_SWEEP: usize = 1024;

/// A full table is not looked through more often: each walk takes about a ms.
const SWEEP_PAUSE_MS: u64 = 250;

/// What is asked of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Which.
    pub bucket: BucketId,
    /// Its limit, by the configuration of whoever asks.
    pub limit: u64,
    /// How much.
    pub amount: u64,
}

/// How a bucket stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Which.
    pub bucket: BucketId,
    /// Its limit.
    pub limit: u64,
    /// What is left; below 0 if it is overdrawn.
    pub balance: i64,
    /// In how many ms all of it is back; 0 where time does not fill it.
    pub reset_ms: u64,
}

impl Level {
    /// What is left.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        u64::try_from(self.balance).unwrap_or(0)
    }
}

/// What was asked can't be given, so none of it was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The bucket that keeps the request waiting longest.
    pub ask: Ask,
    /// Why.
    pub why: Why,
    /// How all that were asked stand.
    pub levels: Vec<Level>,
}

/// All buckets in use. Those of which nothing is used are forgotten.
#[derive(Debug, Clone)]
pub struct Buckets {
    /// Keys come from the configuration only, so a hasher without secret serves.
    table: HashMap<BucketId, Bucket, BuildHasherDefault<Xxh64>>,
    next_sweep: usize,
    swept_ms: u64,
    most: usize,
}

impl Default for Buckets {
    fn default() -> Self {
        Self::with_room(MAX_BUCKETS)
    }
}

impl Buckets {
    /// A table for at most so many.
    #[must_use]
    pub fn with_room(most: usize) -> Self {
        Self { table: HashMap::default(), next_sweep: FIRST_SWEEP.min(most), swept_ms: 0, most }
    }

    /// Buckets in use, as far as is known: some may have filled up since.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether none is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Takes all that is asked, or nothing.
    ///
    /// # Errors
    /// If a bucket can't give it.
    pub fn take_all(&mut self, asks: &[Ask], now_ms: u64) -> Result<Vec<Level>, Refusal> {
        let mut refused: Option<(Ask, Why)> = None;
        let mut taken = Vec::with_capacity(asks.len());
        for ask in asks {
            match self.take(ask, now_ms) {
                Ok(()) => taken.push(ask),
                // On a tie the first one asked counts.
                Err(why) if refused.is_none_or(|(_, worst)| why > worst) => {
                    refused = Some((*ask, why));
                }
                Err(_) => {}
            }
        }
        if refused.is_some() {
            for ask in taken {
                self.give_back(ask.bucket, ask.amount);
            }
        }
        let levels = self.levels(asks, now_ms);
        match refused {
            None => Ok(levels),
            Some((ask, why)) => Err(Refusal { ask, why, levels }),
        }
    }

    /// A request has ended, charged with `charged` tokens: what it took of the limits of what is at once is free again,
    /// and of its reserved tokens the rest is given back, or what is missing is charged, even if that overdraws.
    /// `asks` as they were taken.
    pub fn settle(&mut self, asks: &[Ask], charged: u64, now_ms: u64) {
        let charged = charged.min(MAX_CHARGE);
        for ask in asks {
            match ask.bucket.kind() {
                Kind::Requests => {}
                Kind::Tokens if charged > ask.amount => {
                    let more = charged.saturating_sub(ask.amount);
                    self.charge(&Ask { amount: more, ..*ask }, now_ms);
                }
                Kind::Tokens => self.give_back(ask.bucket, ask.amount.saturating_sub(charged)),
                Kind::Concurrency | Kind::InflightTokens => self.give_back(ask.bucket, ask.amount),
            }
        }
    }

    /// A request was not sent on after all: nothing of it counts, not even that it came.
    pub fn release(&mut self, asks: &[Ask]) {
        for ask in asks {
            self.give_back(ask.bucket, ask.amount);
        }
    }

    /// Counts what was taken of another owner, whose table is lost. Only what is at once: for the rest see
    /// [`restore`](Self::restore).
    pub fn take_over(&mut self, asks: &[Ask], now_ms: u64) {
        for ask in asks.iter().filter(|ask| !ask.bucket.kind().refills()) {
            self.charge(ask, now_ms);
        }
    }

    /// Takes over how a bucket that time fills stood at `at_ms`, as a lost owner told it. Of several tellings the
    /// lowest counts: the others came before something was taken.
    pub fn restore(&mut self, told: &Level, at_ms: u64, now_ms: u64) {
        if !told.bucket.kind().refills() {
            return;
        }
        let at_ms = at_ms.min(now_ms);
        let mut bucket = Bucket::with_balance(told.bucket.kind(), told.limit, told.balance, at_ms);
        bucket.advance(told.limit, now_ms);
        if let Some(known) = self.bucket(told.bucket, told.limit, now_ms)
            && bucket.balance() < known.balance()
        {
            *known = bucket;
        }
    }

    /// How buckets stand.
    pub fn levels(&mut self, asks: &[Ask], now_ms: u64) -> Vec<Level> {
        asks.iter().map(|ask| self.level(ask, now_ms)).collect()
    }

    /// How a bucket stands; the amount does not matter.
    pub fn level(&mut self, ask: &Ask, now_ms: u64) -> Level {
        let mut full = Bucket::new(ask.bucket.kind(), ask.limit, now_ms);
        let bucket = self.table.get_mut(&ask.bucket).unwrap_or(&mut full);
        bucket.advance(ask.limit, now_ms);
        let (balance, reset_ms) = (bucket.balance(), bucket.reset_ms());
        Level { bucket: ask.bucket, limit: ask.limit, balance, reset_ms }
    }

    fn take(&mut self, ask: &Ask, now_ms: u64) -> Result<(), Why> {
        // Not worth a place.
        if ask.amount > ask.limit {
            return Err(Why::TooLarge);
        }
        self.bucket(ask.bucket, ask.limit, now_ms).ok_or(Why::TableFull)?.take(ask.amount)
    }

    fn charge(&mut self, ask: &Ask, now_ms: u64) {
        if let Some(bucket) = self.bucket(ask.bucket, ask.limit, now_ms) {
            bucket.charge(ask.amount);
        }
    }

    fn give_back(&mut self, id: BucketId, amount: u64) {
        // One that is not known is full.
        if let Some(bucket) = self.table.get_mut(&id) {
            bucket.give_back(amount);
            if bucket.is_full() {
                self.table.remove(&id);
            }
        }
    }

    /// The bucket, brought to `now_ms`; `None` if it is new and there is no room.
    fn bucket(&mut self, id: BucketId, limit: u64, now_ms: u64) -> Option<&mut Bucket> {
        if !self.table.contains_key(&id) && self.table.len() >= self.next_sweep {
            let is_full = self.table.len() >= self.most;
            if !is_full || now_ms.abs_diff(self.swept_ms) >= SWEEP_PAUSE_MS {
                self.forget_full(now_ms);
            }
            if self.table.len() >= self.most {
                return None;
            }
        }
        let bucket = self.table.entry(id).or_insert_with(|| Bucket::new(id.kind(), limit, now_ms));
        bucket.advance(limit, now_ms);
        Some(bucket)
    }

    /// Each sweep is paid for by as many new buckets as it leaves old ones.
    fn forget_full(&mut self, now_ms: u64) {
        self.table.retain(|_, bucket| {
            bucket.advance(bucket.limit(), now_ms);
            !bucket.is_full()
        });
        self.swept_ms = now_ms;
        let twice = self.table.len().saturating_mul(2);
        self.next_sweep = twice.max(FIRST_SWEEP).min(self.most);
    }
}
