//! The ways to the engines, each started on ports of its own.

mod bootstrap;
mod engines;
mod envoy;
mod extproc;
mod floor;
mod helper;
mod router;
mod warmroute;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use warmroute_demo::processes::{DEBUG_PATH, Envoy, Process, Programs, get, workspace_root};

use crate::cpu::Cores;

pub use engines::StubEngines;
pub use envoy::plain;
pub use extproc::extproc;
pub use floor::floor;
pub use helper::Helper;
pub use router::vllm_router;
pub use warmroute::{Mode, Pool, Warmroute};

/// A way to the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// To an engine, past everything.
    Direct,
    /// The same once more: what differs is the machine's noise.
    DirectAgain,
    /// Envoy with Warmroute's bootstrap, but without the filter.
    Envoy,
    /// Prefixes known from the filter's own picks.
    Warmroute,
    /// Prefixes known from KV events.
    Precise,
    /// The same with tenants and flow control.
    Full,
    /// vLLM's router with its policy `cache_aware`.
    VllmRouter,
    /// Envoy with an endpoint picker behind `ext_proc`.
    Extproc,
    /// Envoy with a wasm filter that does nothing.
    FloorNothing,
    /// One that reads the request's headers.
    FloorHeaders,
    /// One that waits for the request's body and reads it.
    FloorBody,
    /// One that also reads the body's JSON and hashes the prompt.
    FloorPrompt,
}

impl Target {
    /// Its name in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::DirectAgain => "direct-again",
            Self::Envoy => "envoy",
            Self::Warmroute => "warmroute",
            Self::Precise => "warmroute-precise",
            Self::Full => "warmroute-full",
            Self::VllmRouter => "vllm-router",
            Self::Extproc => "extproc",
            Self::FloorNothing => "floor-nothing",
            Self::FloorHeaders => "floor-headers",
            Self::FloorBody => "floor-body",
            Self::FloorPrompt => "floor-prompt",
        }
    }

    /// Whether it is Envoy with the filter.
    #[must_use]
    pub fn has_filter(self) -> bool {
        matches!(self, Self::Warmroute | Self::Precise | Self::Full)
    }

    /// Targets that every base row has; `direct-again` is only measured for the noise.
    #[must_use]
    pub fn base(extproc: bool) -> Vec<Self> {
        let mut all = vec![
            Self::Direct,
            Self::Envoy,
            Self::Warmroute,
            Self::Precise,
            Self::Full,
            Self::VllmRouter,
        ];
        all.extend(extproc.then_some(Self::Extproc));
        all
    }
}

/// A way that is open. The fields are in the order in which they are to end.
pub struct Running {
    /// Which one.
    pub target: Target,
    /// Where requests go.
    pub address: SocketAddr,
    /// The proxy; none on the direct way.
    pub proxy: Option<Process>,
    /// What runs beside it: an agent, a picker.
    pub helper: Option<Helper>,
    /// Envoy's admin interface, if it is one.
    pub admin: Option<SocketAddr>,
}

impl Running {
    /// The direct way.
    #[must_use]
    pub fn direct(target: Target, address: SocketAddr) -> Self {
        Self { target, address, proxy: None, helper: None, admin: None }
    }

    /// Through an Envoy, with `helper` beside it.
    fn through(envoy: Envoy, target: Target, helper: Option<Helper>) -> Self {
        let Envoy { process, listen, admin, .. } = envoy;
        Self { target, address: listen, proxy: Some(process), helper, admin: Some(admin) }
    }

    /// The proxy's process.
    #[must_use]
    pub fn proxy_pids(&self) -> Vec<u32> {
        self.proxy.iter().map(Process::pid).collect()
    }

    /// The process beside it.
    #[must_use]
    pub fn helper_pids(&self) -> Vec<u32> {
        self.helper.iter().map(Helper::pid).collect()
    }

    /// The filter's state, if there is one.
    pub async fn state(&self) -> Option<serde_json::Value> {
        if !self.target.has_filter() {
            return None;
        }
        let answer = get(self.address, DEBUG_PATH).await.ok()?;
        (answer.status == 200).then(|| answer.json())
    }
}

/// What starting anything takes.
pub struct Bench<'a> {
    /// The programs.
    pub programs: &'a Programs,
    /// The folder of the run; each target has one in it.
    pub dir: &'a Path,
    /// Who runs where.
    pub cores: &'a Cores,
}

/// What it borrows.
pub struct Place {
    /// The programs.
    pub programs: Programs,
    /// Who runs where.
    pub cores: Cores,
    /// The folder of the run.
    pub dir: PathBuf,
    /// The folder of the simulated model.
    pub model: PathBuf,
}

impl Place {
    /// The folder `target/run/<name>`, made, with the model in it.
    ///
    /// # Errors
    /// When a program is missing, or a folder cannot be made.
    pub fn prepare(name: &str) -> anyhow::Result<Self> {
        let root = workspace_root()?;
        let dir = root.join("target/run").join(name);
        std::fs::create_dir_all(&dir)?;
        let model = dir.join("model");
        engine_sim::model_folder::write(&model)?;
        Ok(Self { programs: Programs::find(&root)?, cores: Cores::find(), dir, model })
    }

    /// To start things in.
    #[must_use]
    pub fn bench(&self) -> Bench<'_> {
        Bench { programs: &self.programs, dir: &self.dir, cores: &self.cores }
    }
}

impl Bench<'_> {
    /// A folder for one target.
    ///
    /// # Errors
    /// When it cannot be made.
    fn folder(&self, name: &str) -> std::io::Result<std::path::PathBuf> {
        let dir = self.dir.join(name);
        std::fs::create_dir_all(&dir)?;
        dir.canonicalize()
    }
}

/// 127.0.0.1 with this port.
fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
