//! What is measured once, and is no row: decisions at a steady rate, the VM's memory, the agent alone.

mod agent;
mod decisions;
mod memory;

use serde::Serialize;

pub use agent::{AgentCost, agent_cost};
pub use decisions::{Steady, steady};
pub use memory::{Memory, memory};

/// All of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Extras {
    /// Requests at a steady rate, one entry a way.
    pub steady: Vec<Steady>,
    /// Memory with prompts of 4 MB.
    pub memory: Vec<Memory>,
    /// The agent alone.
    pub agent: Option<AgentCost>,
}

impl Extras {
    /// 95th percentile of the filter's decisions, with nothing configured but the engines.
    #[must_use]
    pub fn decision_p95_us(&self) -> Option<f64> {
        let of = |steady: &&Steady| steady.target == crate::targets::Target::Warmroute.name();
        self.steady.iter().find(of)?.decision_p95_us
    }

    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = String::new();
        let number = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
        };
        for one in &self.steady {
            out.push_str(&format!(
                "{} at {:.0} requests/s (open loop, {} requests): p50 {:.0} us, p99 {:.0} us, {} failed; decisions p50 {} us, \
                 p95 {} us\n",
                one.target,
                one.rate,
                one.requests,
                one.p50_us,
                one.p99_us,
                one.failures,
                number(one.decision_p50_us),
                number(one.decision_p95_us),
            ));
        }
        for one in &self.memory {
            out.push_str(&format!(
                "VM of {} with a body of {:.1} MB ({}): {:.1} MB before, {:.1} after one, {:.1} after {}\n",
                one.target,
                one.body_mb,
                if one.spliced { "spliced" } else { "nothing spliced" },
                one.before_mb,
                one.after_first_mb,
                one.after_all_mb,
                one.requests,
            ));
        }
        if let Some(agent) = &self.agent {
            out.push_str(&format!(
                "agent with {} endpoints of {} kB: {:.2} cores, {:.0} MB, {:.0} scrapes/s\n",
                agent.endpoints,
                agent.metrics_bytes / 1_000,
                agent.cores,
                agent.rss_mb,
                agent.scrapes_per_s,
            ));
        }
        out
    }
}
