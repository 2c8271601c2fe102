//! Everything that Envoy discovers: the cluster of all endpoints, and one for each pool if there are several.

use super::clusters::{self, Cluster, HostsFrom};
use super::eds::{self, Hosts};
use crate::config::Configuration;
use crate::config::file_discovery::EndpointSpec;
use serde_json::Value;
use std::io;
use std::path::Path;

/// Hosts and clusters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Discovery {
    /// All endpoints.
    pub all: Hosts,
    /// The pools, if there are several.
    pub pools: Vec<(Cluster, Hosts)>,
}

impl Discovery {
    /// What Envoy is given of a configuration before anything is served.
    #[must_use]
    pub fn of(configuration: &Configuration, single: &str) -> Self {
        let hosts = |cluster: &str, pool: Option<&String>| {
            let within = |spec: &&EndpointSpec| pool.is_none_or(|pool| spec.pools.contains(pool));
            let endpoints = configuration.endpoints.iter().filter(within);
            let mut addresses: Vec<_> = endpoints.map(|spec| spec.address).collect();
            addresses.sort_unstable();
            Hosts { cluster: cluster.to_owned(), addresses }
        };
        let pools = clusters::of(configuration, single).into_iter().map(|cluster| {
            let hosts = hosts(&cluster.name, Some(&cluster.pool));
            (cluster, hosts)
        });
        Self { all: hosts(single, None), pools: pools.collect() }
    }

    /// Hosts for a subscriber to the clusters `names`; no names stand for all.
    #[must_use]
    pub fn hosts_response(&self, names: &[String]) -> Value {
        let hosts = std::iter::once(&self.all).chain(self.pools.iter().map(|(_, hosts)| hosts));
        eds::response(hosts.filter(|hosts| names.is_empty() || names.contains(&hosts.cluster)))
    }

    /// Clusters for a subscriber to `names`; no names stand for all.
    #[must_use]
    pub fn clusters_response(&self, names: &[String], from: HostsFrom<'_>) -> Value {
        let clusters: Vec<Cluster> =
            self.pools.iter().map(|(cluster, _)| cluster.clone()).collect();
        clusters::response(&clusters, names, from)
    }

    /// Replaces the files in `folder` that differ from those of `before`: hosts first, as Envoy looks for a cluster's
    /// as soon as it knows the cluster. Files of clusters that are gone stay: Envoy may not have read of that yet.
    ///
    /// # Errors
    /// Those of the file system; what was not replaced stays as it was.
    pub fn write(&self, folder: &Path, before: Option<&Self>) -> io::Result<()> {
        if before.is_none_or(|before| before.all != self.all) {
            self.all.write(folder)?;
        }
        for pool in &self.pools {
            if before.is_none_or(|before| !before.pools.contains(pool)) {
                pool.1.write(folder)?;
            }
        }
        let clusters =
            |discovery: &Self| discovery.clusters_response(&[], HostsFrom::Folder(folder));
        let response = clusters(self);
        if before.is_none_or(|before| clusters(before) != response) {
            eds::replace(folder, clusters::FILE, &response)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(cluster: &str, port: u16) -> Hosts {
        Hosts { cluster: cluster.into(), addresses: vec![([10, 0, 0, 1], port).into()] }
    }

    fn pool(name: &str, port: u16) -> (Cluster, Hosts) {
        (Cluster { name: name.into(), pool: name.into(), h2c: false }, hosts(name, port))
    }

    #[test]
    fn a_subscriber_gets_the_clusters_that_it_asks_for() {
        let all = Discovery { all: hosts("all", 1), pools: vec![pool("n.a", 2), pool("n.b", 3)] };
        let names = |asked: &[&str]| -> Vec<String> {
            let asked: Vec<String> = asked.iter().map(|&name| name.to_owned()).collect();
            let response = all.hosts_response(&asked);
            let resources = response["resources"].as_array().unwrap().iter();
            resources.map(|r| r["cluster_name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&[]), ["all", "n.a", "n.b"]);
        assert_eq!(names(&["n.b", "x"]), ["n.b"]);
    }

    #[test]
    fn only_what_differs_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let first = Discovery { all: hosts("all", 1), pools: vec![pool("n.a", 2), pool("n.b", 3)] };
        first.write(folder.path(), None).unwrap();
        let files = ["all.json", "n.a.json", "n.b.json", "clusters.json"];
        for file in files {
            assert!(folder.path().join(file).is_file(), "{file}");
            std::fs::remove_file(folder.path().join(file)).unwrap();
        }
        let second = Discovery { pools: vec![pool("n.a", 2), pool("n.b", 4)], ..first.clone() };
        second.write(folder.path(), Some(&first)).unwrap();
        let there: Vec<bool> =
            files.iter().map(|file| folder.path().join(file).is_file()).collect();
        assert_eq!(there, [false, false, true, false]);
        let none = Discovery { all: hosts("all", 1), pools: Vec::new() };
        none.write(folder.path(), Some(&second)).unwrap();
        let text = std::fs::read(folder.path().join("clusters.json")).unwrap();
        let clusters: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(clusters["resources"], serde_json::json!([]));
    }
}
