//! One bucket: how much of a limit is used, exactly, however long it runs.

use super::bucket_id::Kind;

/// Parts of a token (or request). A limit of `n` a minute gives back exactly `n` parts each ms: no rounding, and no
/// remainder to carry.
const PARTS: u64 = 60_000;

/// A clock that is set back by more than this is believed; less is the difference of two readers.
const SET_BACK_MS: u64 = 1000;

/// When a place among those at once will be free can't be known.
const UNKNOWN_RETRY_MS: u64 = 1000;

/// Why a bucket does not give what is asked. Of several reasons the greatest counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// Not now.
    Short {
        /// When it could, if nobody else takes from it; a guess where time does not fill it.
        retry_after_ms: u64,
    },
    /// The table of buckets is full.
    TableFull,
    /// Never: it is more than the limit.
    TooLarge,
}

/// How much of a limit is used. What is used is kept, not what is left: if the limit changes, nothing is won or lost,
/// and a limit that is lowered below what is used counts as overdrawn until time makes up for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    kind: Kind,
    limit: u64,
    /// In parts. More than the limit: overdrawn by what was settled.
    used: u64,
    at_ms: u64,
}

impl Bucket {
    /// A bucket of which nothing is used.
    #[must_use]
    pub fn new(kind: Kind, limit: u64, now_ms: u64) -> Self {
        Self { kind, limit, used: 0, at_ms: now_ms }
    }

    /// A bucket with this balance at `at_ms`.
    #[must_use]
    pub fn with_balance(kind: Kind, limit: u64, balance: i64, at_ms: u64) -> Self {
        let used = match u64::try_from(balance) {
            Ok(left) => limit.saturating_sub(left),
            Err(_) => limit.saturating_add(balance.unsigned_abs()),
        };
        Self { kind, limit, used: parts(used), at_ms }
    }

    /// Its limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Brings it to `now_ms`, from when on its limit is `limit`.
    pub fn advance(&mut self, limit: u64, now_ms: u64) {
        if self.kind.refills() {
            let gained = now_ms.saturating_sub(self.at_ms).saturating_mul(self.limit);
            self.used = self.used.saturating_sub(gained);
        }
        if now_ms > self.at_ms || self.at_ms.saturating_sub(now_ms) > SET_BACK_MS {
            self.at_ms = now_ms;
        }
        self.limit = limit;
    }

    /// Takes `amount`, or nothing.
    ///
    /// # Errors
    /// If there is not as much left.
    pub fn take(&mut self, amount: u64) -> Result<(), Why> {
        if amount > self.limit {
            return Err(Why::TooLarge);
        }
        let after = self.used.saturating_add(parts(amount));
        let over = after.saturating_sub(self.capacity());
        if over == 0 {
            self.used = after;
            return Ok(());
        }
        let retry_after_ms =
            if self.kind.refills() { over.div_ceil(self.limit.max(1)) } else { UNKNOWN_RETRY_MS };
        Err(Why::Short { retry_after_ms })
    }

    /// Takes `amount`, even if that overdraws it.
    pub fn charge(&mut self, amount: u64) {
        self.used = self.used.saturating_add(parts(amount));
    }

    /// Gives `amount` back; it never holds more than its limit.
    pub fn give_back(&mut self, amount: u64) {
        self.used = self.used.saturating_sub(parts(amount));
    }

    /// What is left, rounded down; below 0 if it is overdrawn.
    #[must_use]
    pub fn balance(&self) -> i64 {
        let signed = |parts: u64| i64::try_from(parts).unwrap_or(i64::MAX);
        let left = signed(self.capacity()).saturating_sub(signed(self.used));
        left.div_euclid(PARTS.cast_signed())
    }

    /// In how many ms all of it is back, if nobody takes from it; 0 where time does not fill it.
    #[must_use]
    pub fn reset_ms(&self) -> u64 {
        if self.kind.refills() { self.used.div_ceil(self.limit.max(1)) } else { 0 }
    }

    /// Whether nothing is used: then it need not be remembered.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.used == 0
    }

    fn capacity(&self) -> u64 {
        self.limit.saturating_mul(PARTS)
    }
}

fn parts(amount: u64) -> u64 {
    amount.saturating_mul(PARTS)
}
