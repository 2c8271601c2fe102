//! The last minute: tenants' tokens, and how long requests waited in each band.
//!
//! By when the agent got a record: after it was away, what filters kept for it counts as of now.

use super::bounded;
use crate::config::objects::MAX_TENANTS;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use warmroute_shared_state::tenant_status::OTHER;
use warmroute_shared_state::usage_record::{EndCause, FlowOutcome, UsageRecord};

/// Length of a slot, in ms.
const SLOT_MS: u64 = 5000;
/// Slots of the window: a minute, of which the last slot has just begun.
const SLOTS: u64 = 12;
/// Bands that are told apart, of a slot and of the whole; tenants are as many as there may be. The rest is `other`.
const MAX_BANDS: usize = 256;

/// A band: its pool, and its priority (`None`: several).
pub type Band = (String, Option<i32>);

/// How many requests waited how long, in ms: exact below 64 ms, above it rounded down by less than one part in 32.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waits(BTreeMap<u64, u64>);

impl Waits {
    fn add(&mut self, ms: u64, count: u64) {
        let lost_bits = 58u32.saturating_sub(ms.leading_zeros());
        let sum = self.0.entry(ms >> lost_bits << lost_bits).or_default();
        *sum = sum.saturating_add(count);
    }

    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// How long those waited at most of whom so many percent waited no longer; 0 if nobody did.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> u64 {
        let rank = self.count().saturating_mul(percent).div_ceil(100);
        let mut seen = 0u64;
        for (ms, count) in &self.0 {
            seen = seen.saturating_add(*count);
            if seen >= rank {
                return *ms;
            }
        }
        0
    }
}

/// What a time had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    /// Prompt and output tokens by tenant.
    pub tokens: BTreeMap<String, u64>,
    /// Waits of the requests that flow control let go, by band.
    pub waits: BTreeMap<Band, Waits>,
}

impl Window {
    fn add(&mut self, record: &UsageRecord) {
        if record.cause != EndCause::Rejected {
            let tokens = record.input_tokens.saturating_add(record.output_tokens);
            self.add_tokens(&record.tenant, tokens);
        }
        if record.flow == Some(FlowOutcome::Dispatched) {
            let band = (record.pool.clone(), Some(record.priority));
            self.waits_of(band).add(record.queue_ms, 1);
        }
    }

    fn add_tokens(&mut self, tenant: &str, tokens: u64) {
        let own = tenant.to_owned();
        let tenant = bounded(&self.tokens, MAX_TENANTS, own, || OTHER.to_owned());
        let sum = self.tokens.entry(tenant).or_default();
        *sum = sum.saturating_add(tokens);
    }

    fn waits_of(&mut self, band: Band) -> &mut Waits {
        let band = bounded(&self.waits, MAX_BANDS, band, || (OTHER.to_owned(), None));
        self.waits.entry(band).or_default()
    }

    /// Each tenant's part of all tokens; none if there were no tokens.
    pub fn shares(&self) -> impl Iterator<Item = (&str, f64)> {
        let all = self.tokens.values().fold(0u64, |all, tokens| all.saturating_add(*tokens));
        let tokens = self.tokens.iter().filter(move |_| all > 0);
        tokens.map(move |(tenant, tokens)| (tenant.as_str(), *tokens as f64 / all as f64))
    }
}

/// The slots of the last minute, the oldest first, each with its number since 1970.
#[derive(Debug, Default)]
pub struct Recent(Mutex<VecDeque<(u64, Window)>>);

impl Recent {
    /// Adds a record that came now.
    pub fn add(&self, record: &UsageRecord, now_ms: u64) {
        let number = now_ms / SLOT_MS;
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock was set back.
        slots.retain(|(slot, _)| *slot <= number);
        if slots.back().is_none_or(|(last, _)| *last < number) {
            slots.push_back((number, Window::default()));
            if slots.len() as u64 > SLOTS {
                slots.pop_front();
            }
        }
        if let Some((_, slot)) = slots.back_mut() {
            slot.add(record);
        }
    }

    /// The last minute.
    #[must_use]
    pub fn window(&self, now_ms: u64) -> Window {
        let number = now_ms / SLOT_MS;
        let slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = Window::default();
        for (_, slot) in slots.iter().filter(|(slot, _)| number.abs_diff(*slot) < SLOTS) {
            for (tenant, tokens) in &slot.tokens {
                sum.add_tokens(tenant, *tokens);
            }
            for (band, waits) in &slot.waits {
                let sum = sum.waits_of(band.clone());
                waits.0.iter().for_each(|(ms, count)| sum.add(*ms, *count));
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::record;

    fn waited(priority: i32, queue_ms: u64) -> UsageRecord {
        let (pool, flow) = ("p".to_owned(), Some(FlowOutcome::Dispatched));
        UsageRecord { pool, priority, queue_ms, flow, ..record(1) }
    }

    fn of(tenant: &str, input_tokens: u64, output_tokens: u64) -> UsageRecord {
        let tenant = tenant.to_owned();
        UsageRecord { tenant, input_tokens, output_tokens, flow: None, ..record(1) }
    }

    #[test]
    fn percentiles_are_of_each_band() {
        let recent = Recent::default();
        for ms in 1..=50 {
            recent.add(&waited(0, ms), 60_000);
        }
        for ms in [1000, 0, 1_000_000] {
            recent.add(&waited(-1, ms), 60_000);
        }
        let expired = Some(FlowOutcome::EvictedTTL);
        recent.add(&UsageRecord { flow: expired, ..waited(0, 9000) }, 60_000);
        recent.add(&UsageRecord { flow: None, ..waited(7, 1) }, 60_000);
        let waits = recent.window(60_000).waits;
        let figures = |priority: i32| {
            let waits = &waits[&("p".to_owned(), Some(priority))];
            (waits.count(), [50, 95, 99].map(|percent| waits.percentile(percent)))
        };
        assert_eq!(waits.len(), 2);
        assert_eq!(figures(0), (50, [25, 48, 50]));
        // 61 * 2^14 is the next below a million.
        assert_eq!(figures(-1), (3, [992, 999_424, 999_424]));
        assert_eq!(Waits::default().percentile(99), 0);
    }

    #[test]
    fn what_is_older_than_a_minute_is_forgotten() {
        let recent = Recent::default();
        for (tenant, at_ms) in [("old", 4999), ("a", 5000), ("a", 64_000), ("b", 64_999)] {
            recent.add(&of(tenant, 30, 10), at_ms);
        }
        recent.add(&UsageRecord { cause: EndCause::Rejected, ..of("refused", 1, 1) }, 64_999);
        let window = recent.window(64_999);
        assert_eq!(window.tokens, BTreeMap::from([("a".to_owned(), 80), ("b".to_owned(), 40)]));
        let shares: Vec<_> = window.shares().collect();
        assert_eq!(shares, [("a", 2.0 / 3.0), ("b", 1.0 / 3.0)]);
        assert_eq!(recent.window(200_000), Window::default());
        assert_eq!(Window::default().shares().count(), 0);
    }

    #[test]
    fn a_clock_that_is_set_back_and_many_names_take_bounded_room() {
        let recent = Recent::default();
        for at in (0..100).chain(0..50) {
            recent.add(&of("a", 1, 0), at * SLOT_MS);
        }
        assert_eq!(recent.0.lock().unwrap().len() as u64, SLOTS);
        assert_eq!(recent.window(49 * SLOT_MS).tokens["a"], SLOTS);
        // Two slots with names of their own, each of which has room for its own.
        for (slot, tenants, bands) in [(60, 0..9000, 0..150), (61, 9000..18_000, 150..300)] {
            tenants.for_each(|n| recent.add(&of(&format!("t{n}"), 1, 0), slot * SLOT_MS));
            bands.for_each(|n| recent.add(&waited(n, 1), slot * SLOT_MS));
        }
        let Window { tokens, waits } = recent.window(61 * SLOT_MS);
        // The tenant of those that waited has a room, too.
        let others = 18_000 - (MAX_TENANTS as u64 - 1);
        assert_eq!((tokens.len(), tokens[OTHER]), (MAX_TENANTS + 1, others));
        assert_eq!(waits.len(), MAX_BANDS + 1);
        assert_eq!(waits.values().map(Waits::count).sum::<u64>(), 300);
    }
}
