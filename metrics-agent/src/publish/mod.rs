//! What the agent tells Envoy: the stream's table, hosts and clusters.
//!
//! [`table`], [`held`] and [`snapshot`] are the stream, [`membership`] the order in which endpoints come and
//! go, [`discovery`] Envoy's clusters and their hosts. [`Publisher`] is what the servers read and the fleet writes.

mod block_list;
pub mod clusters;
pub mod discovery;
pub mod eds;
pub mod held;
pub mod membership;
pub mod snapshot;
pub mod table;

use discovery::Discovery;
use snapshot::Snapshots;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use table::{Delta, Table};
use tokio::sync::watch;
use warmroute_shared_state::stream::{Page, PageKind, Position};

/// How long a poll is held back when all its news are loads. At many endpoints a load comes every
/// half millisecond; this bounds what each Envoy's main thread has to parse to 50 pages a second.
pub const LOAD_BATCH: Duration = Duration::from_millis(20);

/// One poll of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Poll {
    /// Where the reader stands; `None` if nowhere yet.
    pub position: Option<Position>,
    /// Page of the snapshot at that position; 0 asks for what is new.
    pub page: u32,
}

/// What a poll gets now.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// This page.
    Page(Page),
    /// A page of loads only, which may be held back a little.
    Loads(Page),
    /// Nothing: the reader is up to date.
    Nothing(Page),
    /// There is no first full table yet.
    NotReady,
}

struct State {
    ready: bool,
    table: Table,
    snapshots: Snapshots,
    discovery: Discovery,
}

/// The published state, shared by the fleet and the servers.
pub struct Publisher {
    state: Mutex<State>,
    news: watch::Sender<u64>,
    changes: watch::Sender<u64>,
}

impl Publisher {
    /// Nothing published yet.
    #[must_use]
    pub fn new(epoch: u64) -> Self {
        let (table, snapshots) = (Table::new(epoch), Snapshots::default());
        let state = State { ready: false, table, snapshots, discovery: Discovery::default() };
        let (news, changes) = (watch::Sender::new(0), watch::Sender::new(0));
        Self { state: Mutex::new(state), news, changes }
    }

    /// Changes the table and wakes the readers that this concerns.
    pub fn update(&self, change: impl FnOnce(&mut Table)) {
        let (news, changed) = {
            let mut state = self.lock();
            let before = state.table.position().seq;
            change(&mut state.table);
            (state.table.position().seq > before, state.table.changed_since(before))
        };
        self.wake(news, changed);
    }

    /// There is a first full table: readers are served from now on.
    pub fn set_ready(&self) {
        let was = std::mem::replace(&mut self.lock().ready, true);
        self.wake(!was, !was);
    }

    /// Whether there was a first full table.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lock().ready
    }

    /// Sets what Envoy discovers.
    pub fn set_discovery(&self, discovery: Discovery) {
        self.lock().discovery = discovery;
    }

    /// What Envoy discovers.
    #[must_use]
    pub fn discovery(&self) -> Discovery {
        self.lock().discovery.clone()
    }

    /// Position of the table.
    #[must_use]
    pub fn position(&self) -> Position {
        self.lock().table.position()
    }

    /// What a reader gets at `now`.
    #[must_use]
    pub fn answer(&self, poll: Poll, now: Instant) -> Answer {
        let mut state = self.lock();
        let State { ready, table, snapshots, .. } = &mut *state;
        snapshots.forget_old(now);
        if !*ready {
            return Answer::NotReady;
        }
        let Some(position) = poll.position else {
            return Answer::Page(snapshots.first_page(table, now));
        };
        if poll.page > 0 {
            let kept = snapshots.page(position, poll.page, now);
            return Answer::Page(kept.unwrap_or_else(|| snapshots.first_page(table, now)));
        }
        match table.delta(position, now) {
            Delta::Page(page) if table.changed_since(position.seq) => Answer::Page(page),
            Delta::Page(page) => Answer::Loads(page),
            Delta::Nothing => {
                let kind = PageKind::Delta { from_seq: position.seq };
                Answer::Nothing(Page { position, kind, ops: Vec::new() })
            }
            Delta::OutOfReach => Answer::Page(snapshots.first_page(table, now)),
        }
    }

    /// Wakes on anything new.
    #[must_use]
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Wakes when endpoints come, change or go.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn wake(&self, news: bool, changed: bool) {
        if changed {
            self.changes.send_modify(|n| *n = n.wrapping_add(1));
        }
        if news {
            self.news.send_modify(|n| *n = n.wrapping_add(1));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held cannot leave half a change that matters: serve on.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
