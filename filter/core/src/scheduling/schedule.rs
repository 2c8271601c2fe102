//! The profile handler: runs the profiles that the request needs, and puts their picks together.

use super::decider::runs_elsewhere;
use super::decision::{
    DATA_PARALLEL_HEADER, Decision, Disaggregation, ENCODE_HEADER, MAX_DESTINATIONS, Memory,
    PREFILL_HEADER, PickReason, ProfilePick, SchedulingError, SessionHeader,
};
use super::profile::{self, Scored};
use super::session::{session_of, session_plugins};
use super::{Candidate, Request, SchedulerState, SessionIds, Situation};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::plugin::{Decider, Scorer, SessionStrategy};
use warmroute_shared_state::policy::scheduler::{Disagg, Handler, Scheduler};

/// Decides where a request goes. Nothing is remembered before [`SchedulerState::remember`] is called with the
/// decision. `random` gives any `u64`, independently in each worker.
///
/// # Errors
/// If nobody can be picked.
pub fn schedule(
    scheduler: &Scheduler,
    request: &Request<'_>,
    candidates: &[Candidate<'_>],
    state: &SchedulerState,
    now_ms: u64,
    random: &mut dyn FnMut() -> u64,
) -> Result<Decision, SchedulingError> {
    if candidates.is_empty() {
        return Err(SchedulingError::NoCandidate);
    }
    let sessions = SessionIds::of(scheduler);
    let situation = Situation { request, candidates, state, sessions, now_ms };
    let mut runs = Runs { scheduler, situation: &situation, random };
    let stages = match &scheduler.handler {
        Handler::Single | Handler::DataParallel { .. } => {
            Stages::only(runs.run(0, MAX_DESTINATIONS)?)
        }
        Handler::Header { header, default_profile } => {
            let at = runs.named_by(header, default_profile)?;
            Stages::only(runs.run(at, MAX_DESTINATIONS)?)
        }
        Handler::Disagg(disagg) => runs.disagg(disagg)?,
    };
    Ok(runs.decide(stages))
}

/// What each candidate gets that the first profile's filters keep, in the candidates' order: what its picker goes by.
///
/// # Errors
/// If the filters leave nobody, or there is no profile.
pub fn scores(
    scheduler: &Scheduler,
    request: &Request<'_>,
    candidates: &[Candidate<'_>],
    state: &SchedulerState,
    now_ms: u64,
    random: &mut dyn FnMut() -> u64,
) -> Result<Vec<(EndpointId, f64)>, SchedulingError> {
    let profile = scheduler.profiles.first().ok_or(SchedulingError::NoProfile)?;
    let sessions = SessionIds::of(scheduler);
    let situation = Situation { request, candidates, state, sessions, now_ms };
    let Scored { kept, scores } = profile::scored(profile, &situation, random)?;
    Ok(situation.at(&kept).map(|c| c.id).zip(scores).collect())
}

/// A profile by index, and the places of those that it keeps, best first.
type Ran = (usize, Vec<usize>);

struct Stages {
    primary: Ran,
    prefill: Option<Ran>,
    encode: Option<Ran>,
}

impl Stages {
    fn only(primary: Ran) -> Self {
        Self { primary, prefill: None, encode: None }
    }
}

struct Runs<'r, 'a> {
    scheduler: &'r Scheduler,
    situation: &'r Situation<'r, 'a>,
    random: &'r mut dyn FnMut() -> u64,
}

impl<'a> Runs<'_, 'a> {
    /// `most`: how many are ranked, if the picker names no more than one.
    fn run(&mut self, at: usize, most: usize) -> Result<Ran, SchedulingError> {
        let profile = self.scheduler.profiles.get(at).ok_or(SchedulingError::NoProfile)?;
        Ok((at, profile::run(profile, self.situation, most, self.random)?))
    }

    fn named_by(&self, header: &str, default: &str) -> Result<usize, SchedulingError> {
        let profiles = &self.scheduler.profiles;
        if profiles.len() == 1 {
            return Ok(0);
        }
        let asked = self.situation.request.header(header);
        let name = asked.filter(|name| !name.is_empty()).unwrap_or(default);
        let at = profiles.iter().position(|profile| profile.name == name);
        at.ok_or(SchedulingError::UnknownProfile)
    }

    fn disagg(&mut self, disagg: &Disagg) -> Result<Stages, SchedulingError> {
        let decode = disagg.decode.ok_or(SchedulingError::NoProfile)?;
        if disagg.prefill_first {
            let prefill = disagg.prefill.and_then(|at| self.run(at, 1).ok());
            let encode = self.stage(disagg.encode, disagg.encode_decider, None);
            return Ok(Stages { primary: self.run(decode, MAX_DESTINATIONS)?, prefill, encode });
        }
        let primary = self.run(decode, MAX_DESTINATIONS)?;
        let picked = primary.1.first().and_then(|at| self.situation.candidates.get(*at));
        let encode = self.stage(disagg.encode, disagg.encode_decider, picked);
        let prefill = self.stage(disagg.prefill, disagg.prefill_decider, picked);
        Ok(Stages { primary, prefill, encode })
    }

    /// A stage whose decider says so. One that finds nobody is done at the decode endpoint instead.
    fn stage(
        &mut self,
        profile: Option<usize>,
        decider: Option<Decider>,
        decode: Option<&Candidate<'a>>,
    ) -> Option<Ran> {
        let (at, decider) = profile.zip(decider)?;
        runs_elsewhere(decider, self.situation.request, decode).then(|| self.run(at, 1).ok())?
    }

    fn decide(&self, stages: Stages) -> Decision {
        let disaggregation = matches!(self.scheduler.handler, Handler::Disagg(_))
            .then(|| Disaggregation::of(stages.prefill.is_some(), stages.encode.is_some()));
        let primary = self.pick(stages.primary);
        let mut decision = Decision {
            reason: self.reason(primary.matched_blocks),
            primary,
            prefill: stages.prefill.map(|ran| self.pick(ran)),
            encode: stages.encode.map(|ran| self.pick(ran)),
            disaggregation,
            headers: Vec::new(),
            destination_port: match &self.scheduler.handler {
                Handler::DataParallel { primary_port } => Some(*primary_port),
                Handler::Disagg(disagg) => disagg.primary_port,
                Handler::Single | Handler::Header { .. } => None,
            },
            session_headers: Vec::new(),
            memories: Vec::new(),
        };
        self.write_headers(&mut decision);
        self.note_sessions(&mut decision);
        self.note_cold(&mut decision);
        decision
    }

    fn pick(&self, (profile, ranked): Ran) -> ProfilePick {
        let candidates = self.situation.candidates;
        let first = ranked.first().and_then(|at| candidates.get(*at));
        ProfilePick {
            profile,
            matched_blocks: first.map_or(0, |c| c.matched_blocks),
            ranked: ranked.iter().filter_map(|at| candidates.get(*at)).map(|c| c.id).collect(),
        }
    }

    fn reason(&self, matched: usize) -> PickReason {
        let longest = self.situation.candidates.iter().map(|c| c.matched_blocks).max();
        match longest.unwrap_or(0) {
            0 => PickReason::Load,
            longest if longest == matched => PickReason::Prefix,
            _ => PickReason::LoadOverPrefix,
        }
    }

    fn write_headers(&self, decision: &mut Decision) {
        let address = |id: EndpointId| {
            let found = self.situation.candidates.iter().find(|c| c.id == id);
            found.map_or("", |c| c.address)
        };
        let addresses =
            |pick: &ProfilePick| pick.ranked.iter().map(|id| address(*id)).collect::<Vec<_>>();
        if let Some(prefill) = decision.prefill.as_ref().map(addresses)
            && let Some(first) = prefill.first()
        {
            decision.headers.push((PREFILL_HEADER, (*first).to_owned()));
        }
        if let Some(encode) = decision.encode.as_ref().map(addresses) {
            decision.headers.push((ENCODE_HEADER, encode.join(",")));
        }
        if decision.destination_port.is_some()
            && let Some(first) = addresses(&decision.primary).first()
        {
            decision.headers.push((DATA_PARALLEL_HEADER, (*first).to_owned()));
        }
    }

    /// The endpoint that a profile of this name picked; of no name, the primary one.
    fn picked_by(&self, decision: &Decision, name: Option<&str>) -> Option<EndpointId> {
        let stages = [Some(&decision.primary), decision.prefill.as_ref(), decision.encode.as_ref()];
        let mut picks = stages.into_iter().flatten();
        let pick = match name {
            None => picks.next(),
            Some(name) => picks.find(|pick| {
                self.scheduler.profiles.get(pick.profile).is_some_and(|p| p.name == name)
            }),
        };
        pick.and_then(|pick| pick.ranked.first().copied())
    }

    fn note_sessions(&self, decision: &mut Decision) {
        for (instance, affinity) in session_plugins(self.scheduler) {
            let profile = affinity.profile.as_deref();
            let Some(picked) = self.picked_by(decision, profile) else { continue };
            match &affinity.strategy {
                SessionStrategy::EncodedEndpoint { header } => {
                    if decision.session_headers.iter().all(|known| known.header != *header) {
                        let endpoint = profile.map(|_| picked);
                        let header = header.clone();
                        decision.session_headers.push(SessionHeader { header, endpoint });
                    }
                }
                SessionStrategy::SessionId { sources, ttl_ms } => {
                    let Situation { request, sessions, state, now_ms, .. } = *self.situation;
                    let Some(session) = session_of(request, sources, sessions) else { continue };
                    // A session stays where it is, even if this request went elsewhere.
                    let table = state.sessions(instance);
                    let bound = table.and_then(|table| table.get(session, now_ms, *ttl_ms));
                    let present =
                        |id: &EndpointId| self.situation.candidates.iter().any(|c| c.id == *id);
                    let endpoint = bound.filter(present).unwrap_or(picked);
                    let instance = instance.to_owned();
                    decision.memories.push(Memory::Session { instance, session, endpoint });
                }
            }
        }
    }

    fn note_cold(&self, decision: &mut Decision) {
        if self.situation.candidates.iter().any(|c| c.matched_blocks > 0) {
            return;
        }
        let scorers = self.scheduler.profiles.iter().flat_map(|profile| &profile.scorers);
        for scorer in scorers {
            let Scorer::NoHitLru { size } = scorer.plugin else { continue };
            let picks = [None, Some("prefill")].map(|name| self.picked_by(decision, name));
            let mut endpoints: Vec<_> = picks.into_iter().flatten().collect();
            endpoints.dedup();
            let instance = scorer.name.clone();
            let known = decision.memories.iter().any(|memory| {
                matches!(memory, Memory::Cold { instance: known, .. } if *known == instance)
            });
            if !known {
                decision.memories.push(Memory::Cold { instance, size, endpoints });
            }
        }
    }
}
