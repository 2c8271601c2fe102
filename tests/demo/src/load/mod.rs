//! A closed-loop load generator: a fixed number of requests in flight, each over a new connection.

mod request;
mod sse;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use crate::workload::{Prompt, Workload};

pub use request::{ENDPOINT_HEADER, Failure, Outcome, Target, send};
pub use sse::{SseReader, StreamFacts};

/// A request that has ended, and which one it was.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Turn, from 0.
    pub turn: usize,
    /// Conversation.
    pub conversation: usize,
    /// What became of it.
    pub outcome: Outcome,
}

/// Sends a whole workload: `in_flight` at once, all of a turn before the next one.
///
/// `on_end` is called after each request, from the task that sent it.
pub async fn run<F>(
    workload: &Workload,
    target: &Target,
    in_flight: usize,
    on_end: F,
) -> Vec<Sample>
where
    F: Fn(&Outcome) + Send + Sync + 'static,
{
    let on_end = Arc::new(on_end);
    let target = Arc::new(target.clone());
    let mut samples = Vec::with_capacity(workload.requests());
    for (turn, prompts) in workload.turns.iter().enumerate() {
        samples.extend(run_turn(turn, prompts, &target, in_flight, &on_end).await);
    }
    samples
}

async fn run_turn<F>(
    turn: usize,
    prompts: &[Prompt],
    target: &Arc<Target>,
    in_flight: usize,
    on_end: &Arc<F>,
) -> Vec<Sample>
where
    F: Fn(&Outcome) + Send + Sync + 'static,
{
    // Bodies are reference-counted: this copies no prompt.
    let prompts: Arc<Vec<Prompt>> = Arc::new(prompts.to_vec());
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for _ in 0..in_flight.max(1) {
        let (prompts, next) = (Arc::clone(&prompts), Arc::clone(&next));
        let (target, on_end) = (Arc::clone(target), Arc::clone(on_end));
        workers.spawn(async move {
            let mut samples = Vec::new();
            while let Some(prompt) = prompts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = send(&target, prompt.body.clone()).await;
                on_end(&outcome);
                samples.push(Sample { turn, conversation: prompt.conversation, outcome });
            }
            samples
        });
    }
    workers.join_all().await.into_iter().flatten().collect()
}
