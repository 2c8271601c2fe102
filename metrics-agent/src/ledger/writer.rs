//! The thread that writes the ledger: everything that waits goes into one commit.
//!
//! A file that cannot be written is counted and logged once; batches are refused until it can be
//! written again, and whoever sent them sends them again.

use super::metrics::RecordResult;
use super::store::{Store, StoreError};
use super::{Counted, NotTaken, Settings};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::{info, warn};
use warmroute_shared_state::usage_record::UsageRecord;

/// Batches that wait for the thread.
const QUEUE: usize = 64;
/// Records after which a commit waits for no more.
const COMMIT_RECORDS: usize = 32_768;
/// Records that are removed in a step: some 50 ms of writing.
const PRUNE_STEP: u32 = 5000;
/// Pause before the next step, while there is more to remove.
const PRUNE_PAUSE: Duration = Duration::from_millis(500);

/// What became of a batch's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stored {
    /// Not there before.
    pub fresh: u64,
    /// There already.
    pub duplicate: u64,
}

type Answer = oneshot::Sender<Result<Stored, NotTaken>>;

enum Job {
    Store(Vec<UsageRecord>, Answer),
    Stop(oneshot::Sender<()>),
}

/// The way to the thread.
#[derive(Debug)]
pub struct Jobs(SyncSender<Job>);

impl Jobs {
    /// Stores records; comes back when they are on the disk.
    pub(super) async fn store(&self, records: Vec<UsageRecord>) -> Result<Stored, NotTaken> {
        let (to, answer) = oneshot::channel();
        self.0.try_send(Job::Store(records, to)).map_err(|error| match error {
            TrySendError::Full(_) => NotTaken::Busy,
            TrySendError::Disconnected(_) => NotTaken::Failed,
        })?;
        answer.await.unwrap_or(Err(NotTaken::Failed))
    }

    /// Ends the thread after what it has begun.
    pub(super) async fn stop(&self) {
        let (to, answer) = oneshot::channel();
        let mut job = Job::Stop(to);
        // Full for a moment at most: the thread is at work.
        while let Err(TrySendError::Full(back)) = self.0.try_send(job) {
            job = back;
            tokio::task::yield_now().await;
        }
        let _ = answer.await;
    }
}

/// Starts the thread.
pub(super) fn start(
    settings: Settings,
    counted: Arc<Counted>,
    clock: impl Fn() -> u64 + Send + 'static,
) -> Result<Jobs, std::io::Error> {
    let (to, jobs) = sync_channel(QUEUE);
    std::thread::Builder::new().name("ledger".into()).spawn(move || {
        Writer { file: File::new(&settings), settings, counted }.run(&jobs, &clock);
    })?;
    Ok(Jobs(to))
}

struct Writer {
    settings: Settings,
    file: File,
    counted: Arc<Counted>,
}

impl Writer {
    fn run(mut self, jobs: &Receiver<Job>, clock: &dyn Fn() -> u64) {
        // The first look is at once: an agent may never run for long.
        let mut next_prune = Instant::now();
        loop {
            // Also while batches come without a pause.
            let wait = next_prune.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                next_prune = Instant::now() + self.prune(clock());
            }
            match jobs.recv_timeout(wait) {
                Ok(Job::Store(records, to)) => {
                    if let Some(stopped) = self.commit(jobs, (records, to), clock()) {
                        drop(self.file);
                        let _ = stopped.send(());
                        return;
                    }
                }
                Ok(Job::Stop(stopped)) => {
                    drop(self.file);
                    let _ = stopped.send(());
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Commits a batch and whatever waits behind it; gives back a wish to stop among that.
    fn commit(
        &mut self,
        jobs: &Receiver<Job>,
        first: (Vec<UsageRecord>, Answer),
        now_ms: u64,
    ) -> Option<oneshot::Sender<()>> {
        let mut records = first.0.len();
        let mut batches = vec![first];
        let mut stop = None;
        while records < COMMIT_RECORDS {
            match jobs.try_recv() {
                Ok(Job::Store(more, to)) => {
                    records = records.saturating_add(more.len());
                    batches.push((more, to));
                }
                Ok(Job::Stop(to)) => {
                    stop = Some(to);
                    break;
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        let all = || batches.iter().flat_map(|(records, _)| records);
        let fresh = match self.file.store() {
            Ok(None) => Ok(all().map(|_| true).collect()),
            Ok(Some(store)) => store.insert(all()),
            Err(error) => Err(error),
        };
        // Whoever asked may have gone; what it sent is stored all the same.
        match fresh {
            Ok(fresh) => {
                self.file.worked();
                let mut fresh = fresh.into_iter();
                for (records, to) in batches {
                    let _ = to.send(Ok(self.count(&records, &mut fresh, now_ms)));
                }
            }
            Err(error) => {
                self.file.failed(&error);
                for (_, to) in batches {
                    let _ = to.send(Err(NotTaken::Failed));
                }
            }
        }
        stop
    }

    fn count(
        &self,
        records: &[UsageRecord],
        fresh: &mut impl Iterator<Item = bool>,
        now_ms: u64,
    ) -> Stored {
        let mut stored = Stored::default();
        for (record, fresh) in records.iter().zip(fresh) {
            if fresh {
                stored.fresh = stored.fresh.saturating_add(1);
                self.counted.finished(record, now_ms);
            } else {
                stored.duplicate = stored.duplicate.saturating_add(1);
            }
        }
        self.counted.metrics.records(RecordResult::stored, stored.fresh);
        self.counted.metrics.records(RecordResult::duplicate, stored.duplicate);
        stored
    }

    /// Removes some of what is too old; time until the next look.
    fn prune(&mut self, now_ms: u64) -> Duration {
        let keep = u64::try_from(self.settings.keep.as_millis()).unwrap_or(u64::MAX);
        let later = self.settings.look_every;
        let Some(store) = self.file.opened() else { return later };
        match store.prune(now_ms.saturating_sub(keep), PRUNE_STEP) {
            Ok(removed) => {
                self.counted.metrics.pruned(removed as u64);
                if removed < PRUNE_STEP as usize { later } else { PRUNE_PAUSE.min(later) }
            }
            Err(error) => {
                self.file.failed(&error);
                later
            }
        }
    }
}

/// The file, opened when it is needed and again after a failure.
struct File {
    path: Option<Box<Path>>,
    store: Option<Store>,
    failing: bool,
}

impl File {
    fn new(settings: &Settings) -> Self {
        let path = settings.file.as_deref().map(Box::from);
        let mut file = Self { path, store: None, failing: false };
        // One that is there already may have records that are too old.
        let there = settings.file.as_deref().is_some_and(Path::exists);
        if (settings.named || there)
            && let Err(error) = file.store()
        {
            file.failed(&error);
        }
        file
    }

    /// The store; `None` if records are not to be stored.
    fn store(&mut self) -> Result<Option<&mut Store>, StoreError> {
        let Some(path) = &self.path else { return Ok(None) };
        if self.store.is_none() {
            self.store = Some(Store::open(path)?);
            info!(file = %path.display(), "the ledger is open");
        }
        Ok(self.store.as_mut())
    }

    fn opened(&mut self) -> Option<&mut Store> {
        self.store.as_mut()
    }

    fn failed(&mut self, error: &StoreError) {
        if !self.failing {
            warn!(%error, "records are not stored, whoever sends them tries again");
        }
        self.failing = true;
        // A file that was moved away or made anew is found again.
        self.store = None;
    }

    fn worked(&mut self) {
        if self.failing {
            info!("records are stored again");
        }
        self.failing = false;
    }
}
