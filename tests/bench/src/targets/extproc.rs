//! Envoy with an endpoint picker behind `ext_proc`, as an inference gateway has it.

use anyhow::Result;
use warmroute_demo::processes::{Ports, Process, Session, free_ports};

use super::bootstrap::replace_filter;
use super::{Bench, Running, StubEngines, Target, envoy, local};

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

/// Starts `command`, a shell command that runs a picker, and Envoy before it.
///
/// The command is told by its environment where to listen: `EPP_GRPC_PORT` (plain HTTP/2), `EPP_HEALTH_PORT` and
/// `EPP_METRICS_PORT`; and `EPP_ENDPOINTS`, a file in llm-d's file-discovery form with the engines.
///
/// # Errors
/// When one of them does not start.
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
    let arguments = ["-c".to_owned(), script];
    let picker = Process::start("picker", "sh".as_ref(), &arguments, &dir, Session::Shared);
    bench.cores.start_others();
    let picker = picker?;

    let ports = Ports::free()?;
    let bootstrap = replace_filter(&envoy::bootstrap(bench, ports, "", &dir)?, FILTER)?;
    let envoy = envoy::start(bench, ports, &(bootstrap + &cluster(grpc)), &dir).await?;
    envoy::served(envoy.listen, &dir, &[]).await?;
    Ok(Running::through(envoy, Target::Extproc, Some(picker)))
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
