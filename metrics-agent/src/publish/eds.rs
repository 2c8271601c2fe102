//! Hosts of a cluster in the form that Envoy loads: a `DiscoveryResponse` of
//! `ClusterLoadAssignment`s, as JSON, in a file that Envoy watches or as the answer of REST xDS.
//!
//! Endpoints that are out stay in: Envoy's cluster says who exists, the stream who may be picked.
//! Format: <https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/endpoint/v3/endpoint.proto>.

use serde_json::{Value, json};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

const TYPE_URL: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// The hosts of one cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hosts {
    /// Name of the cluster.
    pub cluster: String,
    /// Its hosts, sorted.
    pub addresses: Vec<SocketAddr>,
}

impl Hosts {
    /// A version that is the same for the same hosts, also after a restart.
    #[must_use]
    pub fn version(&self) -> String {
        let mut text = self.cluster.clone();
        for address in &self.addresses {
            text.push(' ');
            text.push_str(&address.to_string());
        }
        format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
    }

    fn assignment(&self) -> Value {
        let hosts: Vec<Value> = self
            .addresses
            .iter()
            .map(|host| {
                let socket = json!({ "address": host.ip().to_string(), "port_value": host.port() });
                json!({ "endpoint": { "address": { "socket_address": socket } } })
            })
            .collect();
        json!({
            "@type": TYPE_URL,
            "cluster_name": self.cluster,
            "endpoints": [{ "lb_endpoints": hosts }],
        })
    }

    /// Replaces the cluster's file in `folder` as a whole.
    ///
    /// # Errors
    /// Those of the file system; the old file then stays as it was.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        replace(folder, &format!("{}.json", self.cluster), &response([self]))
    }
}

/// The response with the hosts of these clusters.
#[must_use]
pub fn response<'a>(hosts: impl IntoIterator<Item = &'a Hosts>) -> Value {
    let (mut versions, mut resources) = (Vec::new(), Vec::new());
    for hosts in hosts {
        versions.push(hosts.version());
        resources.push(hosts.assignment());
    }
    json!({ "version_info": versions.join("-"), "type_url": TYPE_URL, "resources": resources })
}

/// Replaces a file in `folder` as a whole. Envoy watches for the rename.
///
/// # Errors
/// Those of the file system; the old file then stays as it was.
pub(super) fn replace(folder: &Path, name: &str, response: &Value) -> io::Result<()> {
    let temporary = folder.join(format!(".{name}.new"));
    let mut text = serde_json::to_vec_pretty(response)?;
    text.push(b'\n');
    let mut out = std::fs::File::create(&temporary)?;
    out.write_all(&text)?;
    out.sync_all()?;
    std::fs::rename(&temporary, folder.join(name))
}

/// The file of a cluster.
#[must_use]
pub fn file(folder: &Path, cluster: &str) -> PathBuf {
    folder.join(format!("{cluster}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(addresses: &[&str]) -> Hosts {
        let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Hosts { cluster: "pool".into(), addresses }
    }

    #[test]
    fn the_response_is_what_envoy_expects() {
        let response = response([&hosts(&["10.0.0.1:8000", "[fd00::1]:8001"])]);
        let host = |address: &str, port: u16| json!({"endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}}});
        let expected = json!([{
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "pool",
            "endpoints": [{"lb_endpoints": [host("10.0.0.1", 8000), host("fd00::1", 8001)]}],
        }]);
        assert_eq!(response["resources"], expected);
    }

    #[test]
    fn the_version_follows_the_hosts() {
        let one = hosts(&["10.0.0.1:8000"]);
        assert_eq!(one.version(), one.clone().version());
        assert_ne!(one.version(), hosts(&["10.0.0.1:8001"]).version());
        assert_ne!(one.version(), hosts(&[]).version());
    }
}
