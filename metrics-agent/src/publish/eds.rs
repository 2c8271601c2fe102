//! The pool's hosts in the form that Envoy loads: a `DiscoveryResponse` with one
//! `ClusterLoadAssignment`, as JSON, in a file that Envoy watches or as the answer of REST xDS.
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

    /// The response for a subscriber to `names`; no names stand for all.
    #[must_use]
    pub fn response(&self, names: &[String]) -> Value {
        let asked = names.is_empty() || names.contains(&self.cluster);
        let resources = if asked { vec![self.assignment()] } else { Vec::new() };
        json!({ "version_info": self.version(), "type_url": TYPE_URL, "resources": resources })
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

    /// Replaces the cluster's file in `folder` as a whole. Envoy watches for the rename.
    ///
    /// # Errors
    /// Those of the file system; the old file then stays as it was.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let path = file(folder, &self.cluster);
        let temporary = folder.join(format!(".{}.json.new", self.cluster));
        let mut text = serde_json::to_vec_pretty(&self.response(&[]))?;
        text.push(b'\n');
        let mut out = std::fs::File::create(&temporary)?;
        out.write_all(&text)?;
        out.sync_all()?;
        std::fs::rename(&temporary, &path)
    }
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
        let response = hosts(&["10.0.0.1:8000", "[fd00::1]:8001"]).response(&[]);
        let host = |address: &str, port: u16| json!({"endpoint": {"address": {"socket_address": {"address": address, "port_value": port}}}});
        let expected = json!([{
            "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": "pool",
            "endpoints": [{"lb_endpoints": [host("10.0.0.1", 8000), host("fd00::1", 8001)]}],
        }]);
        assert_eq!(response["resources"], expected);
    }

    #[test]
    fn a_subscriber_gets_what_it_asked_for() {
        let pool = hosts(&["10.0.0.1:8000"]);
        let count = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            pool.response(&names)["resources"].as_array().unwrap().len()
        };
        assert_eq!((count(&[]), count(&["pool"]), count(&["other"])), (1, 1, 0));
    }

    #[test]
    fn the_version_follows_the_hosts() {
        let one = hosts(&["10.0.0.1:8000"]);
        assert_eq!(one.version(), one.clone().version());
        assert_ne!(one.version(), hosts(&["10.0.0.1:8001"]).version());
        assert_ne!(one.version(), hosts(&[]).version());
    }
}
