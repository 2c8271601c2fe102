//! What it costs. Latency: one large chat body, through Envoy with and without it, and past Envoy.
//!
//! Single figures mean little on a shared machine. So the three ways are measured in turn, in many
//! short rounds of one run, and compared within each round.

mod figures;
mod kv_rate;
mod kv_scale;
mod link;
mod stub;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use serde_json::json;

use crate::processes::{
    Agent, Envoy, Ports, ProcessError, Programs, ROUND_ROBIN, Session, WARMROUTE, first_answer,
    write_endpoints,
};
use crate::progress::Progress;

pub use figures::{Bench, Spread};
pub use kv_rate::KvRate;
pub use kv_scale::{KvScale, kv_scale};
pub use link::LinkError;

use link::Link;

/// Size of the body, that of the best public measurement of an endpoint picker.
const BODY_BYTES: usize = 220_000;
/// Different bodies, so that not all of them are known to the filter's index from the start.
const BODIES: usize = 16;
const ROUNDS: usize = 40;
const REQUESTS_A_ROUND: usize = 16;
const WARM_UP_ROUNDS: usize = 4;

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A program did not do its part.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A request failed.
    #[error("{way}: {source}")]
    Request {
        /// Which of the three ways.
        way: &'static str,
        /// Why.
        source: LinkError,
    },
    /// A socket, a file or a program.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The agent's measurement of KV events failed.
    #[error("kv_index_bench printed no figures: {0}")]
    KvRate(String),
}

/// The three ways, in the order of the figures.
const WAYS: [(&str, &str); 3] =
    [("direct", WARMROUTE), ("envoy", ROUND_ROBIN), ("warmroute", WARMROUTE)];

/// Measures the three ways, with all programs started in the folder `dir`.
///
/// # Errors
/// When a program does not start or a request fails: then there is nothing to compare.
pub async fn bench(programs: &Programs, dir: &Path) -> Result<Bench, BenchError> {
    std::fs::create_dir_all(dir)?;
    let dir = dir.canonicalize()?;
    let upstream = stub::serve().await?;
    write_endpoints(&dir, &[upstream])?;
    let ports = Ports::free()?;
    let address = SocketAddr::from(([127, 0, 0, 1], ports.agent));
    let agent = Agent::start(programs, address, &dir, "default", &[], Session::Shared).await?;
    let envoy = Envoy::start(programs, ports, 1, "default", "", &dir, Session::Shared).await?;
    for path in [ROUND_ROBIN, WARMROUTE] {
        first_answer(envoy.listen, path, "llama-70b", &dir).await?;
    }

    let bodies: Vec<Bytes> = (0..BODIES).map(body).collect();
    let failed = |way| move |source| BenchError::Request { way, source };
    let mut links = Vec::new();
    for (way, path) in WAYS {
        let target = if way == "direct" { upstream } else { envoy.listen };
        links.push((way, Link::open(target, path).await.map_err(failed(way))?));
    }
    let progress = Progress::new("bench", ROUNDS);
    let mut rounds = Vec::with_capacity(ROUNDS);
    for round in 0..WARM_UP_ROUNDS + ROUNDS {
        let mut micros = [(); 3].map(|()| Vec::with_capacity(REQUESTS_A_ROUND));
        for request in 0..REQUESTS_A_ROUND {
            let body = &bodies[(round * REQUESTS_A_ROUND + request) % BODIES];
            // Whoever comes first has the colder caches: take turns.
            for turn in 0..WAYS.len() {
                let index = (request + turn) % WAYS.len();
                let (way, link) = &mut links[index];
                let start = Instant::now();
                link.post(body.clone()).await.map_err(failed(way))?;
                micros[index].push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        if round >= WARM_UP_ROUNDS {
            rounds.push(micros);
            progress.step(false);
        }
    }
    drop((envoy, agent));
    Ok(Bench::of(bodies[0].len(), &rounds))
}

/// A chat of several messages, about [`BODY_BYTES`] long; `seed` makes it differ from its first
/// message on.
fn body(seed: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(seed as u64);
    let mut text = |length: usize| -> String {
        let mut text = String::with_capacity(length + 8);
        while text.len() < length {
            for _ in 0..random.usize(2..9) {
                text.push(random.lowercase());
            }
            text.push(if random.u8(..) < 6 { '\n' } else { ' ' });
        }
        text
    };
    let messages: Vec<_> = (0..20)
        .map(|index| {
            let role =
                ["system", "user", "assistant"][if index == 0 { 0 } else { 1 + (index + 1) % 2 }];
            json!({"role": role, "content": text(BODY_BYTES / 20 - 60)})
        })
        .collect();
    Bytes::from(json!({"model": "llama-70b", "messages": messages, "max_tokens": 16}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_size_and_differ() {
        let (one, other) = (body(0), body(1));
        assert!(one.len().abs_diff(BODY_BYTES) < 2_000, "{}", one.len());
        assert_ne!(one, other);
        assert_eq!(one, body(0));
        let parsed: serde_json::Value = serde_json::from_slice(&one).unwrap();
        assert_eq!(parsed["messages"][0]["role"], "system");
        assert_eq!(parsed["messages"][1]["role"], "user");
        assert_eq!(parsed["messages"][2]["role"], "assistant");
    }
}
