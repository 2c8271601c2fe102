//! A request's way through the state: chosen, answered, moved, finished.

use super::belief::belief_of;
use super::{
    Belief, IntentRing, Message, Prompt, PromptSource, SharedStore, Told, VmState, shares,
};
use crate::inflight::Flight;
use crate::replica::EndpointState;
use crate::scheduling::{Decision, Disaggregation, PickReason, session_token};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::table_op::{Column, HashList};

/// How often the others are told that a pick was not to be.
const INTENT_TRIES: usize = 5;

/// A request on its way. It must end in [`VmState::finish`].
#[derive(Debug)]
pub struct Routed {
    flight: Flight,
    place: Place,
    prompt: Prompt,
    /// Who else works for it: prefill, encode.
    stages: Vec<Stage>,
    /// Request headers to set.
    pub headers: Vec<(&'static str, String)>,
    /// Which stages run elsewhere, if a handler decided on it.
    pub disaggregation: Option<Disaggregation>,
    session_headers: Vec<(String, Option<EndpointId>)>,
    /// `ip:port`, best first: the pick and its fallbacks.
    pub destinations: Vec<String>,
    /// What the endpoint was believed to hold.
    pub belief: Belief,
    /// Why this endpoint.
    pub reason: PickReason,
}

/// An endpoint that does a part of the work.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) flight: Flight,
    /// Where its part of the prompt is remembered; `None`: nowhere, it only encodes.
    pub(super) place: Option<Place>,
}

/// Where a pick is remembered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
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
    pub(super) fn of(
        endpoint: &EndpointState,
        prompt: &Prompt,
        belief: &Belief,
        told: &Told,
        now_ms: u64,
    ) -> Self {
        let columns = endpoint.columns;
        let cacheable = prompt.cacheable(endpoint);
        let tells = endpoint.tells(prompt.stream);
        // What stands for events is told at each use: the order of use decides what is dropped.
        let known = if tells {
            belief.held
        } else {
            told.blocks(columns.held, cacheable, now_ms).min(belief.held)
        };
        let expected = tells.then_some(columns.expected);
        Self { held: columns.held, expected, known, cacheable: cacheable.len() }
    }

    /// What is to be remembered of the prompt's chain.
    fn news<'a>(&self, prompt: &'a Prompt) -> Option<&'a [u64]> {
        prompt.chain.get(self.known..self.cacheable)
    }
}

impl Routed {
    pub(super) fn new(
        flight: Flight,
        place: Place,
        prompt: Prompt,
        belief: Belief,
        stages: Vec<Stage>,
        destinations: Vec<String>,
        decision: Decision,
    ) -> Self {
        let session = |header: crate::scheduling::SessionHeader| (header.header, header.endpoint);
        Self {
            flight,
            place,
            prompt,
            stages,
            headers: decision.headers,
            disaggregation: decision.disaggregation,
            session_headers: decision.session_headers.into_iter().map(session).collect(),
            destinations,
            belief,
            reason: decision.reason,
        }
    }

    /// The endpoint that is charged.
    #[must_use]
    pub fn endpoint(&self) -> EndpointId {
        self.flight.endpoint()
    }

    /// Everybody who works for it: the one that is charged first.
    #[must_use]
    pub fn endpoints(&self) -> Vec<EndpointId> {
        let stages = self.stages.iter().map(|stage| stage.flight.endpoint());
        core::iter::once(self.endpoint()).chain(stages).collect()
    }

    /// How the prompt's bytes were found.
    #[must_use]
    pub fn prompt_source(&self) -> PromptSource {
        self.prompt.source
    }
}

impl VmState {
    /// Response headers that bring the request's session back to its endpoint.
    #[must_use]
    pub fn session_headers(&self, routed: &Routed) -> Vec<(String, String)> {
        let roster = &self.follower.replica.roster;
        let token = |(header, endpoint): &(String, Option<EndpointId>)| {
            let endpoint = roster.get(endpoint.unwrap_or(routed.endpoint()))?;
            Some((header.clone(), session_token(&endpoint.record.name)))
        };
        routed.session_headers.iter().filter_map(token).collect()
    }

    /// Enters what the endpoint lacks of the chain into this VM's own table and words the message for the applier.
    /// Not if the engine has no room for it.
    pub(super) fn remember(
        &mut self,
        id: EndpointId,
        place: Place,
        prompt: &Prompt,
        now_ms: u64,
    ) -> Option<Vec<u8>> {
        let replica = &self.follower.replica;
        let room = shares::capacity(replica, replica.roster.get(id)?, self.max_blocks());
        if prompt.chain.len() > room {
            return None;
        }
        let chain = place.news(prompt).filter(|chain| !chain.is_empty())?;
        let hashes = HashList::Slice(chain);
        let message = match place.expected {
            Some(_) => {
                Message::Expected { column: place.held, stream: prompt.stream, chain: hashes }
            }
            None => {
                let whole = prompt.chain.get(..place.cacheable).unwrap_or_default();
                self.told.note(place.held, whole, now_ms);
                Message::Picked { column: place.held, chain: hashes }
            }
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
    ) -> Vec<Vec<u8>> {
        self.ledger.answered(&mut routed.flight);
        let messages = self.settle_expected(routed, true, now_ms);
        // The prompt is computed: whoever did that is done.
        let stages = core::mem::take(&mut routed.stages);
        let (done, encode): (Vec<_>, Vec<_>) = stages.into_iter().partition(|s| s.place.is_some());
        done.into_iter().for_each(|stage| self.ledger.finish(stage.flight));
        routed.stages = encode;
        self.write_row(store, now_ms);
        messages
    }

    /// What was expected of this request need not be expected much longer. Its chain is given back: only a retry
    /// needed it, and none comes any more.
    fn settle_expected(
        &mut self,
        routed: &mut Routed,
        answered: bool,
        now_ms: u64,
    ) -> Vec<Vec<u8>> {
        let stages = routed.stages.iter().filter_map(|stage| stage.place);
        let expected: Vec<(Column, u64)> = core::iter::once(routed.place)
            .chain(stages)
            .filter(|place| place.expected.is_some())
            .filter_map(|place| Some((place.held, *place.news(&routed.prompt)?.last()?)))
            .collect();
        routed.prompt.chain = Vec::new();
        let mut messages = Vec::new();
        for (column, last) in expected {
            let message = Message::Settled { column, last, answered };
            if !self.applies(&message, now_ms) {
                messages.push(message.encode());
            }
        }
        messages
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
        let place = Place::of(server, &routed.prompt, &belief, &self.told, now_ms);
        let (from, to) = (routed.place.held, Some(place.held));
        self.redirect_intent(store, from, to, &routed.prompt.chain, now_ms);
        let mut messages: Vec<_> = self.unlearn(&routed, now_ms).into_iter().collect();
        messages.extend(self.remember(id, place, &routed.prompt, now_ms));
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
            self.told.forget(held);
            for hash in new_there {
                self.follower.replica.table.remove(held, *hash);
            }
        }
        let chain = HashList::Slice(new_there);
        let message = Message::Unpicked { column: held, chain };
        (!self.applies(&message, now_ms)).then(|| message.encode())
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
        let mut messages = self.settle_expected(&mut routed, false, now_ms);
        self.ledger.finish(routed.flight);
        routed.stages.into_iter().for_each(|stage| self.ledger.finish(stage.flight));
        self.write_row(store, now_ms);
        messages.extend(prompt_tokens.map(|prompt_tokens| {
            Message::Usage { endpoint, prompt_bytes, prompt_tokens }.encode()
        }));
        messages
    }
}
