//! A request's way through the state: chosen, answered, moved, finished.

use super::{Intent, IntentRing, Message, SharedStore, VmState, shares};
use crate::inflight::{Flight, InFlight};
use crate::prefix_table::MAX_COLUMNS;
use crate::replica::EndpointState;
use crate::scheduling::{Candidate, Pick, PickReason, pick};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::frame::{Column, HashList};
use warmroute_shared_state::prefix::BLOCK_BYTES;

/// How often a pick is thought over because another worker picked in the same moment.
const INTENT_TRIES: usize = 5;

/// A prompt as the scheduler sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// Chain hashes of its whole blocks.
    pub chain: Vec<u64>,
    /// Its bytes, the tail that fills no block included.
    pub bytes: u64,
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
}

/// A request on its way. It must end in [`VmState::finish`].
#[derive(Debug)]
pub struct Routed {
    flight: Flight,
    column: Column,
    prompt: Prompt,
    /// `ip:port`, best first: the pick and its fallbacks.
    pub destinations: Vec<String>,
    /// Blocks that the endpoint was believed to hold.
    pub matched_blocks: usize,
    /// The same in tokens, by the endpoint's own bytes per token.
    pub matched_tokens: u64,
    /// Why this endpoint.
    pub reason: PickReason,
}

impl Routed {
    /// The endpoint that is charged.
    #[must_use]
    pub fn endpoint(&self) -> EndpointId {
        self.flight.endpoint()
    }
}

impl VmState {
    /// Picks an endpoint for the prompt, which is asked for once this VM is up to date: of so many bytes at most
    /// ([`Self::longest_prompt`]), what lies beyond being held by nobody. Charges the endpoint and remembers that it will hold the prompt. The second
    /// value is what to send to the applier.
    pub fn choose(
        &mut self,
        store: &dyn SharedStore,
        prompt: impl FnOnce(usize) -> Prompt,
        now_ms: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> (Choice, Option<Vec<u8>>) {
        self.serves = true;
        self.refresh(store);
        if !self.follower.replica.roster.ever_filled() {
            return (Choice::NoTable, None);
        }
        let prompt = prompt(self.longest_prompt());
        let Some(pick) = self.pick_against_others(store, &prompt, now_ms, random) else {
            return (Choice::NoEndpoint, None);
        };
        let roster = &self.follower.replica.roster;
        let Some(endpoint) = pick.ranked.first().and_then(|id| roster.get(*id)) else {
            return (Choice::NoEndpoint, None);
        };
        let destinations = pick
            .ranked
            .iter()
            .filter_map(|id| roster.get(*id))
            .map(|e| e.record.address.clone())
            .collect();
        let column = endpoint.column;
        let matched_tokens = matched_tokens(endpoint, pick.matched_blocks);
        let uncached = uncached_tokens(endpoint, prompt.bytes, pick.matched_blocks);
        let flight = self.ledger.start(endpoint.record.id, uncached, now_ms);
        let room = shares::capacity(endpoint, roster.len(), self.max_blocks());
        let message = self.remember(column, room, &prompt.chain, now_ms);
        self.write_row(store, now_ms);
        let routed = Routed {
            flight,
            column,
            prompt,
            destinations,
            matched_blocks: pick.matched_blocks,
            matched_tokens,
            reason: pick.reason,
        };
        (Choice::Routed(Box::new(routed)), message)
    }

    /// Picks, and makes the pick visible to the other workers before anybody else's; if another one was
    /// faster, its pick is taken into account and the choice made again.
    fn pick_against_others(
        &self,
        store: &dyn SharedStore,
        prompt: &Prompt,
        now_ms: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Option<Pick> {
        let candidates = self.candidates(prompt);
        if prompt.chain.is_empty() {
            return pick(&self.profile, &candidates, 0, random);
        }
        let mut chosen = None;
        for _ in 0..INTENT_TRIES {
            let intents = IntentRing::read(store, &self.keys, now_ms);
            let mut candidates = candidates.clone();
            for intent in intents.iter() {
                let shared = intent.shared_blocks(&prompt.chain);
                if shared == 0 {
                    continue;
                }
                let owner = self.follower.replica.roster.by_column(intent.column);
                let owner = owner.map(|endpoint| endpoint.record.id);
                if let Some(candidate) = candidates.iter_mut().find(|c| Some(c.id) == owner) {
                    candidate.matched_blocks = candidate.matched_blocks.max(shared);
                }
            }
            let pick = pick(&self.profile, &candidates, prompt.chain.len(), random)?;
            let new_there = pick.matched_blocks < prompt.chain.len();
            let column = self.follower.replica.roster.get(*pick.ranked.first()?)?.column;
            chosen = Some(pick);
            if !new_there
                || intents.add(store, &self.keys, Intent::new(column, now_ms, &prompt.chain))
            {
                break;
            }
        }
        chosen
    }

    fn candidates(&self, prompt: &Prompt) -> Vec<Candidate> {
        let replica = &self.follower.replica;
        let in_flight = self.in_flight();
        let mut place_of_column = [None; MAX_COLUMNS as usize];
        let mut candidates: Vec<Candidate> = Vec::with_capacity(replica.roster.len());
        for endpoint in replica.roster.iter().filter(|endpoint| endpoint.is_ready()) {
            if let Some(place) = place_of_column.get_mut(usize::from(endpoint.column.0)) {
                *place = Some(candidates.len());
            }
            candidates.push(candidate(endpoint, &in_flight));
        }
        for matched in replica.table.walk(&prompt.chain, replica.roster.live()) {
            let place = place_of_column.get(usize::from(matched.column.0)).copied().flatten();
            if let Some(candidate) = place.and_then(|place| candidates.get_mut(place)) {
                candidate.matched_blocks = matched.blocks;
            }
        }
        candidates
    }

    /// Enters the chain into this VM's own table and words the message for the applier. Not if the engine has
    /// no room for it.
    fn remember(
        &mut self,
        column: Column,
        room: usize,
        chain: &[u64],
        now_ms: u64,
    ) -> Option<Vec<u8>> {
        if chain.is_empty() || chain.len() > room {
            return None;
        }
        let message = Message::Picked { column, chain: HashList::Slice(chain) };
        if self.applies(&message, now_ms) {
            return None;
        }
        #[allow(clippy::cast_possible_truncation)]
        let stamp = (now_ms >> 6) as u32;
        for hash in chain {
            self.follower.replica.table.insert(column, stamp, *hash);
        }
        Some(message.encode())
    }

    /// The first byte of the answer came: the prompt is computed.
    pub fn answered(&mut self, store: &dyn SharedStore, routed: &mut Routed, now_ms: u64) {
        self.ledger.answered(&mut routed.flight);
        // Only a retry needed it, and none comes any more.
        routed.prompt.chain = Vec::new();
        self.write_row(store, now_ms);
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
        let (id, column) = (server.record.id, server.column);
        let held = self
            .follower
            .replica
            .table
            .walk(&routed.prompt.chain, self.follower.replica.roster.live())
            .iter()
            .find(|m| m.column == column)
            .map_or(0, |m| m.blocks);
        let uncached = uncached_tokens(server, routed.prompt.bytes, held);
        let matched_tokens = matched_tokens(server, held);
        let room = shares::capacity(server, self.follower.replica.roster.len(), self.max_blocks());
        self.redirect_intent(store, routed.column, Some(column), &routed.prompt.chain, now_ms);
        let mut messages: Vec<_> = self.unlearn(&routed, now_ms).into_iter().collect();
        messages.extend(self.remember(column, room, &routed.prompt.chain, now_ms));
        let flight = self.ledger.move_to(routed.flight, id, uncached);
        self.write_row(store, now_ms);
        let routed = Routed { flight, column, matched_blocks: held, matched_tokens, ..routed };
        (routed, messages)
    }

    /// The endpoint refused the request: it computed nothing of it. Returns what to send to the applier.
    pub fn refused(
        &mut self,
        store: &dyn SharedStore,
        routed: &mut Routed,
        now_ms: u64,
    ) -> Option<Vec<u8>> {
        self.redirect_intent(store, routed.column, None, &routed.prompt.chain, now_ms);
        let message = self.unlearn(routed, now_ms);
        routed.prompt.chain = Vec::new();
        message
    }

    /// Takes what was new to the endpoint out of its share again.
    fn unlearn(&mut self, routed: &Routed, now_ms: u64) -> Option<Vec<u8>> {
        let new_there = routed.prompt.chain.get(routed.matched_blocks..).unwrap_or_default();
        if new_there.is_empty() {
            return None;
        }
        for hash in new_there {
            self.follower.replica.table.remove(routed.column, *hash);
        }
        let chain = HashList::Slice(new_there);
        let message = Message::Unpicked { column: routed.column, chain };
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
        routed: Routed,
        prompt_tokens: Option<u32>,
        now_ms: u64,
    ) -> Option<Vec<u8>> {
        let endpoint = routed.endpoint();
        self.ledger.finish(routed.flight);
        self.write_row(store, now_ms);
        let prompt_tokens = prompt_tokens?;
        let prompt_bytes = routed.prompt.bytes;
        Some(Message::Usage { endpoint, prompt_bytes, prompt_tokens }.encode())
    }
}

fn candidate(endpoint: &EndpointState, in_flight: &InFlight<'_>) -> Candidate {
    let id = endpoint.record.id;
    let counts = in_flight.of(id);
    // Far below 2^24: exact in f32.
    #[allow(clippy::cast_precision_loss)]
    let waiting = endpoint.load.waiting.map(|scraped| scraped + counts.waiting as f32);
    Candidate {
        id,
        waiting,
        waiting_since_scrape: counts.waiting,
        kv_usage: endpoint.load.kv_usage,
        matched_blocks: 0,
        uncached_tokens: counts.uncached_tokens,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
fn tokens(endpoint: &EndpointState, bytes: u64) -> u64 {
    (bytes as f64 / f64::from(endpoint.bytes_per_token)).round() as u64
}

fn block_bytes(blocks: usize) -> u64 {
    (blocks as u64).saturating_mul(BLOCK_BYTES as u64)
}

fn matched_tokens(endpoint: &EndpointState, blocks: usize) -> u64 {
    tokens(endpoint, block_bytes(blocks))
}

fn uncached_tokens(endpoint: &EndpointState, prompt_bytes: u64, matched_blocks: usize) -> u64 {
    tokens(endpoint, prompt_bytes.saturating_sub(block_bytes(matched_blocks)))
}
