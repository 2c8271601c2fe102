//! vLLM's own router, from PyPI.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use warmroute_demo::processes::{Process, Session, free_ports};

use super::engines::answers;
use super::{Bench, Running, StubEngines, Target, envoy, local};

/// Starts `program`, vLLM's router, with its policy `cache_aware` on the proxies' core.
///
/// # Errors
/// When it does not start.
pub async fn vllm_router(
    bench: &Bench<'_>,
    engines: &StubEngines,
    program: &Path,
) -> Result<Running> {
    let dir = bench.folder(Target::VllmRouter.name())?;
    let [listen, metrics] = free_ports()?;
    let mut arguments: Vec<String> =
        ["--host", "127.0.0.1", "--policy", "cache_aware", "--log-level", "error"]
            .map(str::to_owned)
            .into();
    arguments.extend(["--port".to_owned(), listen.to_string()]);
    arguments.extend(["--prometheus-port".to_owned(), metrics.to_string()]);
    arguments.push("--worker-urls".to_owned());
    arguments.extend(engines.endpoints.iter().map(|endpoint| format!("http://{endpoint}")));
    bench.cores.start_proxies();
    let process = Process::start("vllm-router", program, &arguments, &dir, Session::Shared);
    bench.cores.start_others();
    let mut process = process?;
    let address = local(listen);
    process.wait_ready(Duration::from_secs(60), async || answers(address, "/health").await).await?;
    envoy::served(address, &dir, &[]).await?;
    Ok(Running {
        target: Target::VllmRouter,
        address,
        proxy: Some(process),
        helper: None,
        admin: None,
    })
}
