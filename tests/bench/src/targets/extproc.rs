//! Envoy with an endpoint picker behind `ext_proc`, as an inference gateway has it.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use warmroute_demo::processes::{Ports, free_ports, get};

use super::bootstrap::replace_filter;
use super::{Bench, Helper, Running, StubEngines, Target, envoy, local};

const FILTER: &str = r#"          - name: envoy.filters.http.ext_proc
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: { envoy_grpc: { cluster_name: extproc }, timeout: 60s }
              message_timeout: 60s
              processing_mode:
                request_header_mode: SEND
                response_header_mode: SEND
                request_body_mode: FULL_DUPLEX_STREAMED
                response_body_mode: FULL_DUPLEX_STREAMED
                request_trailer_mode: SEND
                response_trailer_mode: SEND
"#;

/// Counts requests that go to an engine with a pick: without one Envoy goes round robin, and answers come all the same.
const PICKED: &str = r#"              virtual_clusters:
              - name: picked
                headers: [{ name: x-gateway-destination-endpoint, present_match: true }]
"#;
/// The counter's place.
const HOST: &str = "              domains: [\"*\"]\n";

/// Starts `command`, a shell command that runs a picker, and Envoy before it.
///
/// The command is told by its environment where to listen: `EPP_GRPC_PORT` (plain HTTP/2), `EPP_HEALTH_PORT` and
/// `EPP_METRICS_PORT`; and `EPP_ENDPOINTS`, a file in llm-d's file-discovery form with the engines.
///
/// # Errors
/// When one of them does not start, or the picker picks nobody.
pub async fn extproc(bench: &Bench<'_>, engines: &StubEngines, command: &str) -> Result<Running> {
    let dir = bench.folder(Target::Extproc.name())?;
    envoy::write_endpoints(&dir, &engines.endpoints)?;
    let mut list = String::from("endpoints:\n");
    for (index, endpoint) in engines.endpoints.iter().enumerate() {
        let (ip, port) = (endpoint.ip(), endpoint.port());
        list.push_str(&format!(
            "- {{ name: engine-{index}, address: \"{ip}\", port: \"{port}\" }}\n"
        ));
    }
    let file = dir.join("endpoints.yaml");
    std::fs::write(&file, list)?;
    let [grpc, health, metrics] = free_ports()?;
    let script = format!(
        "export EPP_GRPC_PORT={grpc} EPP_HEALTH_PORT={health} EPP_METRICS_PORT={metrics} EPP_ENDPOINTS='{}'\n{command}",
        file.display()
    );
    bench.cores.start_proxies();
    let picker = Helper::shell("picker", &script, &dir);
    bench.cores.start_others();
    let mut picker = picker?;

    let ports = Ports::free()?;
    let bootstrap = replace_filter(&envoy::bootstrap(bench, ports, "", &dir)?, FILTER)?;
    let (before, after) = bootstrap.split_once(HOST).context("where is the virtual host?")?;
    let bootstrap = format!("{before}{HOST}{PICKED}{after}{}", cluster(grpc));
    let envoy = envoy::start(bench, ports, &bootstrap, &dir).await?;
    let served = envoy::served(envoy.listen, &dir, &[]).await;
    // If it has ended, that is why no answer came.
    picker.process().check_alive()?;
    served?;
    ensure!(
        picked(envoy.admin).await.context("where does Envoy count picks?")? > 0,
        "answers come, but the picker picks nobody: see {}",
        picker.process().log().display()
    );
    Ok(Running::through(envoy, Target::Extproc, Some(picker)))
}

/// Requests with a pick.
async fn picked(admin: SocketAddr) -> Option<u64> {
    let stats = get(admin, "/stats?filter=vcluster.picked.upstream_rq_total").await.ok()?;
    String::from_utf8_lossy(&stats.body).lines().next()?.rsplit_once(": ")?.1.trim().parse().ok()
}

/// One more cluster for the end of the bootstrap.
fn cluster(port: u16) -> String {
    format!(
        r#"
  - name: extproc
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: extproc
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address: {{ address: "{}", port_value: {port} }}
"#,
        local(port).ip()
    )
}
