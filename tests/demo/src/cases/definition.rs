//! What the cases are: plain data.

use std::time::Duration;

use crate::workload::{BLOCK_TOKENS, Shape};

/// A replica whose KV memory is mostly held by requests that outlast the case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Occupied {
    /// Which replica, from 0.
    pub replica: usize,
    /// The share of its blocks that is held.
    pub fraction: f64,
}

/// One comparison of round robin with Warmroute.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// As in the report.
    pub name: &'static str,
    /// What it shows, to be read after what it sends.
    pub what: &'static str,
    /// The conversations.
    pub shape: Shape,
    /// Replicas.
    pub replicas: usize,
    /// KV memory of each, in tokens.
    pub kv_tokens: usize,
    /// How many times faster than real the engines run. Times are reported as measured.
    pub time_scale: f64,
    /// Requests in flight.
    pub in_flight: usize,
    /// A replica that is all but full.
    pub occupied: Option<Occupied>,
    /// Limit for one request.
    pub timeout: Duration,
}

impl Case {
    /// KV blocks of each replica.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.kv_tokens / BLOCK_TOKENS
    }

    /// What it sends and what that shows, for people.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Shape { conversations, base_tokens, turn_tokens, turns, .. } = self.shape;
        format!(
            "{conversations} conversations of {base_tokens} tokens and {turn_tokens} more a turn, {turns} turns. {}",
            self.what
        )
    }

    /// The working set as a multiple of all KV memory.
    #[must_use]
    pub fn pressure(&self) -> f64 {
        self.shape.working_set() as f64 / (self.replicas * self.kv_tokens) as f64
    }
}

/// The three cases, in the order in which they are run; `quick` ones show the same in seconds, less
/// exactly.
#[must_use]
pub fn all(quick: bool) -> Vec<Case> {
    let article = Case {
        name: "article",
        what: "Their caches fit into the replicas' memory.",
        shape: Shape {
            conversations: 64,
            base_tokens: 7_000,
            turn_tokens: 200,
            turns: 6,
            max_tokens: 32,
            seed: 7,
        },
        replicas: 4,
        kv_tokens: 160_000,
        time_scale: 1.0,
        in_flight: 16,
        occupied: None,
        timeout: Duration::from_secs(120),
    };
    let oversubscribed = Case {
        name: "oversubscribed",
        what: "Most caches are gone before the next turn, whoever routes.",
        shape: Shape { conversations: 512, turns: 2, seed: 8, ..article.shape },
        time_scale: 6.0,
        ..article.clone()
    };
    let full_replica = Case {
        name: "full_replica",
        what: "One replica's KV memory is 95% held by requests that outlast the case; what is left \
               admits one request at a time.",
        // Of the 8,000 tokens that are left any prompt takes more than half, so requests queue there.
        // Many conversations, so that round robin, which sends it a quarter of them, fills that queue.
        shape: Shape { conversations: 80, base_tokens: 4_200, turns: 4, seed: 9, ..article.shape },
        occupied: Some(Occupied { replica: 3, fraction: 0.95 }),
        ..article.clone()
    };
    let cases = vec![article, oversubscribed, full_replica];
    if quick { cases.into_iter().map(shrink).collect() } else { cases }
}

fn shrink(mut case: Case) -> Case {
    match case.name {
        "oversubscribed" => {
            // An eighth of the conversations for an eighth of the memory.
            case.shape.conversations = 64;
            case.kv_tokens /= 8;
        }
        _ => {
            case.shape.conversations = 24;
            case.shape.turns = 4;
            case.time_scale = 4.0;
        }
    }
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_come_in_the_order_of_the_report() {
        for quick in [false, true] {
            let names: Vec<&str> = all(quick).iter().map(|case| case.name).collect();
            assert_eq!(names, ["article", "oversubscribed", "full_replica"]);
        }
    }

    #[test]
    fn working_sets_stand_to_the_memory_as_the_cases_say() {
        for quick in [false, true] {
            for case in all(quick) {
                let pressure = case.pressure();
                match case.name {
                    "oversubscribed" => assert!((5.5..=6.5).contains(&pressure), "{pressure}"),
                    _ => assert!(pressure < 0.9, "{}: {pressure}", case.name),
                }
            }
        }
    }

    #[test]
    fn a_full_replica_admits_one_request_at_a_time_and_the_others_hold_all_conversations() {
        for quick in [false, true] {
            let case = all(quick).pop().unwrap();
            let occupied = case.occupied.unwrap();
            let longest = case.shape.base_tokens + case.shape.turns * case.shape.turn_tokens;
            let left = case.kv_tokens as f64 * (1.0 - occupied.fraction);
            assert!((longest + 32) as f64 <= left, "{longest} > {left}");
            assert!((2 * case.shape.base_tokens) as f64 > left, "two fit into {left}");
            assert!(case.shape.working_set() < (case.replicas - 1) * case.kv_tokens);
        }
    }
}
