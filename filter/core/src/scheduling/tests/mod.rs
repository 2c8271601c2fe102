//! Scheduling by plugins as the agent reads them.

mod filters;
mod handlers;
mod pickers;
mod scores;
mod states;
mod worked_example;

use super::*;
use serde_json::Value;
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::plugin::{self, Picker, Plugin};
use warmroute_shared_state::policy::scheduler::{
    Handler, Named, Profile, Scheduler, WeightedScorer,
};
use warmroute_shared_state::signals::{Adapters, Signals};

/// An endpoint of which nothing is known.
fn candidate(n: u64) -> Candidate<'static> {
    Candidate::unknown(EndpointId(n), "ns/pod", "10.0.0.1:8000")
}

/// One that holds nothing and has nothing to do.
fn idle(n: u64) -> Candidate<'static> {
    Candidate { waiting: Some(0.0), running: Some(0.0), kv_usage: Some(0.0), ..candidate(n) }
}

fn request(prompt_blocks: usize, headers: &dyn Headers) -> Request<'_> {
    Request { target_model: "lora-a", prompt_blocks, multimodal: false, headers }
}

fn random() -> impl FnMut() -> u64 {
    let mut state = 1u64;
    move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// A profile of these plugins, in order, with weights.
fn profile(name: &str, plugins: &[(&str, Value, f64)]) -> Profile {
    let picker = Named { name: "picker".into(), plugin: Picker::default() };
    let mut profile =
        Profile { name: name.into(), filters: Vec::new(), scorers: Vec::new(), picker };
    for (kind, parameters, weight) in plugins {
        let plugin = plugin::read(kind, parameters).unwrap().plugin;
        let name = (*kind).to_owned();
        if let Some(plugin) = plugin.filter() {
            profile.filters.push(Named { name: name.clone(), plugin });
        }
        if let Some(plugin) = plugin.scorer() {
            profile.scorers.push(WeightedScorer { name: name.clone(), plugin, weight: *weight });
        }
        if let Plugin::Picker(plugin) = plugin {
            profile.picker = Named { name, plugin };
        }
    }
    profile
}

fn scheduler(profiles: Vec<Profile>, handler: Handler) -> Scheduler {
    Scheduler { profiles, handler, ..Scheduler::default() }
}

fn single(plugins: &[(&str, Value, f64)]) -> Scheduler {
    scheduler(vec![profile("default", plugins)], Handler::Single)
}

fn decide(
    scheduler: &Scheduler,
    request: &Request<'_>,
    candidates: &[Candidate<'_>],
) -> Result<Decision, SchedulingError> {
    schedule(scheduler, request, candidates, &SchedulerState::default(), 0, &mut random())
}

/// What each of those that are kept gets.
fn totals(
    scheduler: &Scheduler,
    request: &Request<'_>,
    candidates: &[Candidate<'_>],
) -> Result<Vec<(u64, f64)>, SchedulingError> {
    let state = SchedulerState::default();
    let scores = super::scores(scheduler, request, candidates, &state, 0, &mut random())?;
    Ok(scores.into_iter().map(|(id, score)| (id.0, score)).collect())
}

/// Scores of one scorer, rounded.
fn scores(kind: &str, parameters: Value, blocks: usize, candidates: &[Candidate<'_>]) -> Vec<f64> {
    let scheduler = single(&[(kind, parameters, 1.0)]);
    let totals = totals(&scheduler, &request(blocks, &[]), candidates).unwrap();
    totals.iter().map(|(_, score)| (score * 1000.0).round() / 1000.0).collect()
}

/// Endpoints that one filter keeps.
fn kept(
    kind: &str,
    parameters: Value,
    headers: &dyn Headers,
    candidates: &[Candidate<'_>],
) -> Vec<u64> {
    match totals(&single(&[(kind, parameters, 1.0)]), &request(10, headers), candidates) {
        Ok(totals) => totals.iter().map(|(id, _)| *id).collect(),
        Err(SchedulingError::NoneLeft { .. }) => Vec::new(),
        Err(other) => panic!("{other}"),
    }
}

/// Labels, as an endpoint's record has them.
fn labels(label: &[(&str, &str)]) -> Vec<(String, String)> {
    label.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn adapters(active: &[&str], waiting: &[&str], max: u32) -> Signals {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let adapters = Adapters { active: names(active), waiting: names(waiting), max };
    Signals { adapters: Some(adapters), attributes: Vec::new() }
}
