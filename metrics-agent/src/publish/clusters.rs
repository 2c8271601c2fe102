//! The pools as Envoy's clusters, if there are several: a `DiscoveryResponse` of `Cluster`s, as JSON, in a file that
//! Envoy watches or as the answer of REST xDS.
//!
//! Each is what `envoy/standalone/envoy.yaml` has for the cluster of all endpoints, which says why it is so. Format:
//! <https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/cluster/v3/cluster.proto>.

use super::eds;
use crate::config::Configuration;
use serde_json::{Value, json};
use std::path::Path;

/// Name of the file.
pub const FILE: &str = "clusters.json";
const TYPE_URL: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Envoy's cluster of the agent itself, asked for hosts where there are no files.
const AGENT_CLUSTER: &str = "warmroute-agent";

/// A pool as a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cluster {
    /// Its name in Envoy.
    pub name: String,
    /// The pool's `namespace/name`.
    pub pool: String,
    /// Engines speak HTTP/2.
    pub h2c: bool,
}

/// Where a cluster's hosts come from.
#[derive(Debug, Clone, Copy)]
pub enum HostsFrom<'a> {
    /// A file in this folder.
    Folder(&'a Path),
    /// The agent, over HTTP.
    Agent,
}

/// The clusters of pools beside that of all, `single`: none if one pool is all that there is.
#[must_use]
pub fn of(configuration: &Configuration, single: &str) -> Vec<Cluster> {
    let policy = configuration.policy(single);
    let pools = policy.pools.iter().zip(&configuration.objects.pools);
    let own = pools.filter(|(pool, _)| pool.cluster != single);
    own.map(|(pool, spec)| Cluster {
        name: pool.cluster.clone(),
        pool: pool.name.clone(),
        h2c: spec.h2c,
    })
    .collect()
}

/// The response for a subscriber to `names`; no names stand for all.
#[must_use]
pub fn response(clusters: &[Cluster], names: &[String], from: HostsFrom<'_>) -> Value {
    let asked = |cluster: &&Cluster| names.is_empty() || names.contains(&cluster.name);
    let resources: Vec<Value> =
        clusters.iter().filter(asked).map(|cluster| resource(cluster, from)).collect();
    let text = serde_json::to_vec(&resources).unwrap_or_default();
    let version = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&text));
    json!({ "version_info": version, "type_url": TYPE_URL, "resources": resources })
}

fn resource(cluster: &Cluster, from: HostsFrom<'_>) -> Value {
    let source = match from {
        HostsFrom::Folder(folder) => json!({
            "resource_api_version": "V3",
            "path_config_source": {
                "path": eds::file(folder, &cluster.name).to_string_lossy(),
                "watched_directory": { "path": folder.to_string_lossy() },
            },
        }),
        HostsFrom::Agent => json!({
            "resource_api_version": "V3",
            "api_config_source": {
                "api_type": "REST",
                "transport_api_version": "V3",
                "cluster_names": [AGENT_CLUSTER],
                "refresh_delay": "0.2s",
            },
        }),
    };
    let protocol = if cluster.h2c { "http2_protocol_options" } else { "http_protocol_options" };
    json!({
        "@type": TYPE_URL,
        "name": cluster.name,
        "type": "EDS",
        "connect_timeout": "1s",
        "eds_cluster_config": { "service_name": cluster.name, "eds_config": source },
        "load_balancing_policy": { "policies": [{ "typed_extension_config": {
            "name": "envoy.load_balancing_policies.override_host",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
                "override_host_sources": [{ "header": "x-gateway-destination-endpoint" }],
                "fallback_policy": { "policies": [{ "typed_extension_config": {
                    "name": "envoy.load_balancing_policies.round_robin",
                    "typed_config": {
                        "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
                    },
                } }] },
            },
        } }] },
        "circuit_breakers": { "thresholds": [{
            "max_connections": 100_000,
            "max_pending_requests": 100_000,
            "max_requests": 100_000,
            "max_retries": 1024,
        }] },
        "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": { protocol: {} },
            "common_http_protocol_options": { "idle_timeout": "4s" },
        } },
        "upstream_connection_options": { "tcp_keepalive": {
            "keepalive_time": 10, "keepalive_interval": 5, "keepalive_probes": 2,
        } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters() -> [Cluster; 2] {
        [("n.a", "n/a", false), ("n.b", "n/b", true)].map(|(name, pool, h2c)| Cluster {
            name: name.into(),
            pool: pool.into(),
            h2c,
        })
    }

    #[test]
    fn each_cluster_reads_its_own_file_and_speaks_its_pools_protocol() {
        let response = response(&clusters(), &[], HostsFrom::Folder(Path::new("/eds")));
        let of = |n: usize| &response["resources"][n];
        assert_eq!((of(0)["name"].as_str(), of(1)["name"].as_str()), (Some("n.a"), Some("n.b")));
        let source = |n: usize| &of(n)["eds_cluster_config"]["eds_config"]["path_config_source"];
        assert_eq!(source(1)["path"], "/eds/n.b.json");
        assert_eq!(source(1)["watched_directory"]["path"], "/eds");
        let options = |n: usize| {
            let all = &of(n)["typed_extension_protocol_options"];
            &all["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]["explicit_http_config"]
        };
        assert_eq!(*options(0), json!({ "http_protocol_options": {} }));
        assert_eq!(*options(1), json!({ "http2_protocol_options": {} }));
    }

    #[test]
    fn over_http_hosts_come_the_same_way() {
        let asked = response(&clusters(), &["n.b".into()], HostsFrom::Agent);
        assert_eq!(asked["resources"].as_array().unwrap().len(), 1);
        let source =
            &asked["resources"][0]["eds_cluster_config"]["eds_config"]["api_config_source"];
        assert_eq!(source["cluster_names"], json!(["warmroute-agent"]));
    }

    #[test]
    fn the_version_follows_the_clusters() {
        let version = |clusters: &[Cluster]| {
            response(clusters, &[], HostsFrom::Agent)["version_info"].clone()
        };
        assert_eq!(version(&clusters()), version(&clusters()));
        assert_ne!(version(&clusters()), version(&clusters()[..1]));
    }
}
