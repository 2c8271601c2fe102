//! All ways in turn, round after round: what disturbs the machine disturbs all of them.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use warmroute_demo::progress::Progress;

use crate::cpu;
use crate::figures::{Figures, Key, Turn};
use crate::load::{Load, Pace};
use crate::targets::{Running, StubEngines, Target};
use crate::workload::Case;

/// A way, and the engines behind it.
pub struct Way<'a> {
    /// The way.
    pub running: &'a Running,
    /// The engines.
    pub engines: &'a StubEngines,
    /// Blocks in its index, as planned.
    pub index_entries: usize,
}

/// Rounds over some cases.
pub struct Rounds<'a> {
    /// Name of the progress bar.
    pub label: &'a str,
    /// The ways, each measured once in each round and for each case.
    pub ways: Vec<Way<'a>>,
    /// Cases, each with a number of connections.
    pub cases: Vec<(Case, usize)>,
    /// How often.
    pub rounds: usize,
    /// How long each turn is.
    pub slice: Duration,
    /// Connections begin without a request that does not count: where one request is a burden already.
    pub cold: bool,
}

impl Rounds<'_> {
    /// Measures, into `figures`.
    pub async fn run(&self, figures: &mut Figures) {
        let progress = Progress::new(self.label, self.rounds * self.cases.len() * self.ways.len());
        for round in 0..self.rounds {
            for (case, connections) in &self.cases {
                let bodies = case.bodies();
                for turn in 0..self.ways.len() {
                    // Whoever comes first in one round is not the first in the next.
                    let Some(way) = self.ways.get((round + turn) % self.ways.len()) else {
                        continue;
                    };
                    let pace = Pace::Closed { time: self.slice };
                    let turn = way.turn(*case, *connections, &bodies, pace, self.cold).await;
                    progress.step(turn.requests < 1.0);
                    figures.add(way.key(*case, *connections), turn);
                }
            }
        }
    }
}

impl Way<'_> {
    /// What its row is about.
    #[must_use]
    pub fn key(&self, case: Case, connections: usize) -> Key {
        Key {
            case,
            connections,
            target: self.running.target,
            endpoints: self.engines.endpoints.len(),
            index_entries: self.index_entries,
        }
    }

    /// Sends requests for a while, and looks at who used how much for them.
    pub async fn turn(
        &self,
        case: Case,
        connections: usize,
        bodies: &[Bytes],
        pace: Pace,
        cold: bool,
    ) -> Turn {
        let pids = [
            self.running.proxy_pids(),
            self.running.helper_pids(),
            self.engines.pids(),
            vec![std::process::id()],
        ];
        let used = || {
            let mut used = [0.0; 4];
            for (used, pids) in used.iter_mut().zip(&pids) {
                // The generator's children are those that are measured.
                *used = if pids.contains(&std::process::id()) {
                    cpu::own_us()
                } else {
                    cpu::used_us(pids)
                };
            }
            used
        };
        let mut before = used();
        let load = Rc::new(Load::new(case, self.running.address, bodies));
        let measured = load.run(connections, pace, cold, || before = used()).await;
        let mut spent = used();
        spent.iter_mut().zip(before).for_each(|(spent, before)| *spent -= before);
        let state = self.running.state().await.unwrap_or_default();
        Turn {
            rss_mb: cpu::resident_mb(&self.running.proxy_pids()),
            helper_rss_mb: cpu::resident_mb(&self.running.helper_pids()),
            prefix_blocks: state["prefix_blocks"].as_f64().unwrap_or_default(),
            ..Turn::of(measured, spent)
        }
    }
}

/// Base rows that are missing: named so that one can see which.
#[must_use]
pub fn missing(figures: &Figures, extproc: bool) -> Vec<String> {
    let rows: Vec<_> = figures.rows().collect();
    let mut missing = Vec::new();
    for case in Case::BASE {
        for concurrency in crate::plan::CONNECTIONS {
            for target in Target::base(extproc) {
                let there = rows.iter().any(|row| {
                    (row.case, row.concurrency, row.target)
                        == (case.name(), concurrency, target.name())
                        && row.endpoints == crate::plan::ENDPOINTS
                        && row.index_entries == crate::plan::ENTRIES
                });
                if !there {
                    missing.push(format!(
                        "{}, {concurrency} connections, {}",
                        case.name(),
                        target.name()
                    ));
                }
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_row_that_is_not_there_is_named() {
        let mut figures = Figures::default();
        let all = missing(&figures, false).len();
        assert_eq!(all, 4 * 3 * 6);
        let key = crate::figures::tests::key(Target::Envoy);
        figures.add(key, Turn { requests: 1.0, ..Turn::default() });
        // Not a base row.
        figures.add(
            Key { target: Target::Full, index_entries: 1_000_000, ..key },
            Turn { requests: 1.0, ..Turn::default() },
        );
        let left = missing(&figures, false);
        assert_eq!(left.len(), all - 1);
        assert!(left.contains(&"chat-0.5k, 1 connections, warmroute-full".to_owned()));
        assert_eq!(missing(&figures, true).len(), all - 1 + 12);
    }
}
