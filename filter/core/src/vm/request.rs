//! A request's way through the state: chosen, answered, moved, finished.

use super::belief::{belief_of, beliefs};
use super::{Belief, Intent, IntentRing, Message, SharedStore, VmState, shares};
use crate::inflight::{Flight, InFlight};
use crate::replica::{EndpointState, Models};
use crate::scheduling::{Candidate, Decision, PickReason, Request, schedule};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::routing::Pool;
use warmroute_shared_state::prefix::BLOCK_BYTES;
use warmroute_shared_state::table_op::{Column, HashList};

/// How often a pick is thought over because another worker picked in the same moment.
const INTENT_TRIES: usize = 5;

/// How long an intent counts for an endpoint whose events tell: by then the applier's frames carry the pick as an
/// expectation, which ends when the engine evicts again; an intent cannot.
const TOLD_INTENT_MS: u64 = 100;

/// How a prompt's bytes were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptSource {
    /// Nothing is known of the model: the approximate stream.
    #[default]
    Approximate,
    /// As the engine renders them.
    Rendered,
    /// The model is known, but these could not be rendered: the approximate stream.
    Unrendered,
}

impl PromptSource {
    /// One word, for logs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approximate => "approximate",
            Self::Rendered => "rendered",
            Self::Unrendered => "unrendered",
        }
    }
}

/// A prompt as the scheduler sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Which byte stream it is: 0 = the approximate one, else that of a model.
    pub stream: u64,
    /// How it was found.
    pub source: PromptSource,
    /// Chain hashes of its whole blocks.
    pub chain: Vec<u64>,
    /// Its bytes, the tail that fills no block included.
    pub bytes: u64,
}

impl Prompt {
    /// What the endpoint's engine can cache of a rendered prompt: it keeps whole blocks of its own, so what lies in
    /// the last, unfinished one is never told. Of the approximate stream, all.
    fn cacheable(&self, endpoint: &EndpointState) -> &[u64] {
        if !endpoint.tells(self.stream) {
            return &self.chain;
        }
        // Twice the mean: the last tokens may be longer than others.
        let unfinished = endpoint.record.block_tokens.saturating_sub(1).saturating_mul(2);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let unfinished = (unfinished as f32 * endpoint.bytes_per_token) as u64;
        let blocks = self.bytes.saturating_sub(unfinished).div_euclid(BLOCK_BYTES as u64);
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX).min(self.chain.len());
        self.chain.get(..blocks).unwrap_or_default()
    }
}

/// Whom a request may go to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ask<'a> {
    /// Endpoints of this pool; `None` = of all.
    pub pool: Option<&'a Pool>,
    /// Only endpoints with one of these IP addresses (`ip` or `ip:port`; the port does not count).
    pub subset: Option<&'a [String]>,
    /// Only to one that holds some of the prompt.
    pub only_if_cached: bool,
}

impl Ask<'_> {
    fn admits(&self, endpoint: &EndpointState) -> bool {
        let record = &endpoint.record;
        let in_pool = |pool: &Pool| record.pools.iter().any(|name| *name == pool.name);
        let in_subset = |subset: &[String]| {
            subset.iter().any(|wanted| host_of(wanted) == host_of(&record.address))
        };
        self.pool.is_none_or(in_pool) && self.subset.is_none_or(in_subset)
    }
}

/// What stands before the last colon, or all of it.
fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// What became of a request for an endpoint.
#[derive(Debug)]
pub enum Choice {
    /// It goes here.
    Routed(Box<Routed>),
    /// There is a table, and nobody in it can be picked.
    NoEndpoint,
    /// The agent has never been heard.
    NoTable,
    /// Nobody holds any of the prompt, and it was asked for somebody who does.
    NotCached,
}

/// A request on its way. It must end in [`VmState::finish`].
#[derive(Debug)]
pub struct Routed {
    flight: Flight,
    place: Place,
    prompt: Prompt,
    /// `ip:port`, best first: the pick and its fallbacks.
    pub destinations: Vec<String>,
    /// What the endpoint was believed to hold.
    pub belief: Belief,
    /// Why this endpoint.
    pub reason: PickReason,
}

/// Where a pick is remembered.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The endpoint's held column.
    held: Column,
    /// Its expected column, if its events will tell of this prompt.
    expected: Option<Column>,
    /// Leading blocks that need not be remembered.
    known: usize,
    /// Leading blocks that the engine can cache.
    cacheable: usize,
}

impl Place {
    fn of(endpoint: &EndpointState, prompt: &Prompt, belief: &Belief) -> Self {
        let columns = endpoint.columns;
        let told = endpoint.tells(prompt.stream);
        Self {
            held: columns.held,
            expected: told.then_some(columns.expected),
            // What stands for events is told anew each time: the order of use decides what is dropped.
            known: if told { belief.held } else { 0 },
            cacheable: prompt.cacheable(endpoint).len(),
        }
    }

    /// What is to be remembered of the prompt's chain.
    fn news<'a>(&self, prompt: &'a Prompt) -> Option<&'a [u64]> {
        prompt.chain.get(self.known..self.cacheable)
    }
}

impl Routed {
    /// The endpoint that is charged.
    #[must_use]
    pub fn endpoint(&self) -> EndpointId {
        self.flight.endpoint()
    }

    /// How the prompt's bytes were found.
    #[must_use]
    pub fn prompt_source(&self) -> PromptSource {
        self.prompt.source
    }
}

impl VmState {
    /// Picks an endpoint for the prompt, which is asked for once this VM is up to date: of so many bytes at most
    /// (what the largest engine has room for), what lies beyond being held by nobody. Charges the endpoint and remembers that it will hold the prompt. The second
    /// value is what to send to the applier.
    pub fn choose(
        &mut self,
        store: &dyn SharedStore,
        ask: &Ask<'_>,
        prompt: impl FnOnce(&Models, usize) -> Prompt,
        now_ms: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> (Choice, Option<Vec<u8>>) {
        self.serves = true;
        self.refresh(store);
        if !self.follower.replica.roster.ever_filled() {
            return (Choice::NoTable, None);
        }
        let room = self.longest_prompt();
        let prompt = prompt(&self.follower.replica.models, room);
        let Some((pick, belief)) = self.pick_against_others(store, ask, &prompt, now_ms, random)
        else {
            return (Choice::NoEndpoint, None);
        };
        if ask.only_if_cached && belief.blocks == 0 {
            return (Choice::NotCached, None);
        }
        let roster = &self.follower.replica.roster;
        let Some(endpoint) = pick.primary.ranked.first().and_then(|id| roster.get(*id)) else {
            return (Choice::NoEndpoint, None);
        };
        let destinations = pick
            .primary
            .ranked
            .iter()
            .filter_map(|id| roster.get(*id))
            .map(|e| e.record.address.clone())
            .collect();
        let flight = self.ledger.start(endpoint.record.id, belief.uncached_tokens(), now_ms);
        let place = Place::of(endpoint, &prompt, &belief);
        let room = shares::capacity(endpoint, roster.len(), self.max_blocks());
        let message = self.remember(place, room, &prompt, now_ms);
        self.write_row(store, now_ms);
        let routed = Routed { flight, place, prompt, destinations, belief, reason: pick.reason };
        (Choice::Routed(Box::new(routed)), message)
    }

    /// Picks, and makes the pick visible to the other workers before anybody else's; if another one was
    /// faster, its pick is taken into account and the choice made again.
    fn pick_against_others(
        &self,
        store: &dyn SharedStore,
        ask: &Ask<'_>,
        prompt: &Prompt,
        now_ms: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<(Decision, Belief)> {
        let replica = &self.follower.replica;
        let in_flight = self.in_flight();
        let beliefs = beliefs(replica, prompt, |endpoint| ask.admits(endpoint));
        let candidates: Vec<Candidate<'_>> = beliefs
            .iter()
            .map(|(endpoint, b)| candidate(endpoint, b, &in_flight, now_ms))
            .collect();
        let request = Request {
            target_model: "",
            prompt_blocks: prompt.chain.len(),
            multimodal: false,
            headers: &[],
        };
        let mut pick = |candidates: &[Candidate<'_>]| {
            let state = &self.scheduling;
            schedule(&self.scheduler, &request, candidates, state, now_ms, random).ok()
        };
        let belief_in = |pick: &Decision, beliefs: &[(&EndpointState, Belief)]| {
            let id = *pick.primary.ranked.first()?;
            beliefs.iter().find(|(endpoint, _)| endpoint.record.id == id).map(|(_, b)| *b)
        };
        if prompt.chain.is_empty() {
            let pick = pick(&candidates)?;
            let belief = belief_in(&pick, &beliefs)?;
            return Some((pick, belief));
        }
        let mut chosen = None;
        for _ in 0..INTENT_TRIES {
            let intents = IntentRing::read(store, &self.keys, now_ms);
            let (mut candidates, mut beliefs) = (candidates.clone(), beliefs.clone());
            for intent in intents.iter() {
                let shared = intent.shared_blocks(&prompt.chain);
                let owner = replica.roster.by_column(intent.column).map(|e| e.record.id);
                let at = beliefs.iter().position(|(e, _)| shared > 0 && Some(e.record.id) == owner);
                let age_ms = now_ms.saturating_sub(intent.at_ms);
                if let Some((endpoint, belief)) = at.and_then(|at| beliefs.get_mut(at))
                    && (age_ms < TOLD_INTENT_MS || !endpoint.tells(prompt.stream))
                    && let Some(candidate) = at.and_then(|at| candidates.get_mut(at))
                {
                    *belief = belief.at_least(endpoint, prompt, shared);
                    candidate.believe(belief);
                }
            }
            let pick = pick(&candidates)?;
            let belief = belief_in(&pick, &beliefs)?;
            let endpoint = replica.roster.get(*pick.primary.ranked.first()?)?;
            let cacheable = prompt.cacheable(endpoint);
            let new_there = pick.primary.matched_blocks < cacheable.len();
            let intent = || Intent::new(endpoint.columns.held, now_ms, cacheable);
            chosen = Some((pick, belief));
            let refused = ask.only_if_cached && belief.blocks == 0;
            if refused || !new_there || intents.add(store, &self.keys, intent()) {
                break;
            }
        }
        chosen
    }

    /// Enters what the endpoint lacks of the chain into this VM's own table and words the message for the applier.
    /// Not if the engine has no room for it.
    fn remember(
        &mut self,
        place: Place,
        room: usize,
        prompt: &Prompt,
        now_ms: u64,
    ) -> Option<Vec<u8>> {
        if prompt.chain.len() > room {
            return None;
        }
        let chain = place.news(prompt).filter(|chain| !chain.is_empty())?;
        let hashes = HashList::Slice(chain);
        let message = match place.expected {
            Some(_) => {
                Message::Expected { column: place.held, stream: prompt.stream, chain: hashes }
            }
            None => Message::Picked { column: place.held, chain: hashes },
        };
        if self.applies(&message, now_ms) {
            return None;
        }
        #[allow(clippy::cast_possible_truncation)]
        let stamp = (now_ms >> 6) as u32;
        let column = place.expected.unwrap_or(place.held);
        for hash in chain {
            self.follower.replica.table.insert(column, stamp, *hash);
        }
        Some(message.encode())
    }

    /// The first byte of the answer came: the prompt is computed. Returns what to send to the applier.
    pub fn answered(
        &mut self,
        store: &dyn SharedStore,
        routed: &mut Routed,
        now_ms: u64,
    ) -> Option<Vec<u8>> {
        self.ledger.answered(&mut routed.flight);
        self.write_row(store, now_ms);
        self.settle_expected(routed, true, now_ms)
    }

    /// What was expected of this request need not be expected much longer. Its chain is given back: only a retry
    /// needed it, and none comes any more.
    fn settle_expected(
        &mut self,
        routed: &mut Routed,
        answered: bool,
        now_ms: u64,
    ) -> Option<Vec<u8>> {
        let last = routed.place.news(&routed.prompt).and_then(<[u64]>::last).copied();
        routed.prompt.chain = Vec::new();
        let (_, last) = routed.place.expected.zip(last)?;
        let message = Message::Settled { column: routed.place.held, last, answered };
        (!self.applies(&message, now_ms)).then(|| message.encode())
    }

    /// Envoy tried more than once, and this address answered: load and belief go there. Returns what
    /// to send to the applier.
    pub fn served_by(
        &mut self,
        store: &dyn SharedStore,
        routed: Routed,
        address: &str,
        now_ms: u64,
    ) -> (Routed, Vec<Vec<u8>>) {
        let Some(server) = self.follower.replica.roster.by_address(address) else {
            return (routed, Vec::new());
        };
        if server.record.id == routed.endpoint() {
            return (routed, Vec::new());
        }
        let id = server.record.id;
        let belief = belief_of(&self.follower.replica, server, &routed.prompt);
        let place = Place::of(server, &routed.prompt, &belief);
        let room = shares::capacity(server, self.follower.replica.roster.len(), self.max_blocks());
        let (from, to) = (routed.place.held, Some(place.held));
        self.redirect_intent(store, from, to, &routed.prompt.chain, now_ms);
        let mut messages: Vec<_> = self.unlearn(&routed, now_ms).into_iter().collect();
        messages.extend(self.remember(place, room, &routed.prompt, now_ms));
        let flight = self.ledger.move_to(routed.flight, id, belief.uncached_tokens());
        self.write_row(store, now_ms);
        let routed = Routed { flight, place, belief, ..routed };
        (routed, messages)
    }

    /// The endpoint refused the request: it computed nothing of it. Returns what to send to the applier.
    pub fn refused(
        &mut self,
        store: &dyn SharedStore,
        routed: &mut Routed,
        now_ms: u64,
    ) -> Option<Vec<u8>> {
        self.redirect_intent(store, routed.place.held, None, &routed.prompt.chain, now_ms);
        let message = self.unlearn(routed, now_ms);
        routed.prompt.chain = Vec::new();
        message
    }

    /// Takes what was new to the endpoint out of its share again.
    fn unlearn(&mut self, routed: &Routed, now_ms: u64) -> Option<Vec<u8>> {
        let Place { held, expected, cacheable, .. } = routed.place;
        // What is expected is taken back by whoever counts who else expects it.
        let new_there = match expected {
            Some(_) => routed.place.news(&routed.prompt),
            None => routed.prompt.chain.get(routed.belief.blocks..cacheable),
        };
        let new_there = new_there.unwrap_or_default();
        if new_there.is_empty() {
            return None;
        }
        if expected.is_none() {
            for hash in new_there {
                self.follower.replica.table.remove(held, *hash);
            }
        }
        let chain = HashList::Slice(new_there);
        let message = Message::Unpicked { column: held, chain };
        (!self.applies(&message, now_ms)).then(|| message.encode())
    }

    /// Bytes of a prompt that the largest engine has room for.
    fn longest_prompt(&self) -> usize {
        let roster = &self.follower.replica.roster;
        let rooms = roster.iter().map(|e| shares::capacity(e, roster.len(), self.max_blocks()));
        rooms.max().unwrap_or(0).saturating_mul(BLOCK_BYTES)
    }

    /// The others shall not believe the first pick any longer.
    fn redirect_intent(
        &self,
        store: &dyn SharedStore,
        from: Column,
        to: Option<Column>,
        chain: &[u64],
        now_ms: u64,
    ) {
        if chain.is_empty() {
            return;
        }
        for _ in 0..INTENT_TRIES {
            let intents = IntentRing::read(store, &self.keys, now_ms);
            if intents.redirect(store, &self.keys, from, to, chain) {
                return;
            }
        }
    }

    /// The request is over. `prompt_tokens` is what the engine counted, if it said. Returns what to send
    /// to the applier.
    pub fn finish(
        &mut self,
        store: &dyn SharedStore,
        mut routed: Routed,
        prompt_tokens: Option<u32>,
        now_ms: u64,
    ) -> Vec<Vec<u8>> {
        let endpoint = routed.endpoint();
        let prompt_bytes = routed.prompt.bytes;
        let mut messages: Vec<_> =
            self.settle_expected(&mut routed, false, now_ms).into_iter().collect();
        self.ledger.finish(routed.flight);
        self.write_row(store, now_ms);
        messages.extend(prompt_tokens.map(|prompt_tokens| {
            Message::Usage { endpoint, prompt_bytes, prompt_tokens }.encode()
        }));
        messages
    }
}

fn candidate<'a>(
    endpoint: &'a EndpointState,
    belief: &Belief,
    in_flight: &InFlight<'_>,
    now_ms: u64,
) -> Candidate<'a> {
    let record = &endpoint.record;
    let counts = in_flight.of(record.id);
    // Far below 2^24: exact in f32.
    #[allow(clippy::cast_precision_loss)]
    let waiting = endpoint.load.waiting.map(|scraped| scraped + counts.waiting as f32);
    let scraped = endpoint.load_at_ms > 0;
    Candidate {
        labels: &record.labels,
        signals: &endpoint.signals,
        waiting,
        waiting_since_scrape: counts.waiting,
        running: endpoint.load.running,
        kv_usage: endpoint.load.kv_usage,
        scrape_age_ms: scraped.then(|| now_ms.saturating_sub(endpoint.load_at_ms)),
        active_requests: counts.requests,
        uncached_tokens: counts.uncached_tokens,
        matched_blocks: belief.blocks,
        matched_tokens: belief.tokens,
        prompt_tokens: belief.prompt_tokens,
        ..Candidate::unknown(record.id, &record.name, &record.address)
    }
}

impl Candidate<'_> {
    fn believe(&mut self, belief: &Belief) {
        self.matched_blocks = belief.blocks;
        self.matched_tokens = belief.tokens;
        self.prompt_tokens = belief.prompt_tokens;
    }
}
