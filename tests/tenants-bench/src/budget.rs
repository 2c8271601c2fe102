//! Many calls at once on a budget for few, over all workers.

use anyhow::{Result, bail};
use e2e::client;
use e2e::{Setup, Stack};
use serde::Serialize;
use tokio::task::JoinSet;

use crate::bed::{Prompts, WORKERS, chat, keyed, tenant};

const CALLS: usize = 50;
const BUDGET: usize = 5;
/// Rounds for each kind of budget, each with a tenant of its own.
const ROUNDS: usize = 10;
/// Kinds of budgets. The third has room for five answers of 1,000 tokens with short prompts.
const LIMITS: [&str; 3] = ["rpm: 5", "concurrency: 5", "inflightTokens: 5900"];
const REPLY: usize = 1_000;

/// How many were admitted.
#[derive(Clone, Debug, Serialize)]
pub struct Budgets {
    /// Admitted beyond (or, if negative, below) the budget, in the round that was furthest off.
    pub overshoot: i64,
    /// Admitted in each round.
    pub admitted: Vec<usize>,
}

/// Runs all rounds.
///
/// # Errors
/// When a call is answered by anything but 200 or 429.
pub async fn measure() -> Result<Budgets> {
    let name = |kind: usize, round: usize| format!("t{kind}-{round}");
    let mut documents = String::new();
    for (kind, limit) in LIMITS.iter().enumerate() {
        for round in 0..ROUNDS {
            let spec = format!("  limits: [{{model: '*', {limit}}}]");
            documents.push_str(&tenant(&name(kind, round), &spec));
        }
    }
    // An answer of 1,000 tokens takes a second: all calls are there before the first of them ends.
    let arguments = ["--time-scale", "10", "--record-requests", "0"];
    let stack =
        Stack::start(Setup::new(2, WORKERS).document(&documents).simulator(&arguments)).await?;
    let prompts = Prompts::new()?;
    let mut rounds = JoinSet::new();
    let mut admitted = vec![0; LIMITS.len() * ROUNDS];
    for round in 0..ROUNDS {
        for kind in 0..LIMITS.len() {
            let mut calls = JoinSet::new();
            // The budget of requests fills up again: one more after twelve seconds.
            let reply = if kind == 0 { 1 } else { REPLY };
            for _ in 0..CALLS {
                let request = keyed(&name(kind, round), &chat(&prompts.text(30)?, reply));
                let listen = stack.listen();
                calls.spawn(async move { client::send(listen, &request).await });
            }
            rounds.spawn(async move {
                let mut admitted = 0;
                while let Some(answer) = calls.join_next().await {
                    let answer = answer??;
                    match answer.status {
                        200 => admitted += 1,
                        429 => {}
                        other => bail!("{other}: {}", answer.text()),
                    }
                }
                Ok((round * LIMITS.len() + kind, admitted))
            });
        }
        // One round of each kind at a time.
        while let Some(ended) = rounds.join_next().await {
            let (at, count) = ended??;
            admitted[at] = count;
        }
    }
    Ok(Budgets { overshoot: furthest(&admitted), admitted })
}

fn furthest(admitted: &[usize]) -> i64 {
    let off = admitted.iter().map(|&count| count as i64 - BUDGET as i64);
    off.max_by_key(|off| off.abs()).unwrap_or(0)
}

impl Budgets {
    /// What is not as it should be.
    #[must_use]
    pub fn missed(&self) -> Vec<String> {
        if self.overshoot == 0 && self.admitted.len() == LIMITS.len() * ROUNDS {
            return Vec::new();
        }
        vec![format!("{CALLS} calls on a budget for {BUDGET}: {:?} were admitted", self.admitted)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_that_is_furthest_off_counts() {
        let cases: &[(&[usize], i64)] = &[(&[5, 5], 0), (&[5, 6, 4, 7], 2), (&[6, 2, 5], -3)];
        for (admitted, off) in cases {
            assert_eq!(furthest(admitted), *off, "{admitted:?}");
        }
        let mut budgets = Budgets { overshoot: 0, admitted: vec![5; LIMITS.len() * ROUNDS] };
        assert!(budgets.missed().is_empty());
        budgets.overshoot = 1;
        assert!(!budgets.missed().is_empty());
    }
}
