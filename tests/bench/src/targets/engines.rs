//! The stub's process.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value;
use warmroute_demo::processes::{Process, Session, get, get_for};

use super::Bench;
use crate::stub::{Options, Ready};
use crate::workload::Length;

const PATIENCE: Duration = Duration::from_secs(60);

/// Engines that answer at once, in a process of their own.
#[derive(Debug)]
pub struct StubEngines {
    process: Process,
    /// Each engine's address.
    pub endpoints: Vec<SocketAddr>,
}

impl StubEngines {
    /// Starts this program as a stub, under a name for its logs.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(bench: &Bench<'_>, name: &str, options: Options) -> Result<Self> {
        bench.cores.start_others();
        let own = std::env::current_exe()?;
        let mut arguments = vec![
            "stub".to_owned(),
            format!("--endpoints={}", options.endpoints),
            format!("--metrics-bytes={}", options.metrics_bytes),
        ];
        arguments.extend(options.events.then(|| "--events".to_owned()));
        let dir = bench.folder(name)?;
        let mut process = Process::start("stub", &own, &arguments, &dir, Session::Shared)?;
        let output = process.output();
        let ready = async || {
            let text = std::fs::read_to_string(&output).ok()?;
            serde_json::from_str::<Ready>(text.strip_suffix('\n')?).ok()
        };
        let Ready { endpoints } = process.wait_ready(PATIENCE, ready).await?;
        Ok(Self { process, endpoints })
    }

    /// Any of the engines.
    ///
    /// # Errors
    /// When there is none.
    pub fn first(&self) -> Result<SocketAddr> {
        self.endpoints.first().copied().context("a stub without engines")
    }

    /// Has every engine tell that it holds all prompts of this length.
    ///
    /// # Errors
    /// When it does not.
    pub async fn hold(&self, length: Length) -> Result<()> {
        self.order(&format!("/bench/hold?{}", length.name())).await.map(drop)
    }

    /// Has the engines tell that they hold other prompts, of so many blocks of the index.
    ///
    /// # Errors
    /// When they do not.
    pub async fn fill(&self, blocks: usize) -> Result<()> {
        self.order(&format!("/bench/fill?{blocks}")).await.map(drop)
    }

    async fn order(&self, path: &str) -> Result<Value> {
        // What takes longer than this: the stub goes on, and is asked again by nobody.
        let answer = get_for(PATIENCE * 2, self.first()?, path).await?.json();
        anyhow::ensure!(answer.is_object() && answer["error"].is_null(), "{path}: {answer}");
        Ok(answer)
    }

    /// The process.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        vec![self.process.pid()]
    }
}

/// Waits until `address` answers `path` with 200.
pub(super) async fn answers(address: SocketAddr, path: &str) -> Option<()> {
    get(address, path).await.ok().filter(|answer| answer.status == 200).map(drop)
}
