//! Records of finished requests: stored once in an SQLite file, counted, and added up.
//!
//! - [`store`]: the file, its schema, what is kept;
//! - [`writer`]: the one thread that writes, with many batches in a commit;
//! - [`metrics`]: llm-d's request metrics, from records; [`tally`]: tokens by tenant since the start; [`drops`]: what was
//!   refused, and why; [`recent`]: the last minute;
//! - [`report`]: totals and cost out of the file, also while the agent writes;
//! - [`command`]: `warmroute-agent usage`; [`place`]: which file.
//!
//! What a crash can lose, and why it is SQLite, stands in `docs/decisions/ledger.md`.

pub mod command;
pub mod drops;
pub mod metrics;
pub mod place;
pub mod recent;
pub mod report;
pub mod store;
pub mod tally;
pub mod writer;

#[cfg(test)]
pub(crate) mod tests;

use drops::Drops;
use metrics::{BatchResult, LedgerMetrics};
use recent::Recent;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tally::Tally;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use warmroute_shared_state::tenant_status::OTHER;
use warmroute_shared_state::usage_record::UsageRecord;
use warmroute_shared_state::usage_record::batch::Batch;
use writer::{Jobs, Stored};

/// The key of a row of its own while there is room, or it has one already; else the key of what the rest shares.
pub(crate) fn bounded<K: Ord, V>(
    rows: &BTreeMap<K, V>,
    limit: usize,
    own: K,
    other: impl FnOnce() -> K,
) -> K {
    if rows.len() < limit || rows.contains_key(&own) { own } else { other() }
}

/// The key of what a tenant that has a row, or else all of them, have beyond what there is room for.
fn other_of<V>(rows: &BTreeMap<(String, String), V>, tenant: &str) -> (String, String) {
    let from = (tenant.to_owned(), String::new());
    let has_row = rows.range(from..).next().is_some_and(|((found, _), _)| found == tenant);
    (if has_row { tenant } else { OTHER }.to_owned(), OTHER.to_owned())
}

/// Batches that are read or wait for a commit at once; a further one is to come back.
const BATCHES_AT_ONCE: usize = 16;

/// Where records go, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The file; `None`: records are counted and not stored.
    pub file: Option<PathBuf>,
    /// Whether the operator named the file: then it is opened at the start, and not with the first record.
    pub named: bool,
    /// Age from which records are removed.
    pub keep: Duration,
    /// Time between two looks for such records.
    pub look_every: Duration,
}

impl Settings {
    /// No file: records are counted, one that is sent again is counted again.
    #[must_use]
    pub fn off() -> Self {
        Self { file: None, named: false, keep: place::KEEP, look_every: place::LOOK_EVERY }
    }
}

/// Why a batch was not taken. The sender keeps it and tries again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// Too many are under way.
    #[error("too many batches at once; send it again later")]
    Busy,
    /// The file cannot be written.
    #[error("the ledger cannot be written, see the agent's log; send it again later")]
    Failed,
}

/// What counts records, shared with the thread that writes them.
#[derive(Debug, Default)]
pub struct Counted {
    /// llm-d's metrics and the ledger's own.
    pub metrics: LedgerMetrics,
    /// Tokens by tenant and model.
    pub tally: Tally,
    /// Drops by tenant and reason.
    pub drops: Drops,
    /// The last minute.
    pub recent: Recent,
}

impl Counted {
    /// Counts a record that was not counted before and came now.
    fn finished(&self, record: &UsageRecord, now_ms: u64) {
        self.metrics.finished(record);
        self.tally.add(record);
        self.drops.add(record);
        self.recent.add(record, now_ms);
    }

    /// The exposition of what is counted since the start, without an end mark.
    ///
    /// # Errors
    /// If the text could not be written, which a string does not do.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        self.metrics.encode(&self.tally, &self.drops)
    }
}

/// The running ledger.
pub struct Ledger {
    settings: Settings,
    counted: Arc<Counted>,
    jobs: Jobs,
    places: Semaphore,
    reports: Arc<Semaphore>,
}

/// The right to hand over a batch; taken before its body is read, so that memory is bounded.
pub struct Place<'a>(#[expect(dead_code, reason = "freed when dropped")] SemaphorePermit<'a>);

impl Ledger {
    /// Starts the writing thread. `clock` tells ms since 1970.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(
        settings: Settings,
        clock: impl Fn() -> u64 + Send + 'static,
    ) -> Result<Self, std::io::Error> {
        let counted = Arc::new(Counted::default());
        let jobs = writer::start(settings.clone(), Arc::clone(&counted), clock)?;
        Ok(Self {
            settings,
            counted,
            jobs,
            places: Semaphore::new(BATCHES_AT_ONCE),
            reports: Arc::new(Semaphore::new(1)),
        })
    }

    /// A place for one batch.
    ///
    /// # Errors
    /// If there is none.
    pub fn place(&self) -> Result<Place<'_>, NotTaken> {
        let busy = |_| {
            self.counted.metrics.batch(BatchResult::busy);
            NotTaken::Busy
        };
        self.places.try_acquire().map(Place).map_err(busy)
    }

    /// Stores a batch; comes back when it is on the disk.
    ///
    /// # Errors
    /// If it is not stored.
    pub async fn take(&self, _place: &Place<'_>, batch: Batch) -> Result<Stored, NotTaken> {
        let taken = self.jobs.store(batch.records).await;
        let metrics = &self.counted.metrics;
        metrics.batch(match taken {
            Ok(_) => BatchResult::stored,
            Err(NotTaken::Busy) => BatchResult::busy,
            Err(NotTaken::Failed) => BatchResult::failed,
        });
        taken
    }

    /// The turn to read the file for a report; whoever reads holds it until it is done, also if nobody waits for that
    /// any more.
    ///
    /// # Errors
    /// Never, as turns are not closed.
    pub async fn report_turn(&self) -> Result<OwnedSemaphorePermit, AcquireError> {
        Arc::clone(&self.reports).acquire_owned().await
    }

    /// What was counted.
    #[must_use]
    pub fn counted(&self) -> &Counted {
        &self.counted
    }

    /// The file, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&PathBuf> {
        self.settings.file.as_ref()
    }

    /// Commits what waits and closes the file.
    pub async fn stop(&self) {
        self.jobs.stop().await;
    }
}
