//! Envoy without the filter.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use warmroute_demo::load;
use warmroute_demo::processes::{
    Bootstrap, Envoy, Ports, Session, WARMROUTE, first_answer_of, render,
};

use super::bootstrap::replace_filter;
use super::{Bench, Running, StubEngines, Target, local};
use crate::workload::MODEL;

/// Name of the pool.
pub(super) const POOL: &str = "default";

/// Envoy with Warmroute's bootstrap, but without the filter: round robin over the same engines.
///
/// # Errors
/// When it does not start.
pub async fn plain(bench: &Bench<'_>, engines: &StubEngines) -> Result<Running> {
    let dir = bench.folder(Target::Envoy.name())?;
    write_endpoints(&dir, &engines.endpoints)?;
    let ports = Ports::free()?;
    let bootstrap = replace_filter(&bootstrap(bench, ports, "", &dir)?, "")?;
    let envoy = start(bench, ports, &bootstrap, &dir).await?;
    Ok(Running::through(envoy, Target::Envoy, None))
}

/// Warmroute's bootstrap, filled in.
pub(super) fn bootstrap(
    bench: &Bench<'_>,
    ports: Ports,
    extra: &str,
    dir: &Path,
) -> Result<String> {
    let template = std::fs::read_to_string(&bench.programs.template)?;
    Ok(render(
        &template,
        &Bootstrap {
            wasm: &bench.programs.wasm,
            listen_port: ports.listen,
            admin_port: ports.admin,
            agent: local(ports.agent),
            eds_dir: &dir.join("eds"),
            pool: POOL,
            // Lines are made, as anywhere; a disk has no say here.
            access_log: Path::new("/dev/null"),
            plugin_config_extra: extra,
        },
    )?)
}

/// Starts Envoy with one worker, on the proxies' core, and waits for a first answer.
pub(super) async fn start(
    bench: &Bench<'_>,
    ports: Ports,
    bootstrap: &str,
    dir: &Path,
) -> Result<Envoy> {
    let path = dir.join("envoy.yaml");
    std::fs::write(&path, bootstrap)?;
    bench.cores.start_proxies();
    let envoy = Envoy::run(bench.programs, &path, ports, 1, &[], dir, Session::Shared).await;
    bench.cores.start_others();
    Ok(envoy?)
}

/// Waits until a chat is answered.
pub(super) async fn served(
    address: SocketAddr,
    dir: &Path,
    headers: &[(&'static str, String)],
) -> Result<()> {
    let mut target = load::Target::new(address, WARMROUTE, Duration::from_secs(5));
    for (name, value) in headers {
        target.headers.insert(*name, value.parse()?);
    }
    Ok(first_answer_of(&target, MODEL, dir).await?)
}

/// What the agent would write for Envoy.
pub(super) fn write_endpoints(dir: &Path, endpoints: &[SocketAddr]) -> Result<()> {
    let eds = dir.join("eds");
    std::fs::create_dir_all(&eds)?;
    let hosts: Vec<_> = endpoints
        .iter()
        .map(|endpoint| {
            let address = json!({"address": endpoint.ip(), "port_value": endpoint.port()});
            json!({"endpoint": {"address": {"socket_address": address}}})
        })
        .collect();
    let resource = |kind: &str, name: &str, hosts: &[serde_json::Value]| json!({"@type": format!("type.googleapis.com/{kind}"), "cluster_name": name, "endpoints": [{"lb_endpoints": hosts}]});
    let kind = "envoy.config.endpoint.v3.ClusterLoadAssignment";
    let list = json!({"version_info": "1", "resources": [resource(kind, POOL, &hosts)]});
    std::fs::write(eds.join(format!("{POOL}.json")), list.to_string())?;
    let none = json!({"version_info": "1", "resources": []});
    std::fs::write(eds.join("clusters.json"), none.to_string())?;
    Ok(())
}
