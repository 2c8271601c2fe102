//! The choice of endpoints for a request, on the state of this moment and against the other workers' choices.

use super::belief::beliefs;
use super::follower::SessionTold;
use super::request::{Place, Stage};
use super::{
    Ask, Belief, Choice, Intent, IntentRing, Message, Prompt, Routed, SharedStore, VmState,
    pool_key, shares,
};
use crate::inflight::InFlight;
use crate::replica::{EndpointState, Models};
use crate::scheduling::{
    Candidate, Decision, ProfilePick, Request, SchedulingError, schedule, tokens_in_flight,
};
use warmroute_shared_state::endpoint::EndpointId;

/// How often a pick is thought over because another worker picked in the same moment.
const INTENT_TRIES: usize = 5;

/// How long an intent counts for an endpoint whose events tell: by then the applier's frames carry the pick as an
/// expectation, which ends when the engine evicts again; an intent cannot.
const TOLD_INTENT_MS: u64 = 100;

/// A decision, and what every stage's endpoint was believed to hold.
struct Chosen {
    decision: Decision,
    primary: Belief,
    prefill: Option<Belief>,
    encode: Option<Belief>,
}

impl VmState {
    /// Picks an endpoint for the prompt, by what this VM knows: to be called after [`refresh`](Self::refresh). The
    /// prompt is asked for: of so many bytes at most (what the largest engine that may be picked has room for), what lies
    /// beyond being held by nobody. Charges the endpoint and remembers that it will hold the prompt. The second value is
    /// what to send to the applier.
    pub fn choose(
        &mut self,
        store: &dyn SharedStore,
        ask: &Ask<'_>,
        prompt: impl FnOnce(&Models, usize) -> Prompt,
        now_ms: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> (Choice, Vec<Vec<u8>>) {
        self.serves = true;
        self.take_sessions(now_ms);
        if !self.follower.replica.roster.ever_filled() {
            return (Choice::NoTable, Vec::new());
        }
        let room = self.longest_prompt(ask);
        let prompt = prompt(&self.follower.replica.models, room);
        let chosen = match self.pick_against_others(store, ask, &prompt, now_ms, random) {
            Ok(chosen) => chosen,
            Err(error) => return (error.into(), Vec::new()),
        };
        if ask.only_if_cached && chosen.primary.blocks == 0 {
            return (Choice::NotCached, Vec::new());
        }
        self.take_up(store, ask, prompt, chosen, now_ms)
    }

    /// Charges everybody who will work for the request, and remembers it.
    fn take_up(
        &mut self,
        store: &dyn SharedStore,
        ask: &Ask<'_>,
        prompt: Prompt,
        chosen: Chosen,
        now_ms: u64,
    ) -> (Choice, Vec<Vec<u8>>) {
        let Chosen { decision, primary: belief, prefill, encode } = chosen;
        let mut messages = Vec::new();
        let Some(id) = decision.primary.ranked.first() else {
            return (Choice::NoEndpoint, messages);
        };
        let Some((flight, place)) = self.charge(ask, *id, &prompt, &belief, true, now_ms) else {
            return (Choice::NoEndpoint, messages);
        };
        messages.extend(self.remember(*id, place, &prompt, now_ms));
        let mut stages = Vec::new();
        for (pick, belief, prefills) in
            [(&decision.prefill, prefill, true), (&decision.encode, encode, false)]
        {
            let first = pick.as_ref().and_then(|pick| pick.ranked.first()).zip(belief);
            let Some((id, belief)) = first else { continue };
            let charged = self.charge(ask, *id, &prompt, &belief, false, now_ms);
            let Some((flight, place)) = charged else { continue };
            if prefills {
                messages.extend(self.remember(*id, place, &prompt, now_ms));
            }
            stages.push(Stage { flight, place: prefills.then_some(place) });
        }
        let pool = pool_key(ask.pool);
        for (plugin, session, endpoint) in decision.sessions() {
            let message = Message::Session { pool, plugin, session, endpoint };
            if !self.applies(&message, now_ms) {
                messages.push(message.encode());
            }
        }
        self.scheduling.remember(pool, &decision, now_ms);
        self.write_row(store, now_ms);
        let destinations = self.destinations(&decision);
        let routed = Routed::new(flight, place, prompt, belief, stages, destinations, decision);
        (Choice::Routed(Box::new(routed)), messages)
    }

    fn charge(
        &mut self,
        ask: &Ask<'_>,
        id: EndpointId,
        prompt: &Prompt,
        belief: &Belief,
        primary: bool,
        now_ms: u64,
    ) -> Option<(crate::inflight::Flight, Place)> {
        let load = ask.scheduler.unwrap_or(&self.scheduler).inflight;
        let endpoint = self.follower.replica.roster.get(id)?;
        let place = Place::of(endpoint, prompt, belief, &self.told, now_ms);
        let (input, uncached) = (belief.prompt_tokens, belief.uncached_tokens());
        let tokens = tokens_in_flight(&load, input, uncached, ask.max_output_tokens);
        let to_the_end = primary && load.add_estimated_output_tokens;
        Some((self.ledger.start_until(id, tokens, to_the_end, now_ms), place))
    }

    fn destinations(&self, decision: &Decision) -> Vec<String> {
        let roster = &self.follower.replica.roster;
        let ranked = decision.primary.ranked.iter().filter_map(|id| roster.get(*id));
        let address = |endpoint: &EndpointState| {
            let address = &endpoint.record.address;
            match (decision.destination_port, address.rsplit_once(':')) {
                (Some(port), Some((host, _))) => format!("{host}:{port}"),
                _ => address.clone(),
            }
        };
        ranked.map(address).collect()
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
    ) -> Result<Chosen, SchedulingError> {
        let replica = &self.follower.replica;
        let in_flight = self.in_flight();
        let mut beliefs = beliefs(replica, prompt, |endpoint| ask.admits(endpoint));
        let mut candidates: Vec<Candidate<'_>> = beliefs
            .iter()
            .map(|(endpoint, b)| candidate(endpoint, b, &in_flight, now_ms))
            .collect();
        let request = Request {
            target_model: ask.target_model,
            prompt_blocks: prompt.chain.len(),
            multimodal: ask.multimodal,
            headers: ask.headers,
        };
        let scheduler = ask.scheduler.unwrap_or(&self.scheduler);
        // What others did in the last moments says nothing new of a prompt that somebody holds whole: nearly all that
        // come again.
        let whole = |(endpoint, belief): &(&EndpointState, Belief)| {
            belief.blocks >= prompt.cacheable(endpoint).len()
        };
        let mut asks = !prompt.chain.is_empty() && !beliefs.iter().any(whole);
        for round in 1..=INTENT_TRIES {
            let intents = asks.then(|| IntentRing::read(store, &self.keys, now_ms));
            let mut before = Vec::new();
            for intent in intents.iter().flat_map(IntentRing::iter) {
                let shared = intent.shared_blocks(&prompt.chain);
                if shared == 0 {
                    continue;
                }
                let owner = replica.roster.by_column(intent.column).map(|e| e.record.id);
                let Some(at) = beliefs.iter().position(|(e, _)| Some(e.record.id) == owner) else {
                    continue;
                };
                let age_ms = now_ms.saturating_sub(intent.at_ms);
                if let Some((endpoint, belief)) = beliefs.get_mut(at)
                    && (age_ms < TOLD_INTENT_MS || !endpoint.tells(prompt.stream))
                    && let Some(candidate) = candidates.get_mut(at)
                {
                    before.push((at, *belief));
                    *belief = belief.at_least(endpoint, prompt, shared);
                    candidate.believe(belief);
                }
            }
            let state = self.scheduling.of(pool_key(ask.pool));
            let decision = schedule(scheduler, &request, &candidates, state, now_ms, random)?;
            let of = |pick: &ProfilePick| {
                let id = pick.ranked.first()?;
                beliefs.iter().find(|(e, _)| e.record.id == *id).map(|(e, b)| (*e, *b))
            };
            let (endpoint, primary) = of(&decision.primary).ok_or(SchedulingError::NoCandidate)?;
            let cacheable = prompt.cacheable(endpoint);
            let new_there = primary.blocks < cacheable.len();
            let refused = ask.only_if_cached && primary.blocks == 0;
            let visible = match intents {
                Some(intents) if new_there && !refused => {
                    let intent = Intent::new(endpoint.columns.held, now_ms, cacheable);
                    intents.add(store, &self.keys, intent)
                }
                None if new_there && !refused => {
                    asks = true;
                    false
                }
                _ => true,
            };
            if visible || round == INTENT_TRIES {
                let belief = |pick: &Option<ProfilePick>| Some(of(pick.as_ref()?)?.1);
                let (prefill, encode) = (belief(&decision.prefill), belief(&decision.encode));
                return Ok(Chosen { decision, primary, prefill, encode });
            }
            // As it was before these intents, the last change first.
            for (at, former) in before.into_iter().rev() {
                if let (Some((_, belief)), Some(candidate)) =
                    (beliefs.get_mut(at), candidates.get_mut(at))
                {
                    *belief = former;
                    candidate.believe(&former);
                }
            }
        }
        Err(SchedulingError::NoCandidate)
    }

    /// Bytes of a prompt that the largest engine that may be picked has room for.
    fn longest_prompt(&self, ask: &Ask<'_>) -> usize {
        let roster = &self.follower.replica.roster;
        let caps = ask.scheduler.map(|scheduler| &scheduler.prefix);
        let admitted = roster.iter().filter(|endpoint| ask.admits(endpoint));
        let rooms = admitted.map(|e| shares::capacity_with(caps, roster, e, self.max_blocks()));
        rooms.max().unwrap_or(0).saturating_mul(warmroute_shared_state::prefix::BLOCK_BYTES)
    }

    /// What other workers' requests told of sessions.
    pub(super) fn take_sessions(&mut self, now_ms: u64) {
        for SessionTold { pool, plugin, session, endpoint } in self.follower.take_sessions() {
            self.scheduling.bind(pool, &plugin, session, endpoint, now_ms);
        }
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
