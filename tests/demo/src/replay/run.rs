//! Replays a slice against each target.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::figures::{CaseReport, Row};
use super::proxy::{CHATS, Proxy};
use super::{Memory, ReplayError, Request, Slice, Target, Writer};
use crate::load::{self, Outcome};
use crate::processes::{Programs, Session, Simulator, SimulatorOptions};
use crate::progress::Progress;
use crate::workload::BLOCK_TOKENS;

/// Engines.
pub const REPLICAS: usize = 8;

/// Longest prompt and answer together that the engines take, in tokens.
const MAX_MODEL_LEN: usize = 131_072;

/// Answers have so many times fewer tokens than in the trace, each of which takes so many times
/// longer: a request is in the engine for as long, and its stream costs this machine less.
const REPLY_DIVISOR: usize = 8;

/// Milliseconds in which the engines decode a token of the trace's answers.
const DECODE_MS: usize = 10;

/// Limit for one request.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Encodes at once before a case, one for each of the simulator's threads.
const ENCODERS: usize = 2;

/// What a replay is made of, apart from the slice.
pub struct Setup<'a> {
    /// The programs.
    pub programs: &'a Programs,
    /// Writes the prompts.
    pub writer: &'a Writer,
    /// Model name.
    pub model: &'a str,
    /// How many times faster than the trace time passes, for arrivals and engines alike.
    pub time_scale: f64,
    /// Envoy's worker threads.
    pub workers: usize,
    /// Folder for configuration and logs.
    pub dir: &'a Path,
}

impl Setup<'_> {
    /// Replays the slice against each of `targets` in turn, on engines with so much memory, which
    /// start with empty caches each time.
    ///
    /// # Errors
    /// When it could not be measured. Failed requests are figures, not errors.
    pub async fn measure(
        &self,
        slice: &Arc<Slice>,
        memory: Memory,
        targets: &[Target],
    ) -> Result<CaseReport, ReplayError> {
        let dir = self.dir.join(memory.name());
        std::fs::create_dir_all(&dir)?;
        let folder = dir.join("model");
        engine_sim::model_folder::write(&folder)?;
        let blocks = memory.blocks(slice, REPLICAS).max(MAX_MODEL_LEN / BLOCK_TOKENS + 1);
        let engines = self.engines(slice, blocks, &dir).await?;
        self.encode_all(slice, &engines, memory).await?;
        let mut rows = Vec::new();
        for target in targets {
            engines.reset().await?;
            let dir = dir.join(target.name());
            let served = (self.model, folder.as_path());
            let proxy =
                Proxy::start(self.programs, *target, &engines, served, self.workers, &dir).await?;
            let label = format!("{}: {}", memory.name(), target.name());
            let start = Instant::now();
            let answers = self.send_all(slice, &proxy, &label).await;
            rows.push(Row::of(*target, &answers, slice, &engines.replicas, start.elapsed()));
        }
        Ok(CaseReport { memory, kv_tokens_per_replica: blocks * BLOCK_TOKENS, rows })
    }

    async fn engines(
        &self,
        slice: &Slice,
        blocks: usize,
        dir: &Path,
    ) -> Result<Simulator, ReplayError> {
        let mut options = SimulatorOptions::new(REPLICAS);
        self.model.clone_into(&mut options.model);
        // The memo keeps half of its limit for certain.
        let memo = slice.working_set_tokens * 5 / 2 + 1_000_000;
        let decode_ms = DECODE_MS * REPLY_DIVISOR;
        options.arguments = vec!["--kv-events".to_owned()];
        for (flag, value) in [
            ("--num-blocks", blocks.to_string()),
            ("--max-model-len", MAX_MODEL_LEN.to_string()),
            ("--time-scale", self.time_scale.to_string()),
            ("--decode-ms", decode_ms.to_string()),
            ("--memo-tokens", memo.to_string()),
        ] {
            options.arguments.extend([flag.to_owned(), value]);
        }
        Ok(Simulator::start(self.programs, &options, dir, Session::Shared).await?)
    }

    /// Has the simulator encode all prompts, which takes longer than all the rest: else the first
    /// target would pay for it.
    async fn encode_all(
        &self,
        slice: &Slice,
        engines: &Simulator,
        memory: Memory,
    ) -> Result<(), ReplayError> {
        let Some(first) = engines.replicas.first() else { return Ok(()) };
        let label = format!("{}: encoding", memory.name());
        let progress = Progress::new(&label, slice.requests.len());
        let target = load::Target::new(*first, "/tokenize", TIMEOUT);
        let next = std::sync::atomic::AtomicUsize::new(0);
        let encoder = async || {
            let relaxed = std::sync::atomic::Ordering::Relaxed;
            while let Some(request) = slice.requests.get(next.fetch_add(1, relaxed)) {
                let outcome = load::send(&target, self.body(request)).await;
                progress.step(outcome.status != Some(200));
                if outcome.status != Some(200) {
                    return Err(ReplayError::Encode(outcome.status));
                }
            }
            Ok(())
        };
        let encoders: [_; ENCODERS] = std::array::from_fn(|_| encoder());
        let [first, second] = encoders;
        tokio::try_join!(first, second).map(drop)
    }

    fn body(&self, request: &Request) -> Bytes {
        self.writer.body(request, request.reply_tokens.div_ceil(REPLY_DIVISOR).max(1))
    }

    /// Sends each request when it is due, whatever became of the others.
    async fn send_all(&self, slice: &Arc<Slice>, proxy: &Proxy, label: &str) -> Vec<Answer> {
        let progress = Arc::new(Progress::new(label, slice.requests.len()));
        let target = load::Target::new(proxy.listen(), CHATS, TIMEOUT);
        let start = Instant::now() + Duration::from_millis(100);
        let mut answers = JoinSet::new();
        for request in &slice.requests {
            let body = self.body(request);
            let mut target = target.clone();
            let session = HeaderValue::from(request.session);
            target.headers.insert(HeaderName::from_static("x-session-id"), session);
            let due = start + request.at.div_f64(self.time_scale);
            tokio::time::sleep_until(due).await;
            let late = due.elapsed();
            let progress = Arc::clone(&progress);
            answers.spawn(async move {
                let outcome = load::send(&target, body).await;
                progress.step(outcome.failure.is_some());
                Answer { outcome, late }
            });
        }
        answers.join_all().await
    }
}

/// What became of a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// As it was answered.
    pub outcome: Outcome,
    /// How late it was sent: this machine had other things to do.
    pub late: Duration,
}
