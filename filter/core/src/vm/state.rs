//! All that one VM keeps: its replica, its requests, its row, and the applier's role if it has it.

use super::{
    Applier, ExpectationCounts, Flow, Follower, Keys, Lease, Message, PageOutcome, RowSlot,
    SharedStore, Told, create_keys,
};
use crate::inflight::{InFlight, Ledger, Totals};
use crate::scheduling::PoolStates;
use warmroute_shared_state::policy::scheduler::Scheduler;
use warmroute_shared_state::wire::WireError;

/// A VM that serves requests leaves the role to one that does not (the main thread's), if there is one.
const PATIENCE_MS: u64 = 500;

/// At the start, how long a worker's VM leaves the role to the main thread's.
const HEAD_START_MS: u64 = 150;

/// How often the lease is renewed.
const RENEW_MS: u64 = 300;

/// A row is not written again before that, but at ticks.
const ROW_MS: u64 = 2;

/// Frames in the ring: the applier publishes at its ticks, every 5 ms, so this is some seconds of changes. All
/// VMs of an Envoy must agree on it, so it is no setting.
const RING_SLOTS: usize = 512;

/// Sizes, from the plugin configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Endpoints beyond this are refused.
    pub max_endpoints: usize,
    /// Blocks that the prefix table holds at most, over all endpoints.
    pub max_blocks: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { max_endpoints: 256, max_blocks: 1_500_000 }
    }
}

/// State of one VM.
#[derive(Debug)]
pub struct VmState {
    pub(super) keys: Keys,
    settings: Settings,
    pub(super) follower: Follower,
    pub(super) ledger: Ledger,
    pub(super) row: RowSlot,
    pub(super) totals: Totals,
    totals_cas: u32,
    refreshed_ms: u64,
    ticks_fast: bool,
    pub(super) applier: Option<Applier>,
    renewed_ms: u64,
    reluctant: bool,
    first_tick_ms: u64,
    pub(super) serves: bool,
    pub(super) scheduler: Scheduler,
    pub(super) scheduling: PoolStates,
    pub(super) flow: Flow,
    pub(super) told: Told,
}

impl VmState {
    /// A VM incarnation that has seen nothing yet. `incarnation` must be unique and not 0.
    #[must_use]
    pub fn new(incarnation: u64, settings: Settings) -> Self {
        Self {
            keys: Keys::new(RING_SLOTS),
            settings,
            follower: Follower::default(),
            ledger: Ledger::new(incarnation),
            row: RowSlot::default(),
            totals: Totals::default(),
            totals_cas: 0,
            refreshed_ms: 0,
            ticks_fast: false,
            applier: None,
            renewed_ms: 0,
            reluctant: false,
            first_tick_ms: u64::MAX,
            serves: false,
            scheduler: Scheduler::default(),
            scheduling: PoolStates::default(),
            flow: Flow::new(incarnation),
            told: Told::default(),
        }
    }

    /// This VM had rather leave the applier's role to another one at the start: it is a worker's.
    #[must_use]
    pub fn reluctant(mut self) -> Self {
        self.reluctant = true;
        self
    }

    /// At configuration time: creates the keys and reads what is there. Takes no slot and no role: Envoy
    /// also configures a VM that it throws away at once.
    pub fn attach(&mut self, store: &dyn SharedStore) {
        create_keys(store, &self.keys);
        self.refresh(store);
    }

    /// The sizes in force from now on.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
        if let Some(applier) = &mut self.applier {
            applier.set_settings(settings);
        }
    }

    /// Who this VM is.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.ledger.incarnation()
    }

    /// What this VM knows.
    #[must_use]
    pub fn follower(&self) -> &Follower {
        &self.follower
    }

    /// Its own requests.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Its row's slot.
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        self.row.slot()
    }

    pub(super) fn max_blocks(&self) -> usize {
        self.settings.max_blocks
    }

    /// The requests of all workers, as this VM sees them.
    #[must_use]
    pub fn in_flight(&self) -> InFlight<'_> {
        InFlight { totals: &self.totals, own: &self.ledger }
    }

    /// Whether this VM is the applier.
    #[must_use]
    pub fn is_applier(&self) -> bool {
        self.applier.is_some()
    }

    /// The applier: endpoints that were refused because there are too many.
    #[must_use]
    pub fn refused_endpoints(&self) -> u64 {
        self.applier.as_ref().map_or(0, Applier::refused_endpoints)
    }

    /// The applier: how expectations ended since it took the role.
    #[must_use]
    pub fn expectation_counts(&self) -> ExpectationCounts {
        self.applier.as_ref().map(Applier::expectation_counts).unwrap_or_default()
    }

    /// When the events happened that this VM learned of since the last call, in ms since 1970: the oldest of each
    /// page of the agent's stream.
    pub fn take_told(&mut self) -> Vec<u64> {
        self.follower.take_told()
    }

    /// Brings replica and totals up to date for a request, if that was not done in this millisecond: others tell what they
    /// have every few milliseconds.
    pub fn refresh_at(&mut self, store: &dyn SharedStore, now_ms: u64) {
        if self.refreshed_ms != now_ms {
            self.refresh(store);
            self.refreshed_ms = now_ms;
        }
    }

    /// The same for what is decided before a request's body is there: what a VM that ticks fast saw at its last tick is good
    /// enough for that.
    pub fn refresh_if_idle(&mut self, store: &dyn SharedStore, now_ms: u64) {
        if !self.ticks_fast {
            self.refresh_at(store, now_ms);
        }
    }

    /// Brings replica and totals up to date: two reads if nothing is new.
    pub fn refresh(&mut self, store: &dyn SharedStore) {
        self.follower.sync(store, &self.keys);
        let policy = &self.follower.replica.policy;
        self.scheduling.follow(policy.revision(), policy.current());
        for (id, at_ms) in self.follower.take_scrapes() {
            self.ledger.scraped(id, at_ms);
        }
        if let Some((bytes, cas)) = store.get(&self.keys.totals)
            && cas != self.totals_cas
        {
            self.totals_cas = cas;
            if let Ok(totals) = Totals::decode(&bytes) {
                if let Some(row_seq) = totals.included(self.ledger.incarnation()) {
                    self.ledger.acknowledge(row_seq);
                }
                self.totals = totals;
            }
        }
    }

    /// This VM ticks every few milliseconds, or does not.
    pub fn set_ticks_fast(&mut self, ticks_fast: bool) {
        self.ticks_fast = ticks_fast;
    }

    /// Writes this VM's row if it changed or a heartbeat is due: after every event that touches the ledger. Who reads it
    /// does so every few milliseconds, so a row that was just written can wait for the next event or tick, if that is near.
    pub fn write_row(&mut self, store: &dyn SharedStore, now_ms: u64) {
        if !self.ticks_fast || !self.row.is_younger_than(ROW_MS, now_ms) {
            self.row.write(store, &self.keys, &self.ledger, now_ms);
        }
    }

    /// The regular work. Returns whether this VM is the applier afterwards.
    pub fn tick(&mut self, store: &dyn SharedStore, now_ms: u64) -> bool {
        self.first_tick_ms = self.first_tick_ms.min(now_ms);
        self.hold_role(store, now_ms);
        self.refresh(store);
        self.take_sessions(now_ms);
        self.row.write(store, &self.keys, &self.ledger, now_ms);
        if self.follower.replica.needs_sweep() {
            self.follower.replica.sweep_some();
        }
        self.publish(store, now_ms);
        self.tick_flow(store, now_ms);
        self.is_applier()
    }

    fn hold_role(&mut self, store: &dyn SharedStore, now_ms: u64) {
        let held = self.applier.is_some();
        if held && now_ms.saturating_sub(self.renewed_ms) < RENEW_MS && now_ms >= self.renewed_ms {
            return;
        }
        if !held && self.reluctant && now_ms < self.first_tick_ms.saturating_add(HEAD_START_MS) {
            return;
        }
        let patience = if self.serves && !held { PATIENCE_MS } else { 0 };
        if !Lease::take(store, &self.keys, self.incarnation(), now_ms, patience) {
            self.lose_role();
            return;
        }
        self.renewed_ms = now_ms;
        if !held {
            // Own picks that were never published must not pass for what every VM knows.
            self.follower.distrust();
            self.refresh(store);
            self.applier =
                Some(Applier::new(store, &self.keys, &self.follower, self.settings, now_ms));
        }
    }

    fn lose_role(&mut self) {
        if self.applier.take().is_some() {
            // It may hold operations that nobody else ever saw.
            self.follower.distrust();
        }
    }

    fn publish(&mut self, store: &dyn SharedStore, now_ms: u64) {
        let incarnation = self.incarnation();
        let Some(applier) = &mut self.applier else { return };
        applier.add_up_rows(store, &self.keys, now_ms);
        applier.settle_expectations(&mut self.follower, now_ms);
        if applier.publish(store, &self.keys, incarnation, &mut self.follower).is_err() {
            self.lose_role();
        }
    }

    /// If this VM is the applier, takes its own message at once; the next tick publishes. What it had entered
    /// into its table before would look to the applier as if everybody knew it.
    pub(super) fn applies(&mut self, message: &Message<'_>, now_ms: u64) -> bool {
        let Some(applier) = &mut self.applier else { return false };
        applier.on_message(&mut self.follower, message, now_ms);
        true
    }

    /// The applier: messages of all VMs, as many as there are.
    pub fn on_messages<'a>(
        &mut self,
        store: &dyn SharedStore,
        messages: impl Iterator<Item = Message<'a>>,
        now_ms: u64,
    ) {
        if self.applier.is_none() {
            return;
        }
        for message in messages {
            match (&message, &mut self.applier) {
                (Message::Flow { slot, report }, _) => self.on_report(*slot, report, now_ms),
                (_, Some(applier)) => applier.on_message(&mut self.follower, &message, now_ms),
                (_, None) => {}
            }
        }
        self.pump(now_ms);
        let Some(applier) = &mut self.applier else { return };
        // Loads at once. Blocks go out with the next tick, gathered into few frames: intents stand in until then.
        applier.add_up_rows(store, &self.keys, now_ms);
    }

    /// The applier: path of the next request to the agent.
    #[must_use]
    pub fn poll_path(&self, wait_ms: u64) -> Option<String> {
        self.applier.as_ref().map(|applier| applier.poll_path(&self.follower.replica, wait_ms))
    }

    /// The applier: an answer of the agent.
    ///
    /// # Errors
    /// If the page cannot be read.
    pub fn on_page(
        &mut self,
        store: &dyn SharedStore,
        bytes: &[u8],
        now_ms: u64,
    ) -> Result<PageOutcome, WireError> {
        let Some(applier) = &mut self.applier else { return Ok(PageOutcome::Ignored) };
        let outcome = applier.on_page(&mut self.follower, bytes, now_ms)?;
        self.publish(store, now_ms);
        self.flow_learns(now_ms);
        Ok(outcome)
    }
}
