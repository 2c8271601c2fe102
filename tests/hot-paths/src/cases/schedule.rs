//! Filter, score, pick.

use super::Work;
use warmroute_core::scheduling::{Candidate, Request, SchedulerState, schedule};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::policy::scheduler::Scheduler;

/// One pick by llm-d's defaults among so many endpoints, all with different loads.
pub(super) fn score(endpoints: u16) -> Work {
    let names: Vec<_> = (0..endpoints)
        .map(|n| (format!("default/r{n}"), format!("10.0.{}.{}:8000", n / 250, n % 250)))
        .collect();
    let scheduler = Scheduler::default();
    let state = SchedulerState::default();
    let mut seed = 1_u64;
    Box::new(move || {
        let candidates: Vec<_> = names
            .iter()
            .zip(0..endpoints)
            .map(|((name, address), n)| Candidate {
                waiting: Some(f32::from(n % 7)),
                running: Some(f32::from(n % 11)),
                kv_usage: Some(f32::from(n % 13) / 13.0),
                matched_blocks: usize::from(n % 5) * 100,
                matched_tokens: u64::from(n % 5) * 3_200,
                prompt_tokens: 55_000,
                ..Candidate::unknown(EndpointId(n.into()), name, address)
            })
            .collect();
        let headers = [("x-request-id", "r")];
        let request = Request {
            target_model: "m",
            prompt_blocks: 1_700,
            multimodal: false,
            headers: &headers,
        };
        let mut random = || {
            seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
            seed
        };
        let picked = schedule(&scheduler, &request, &candidates, &state, 1_000, &mut random);
        picked.map_or(0, |decision| decision.primary.matched_blocks as u64 + 1)
    })
}
