//! In which order endpoints come and go, for Envoy's cluster (EDS) and for the stream.
//!
//! The filter may only pick hosts that Envoy's cluster has. So a new endpoint is given to Envoy
//! first and announced on the stream once Envoy had time to load it; a removed one leaves the
//! stream first and Envoy's cluster when nobody can have picked it any more. Where all endpoints
//! are replaced at once, the old ones stay on the stream until one of the new is there, for a
//! moment at most: requests that come in between would find nobody. The same holds for the clusters of pools and the
//! policy that names them, and for an endpoint that changes pools. Pure: time comes in, steps go out.

mod given;

use super::clusters::Cluster;
use crate::config::file_discovery::EndpointSpec;
use given::Given;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use warmroute_shared_state::endpoint::EndpointId;

/// Pause before a failed write of the host list is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Something to do now, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Take it off the stream and stop scraping it.
    Withdraw(EndpointId),
    /// Give Envoy [`Membership::hosts`]; then say how that went.
    WriteHosts,
    /// Begin to scrape it.
    Scrape(EndpointSpec),
    /// Its labels or pools changed.
    Relabel(EndpointSpec),
    /// Tell the policy that came with the last configuration.
    TellPolicy,
    /// Tell it on the stream.
    Announce(EndpointId),
}

/// An address in the cluster of a pool; an empty name stands for the cluster of all.
type Host = (SocketAddr, String);

#[derive(Debug)]
struct Member {
    spec: EndpointSpec,
    /// Labels or pools changed, which is not told yet.
    changed: bool,
    /// The pools that were told.
    told_pools: Vec<String>,
    /// It answered once or was found out.
    known: bool,
    announced: bool,
    /// It was removed and stays until then, or until another is announced.
    leaves: Option<Instant>,
}

impl Member {
    fn new(spec: EndpointSpec) -> Self {
        let told_pools = spec.pools.clone();
        Self { spec, changed: false, told_pools, known: false, announced: false, leaves: None }
    }

    /// Hosts that Envoy must have before its change is told.
    fn new_hosts(&self) -> Vec<Host> {
        let pools = self.spec.pools.iter().filter(|pool| !self.told_pools.contains(pool));
        pools.map(|pool| (self.spec.address, pool.clone())).collect()
    }
}

/// The endpoints, and the hosts and clusters that Envoy is given.
#[derive(Debug)]
pub struct Membership {
    settle: Duration,
    linger: Duration,
    members: BTreeMap<EndpointId, Member>,
    hosts: Given<Host>,
    /// Clusters of pools by their names, as they are and as they were last wanted.
    clusters: Given<String>,
    cluster_specs: BTreeMap<String, Cluster>,
    wanted_clusters: BTreeSet<String>,
    policy_told: bool,
    /// When the lists are to be written, if they changed since the last write.
    write_at: Option<Instant>,
    /// Kept, not computed when asked: it is asked for after every scrape.
    next_due: Option<Instant>,
}

impl Membership {
    /// Nobody. `settle`: how long Envoy has to load what is new. `linger`: how long it keeps what was removed.
    #[must_use]
    pub fn new(settle: Duration, linger: Duration) -> Self {
        Self {
            settle,
            linger,
            members: BTreeMap::new(),
            hosts: Given::default(),
            clusters: Given::default(),
            cluster_specs: BTreeMap::new(),
            wanted_clusters: BTreeSet::new(),
            policy_told: true,
            write_at: None,
            next_due: None,
        }
    }

    /// There is another policy, which names these clusters beside that of all. [`configure`](Self::configure) is to
    /// be called next.
    pub fn configure_policy(&mut self, clusters: Vec<Cluster>, now: Instant) {
        self.policy_told = false;
        self.wanted_clusters = clusters.iter().map(|cluster| cluster.name.clone()).collect();
        for cluster in clusters {
            self.clusters.want(&cluster.name);
            let known = self.cluster_specs.insert(cluster.name.clone(), cluster.clone());
            if known.as_ref() != Some(&cluster) {
                self.write_at = Some(now);
            }
        }
    }

    /// Makes `specs` the endpoints of the pool.
    pub fn configure(&mut self, specs: &[EndpointSpec], now: Instant) -> Vec<Step> {
        let wanted: BTreeMap<_, _> = specs.iter().map(|spec| (spec.id(), spec)).collect();
        let addresses: BTreeSet<_> = specs.iter().map(|spec| spec.address).collect();
        let someone_stays =
            self.members.iter().any(|(id, m)| m.announced && wanted.contains_key(id));
        let hand_over = !wanted.is_empty() && !someone_stays;
        let deadline = later(now, self.settle.saturating_add(self.linger));
        for (id, member) in &mut self.members {
            if !wanted.contains_key(id) {
                // Two endpoints of one address would be one host to those who look for it.
                let may_stay =
                    hand_over && member.announced && !addresses.contains(&member.spec.address);
                member.leaves =
                    Some(if may_stay { member.leaves.unwrap_or(deadline) } else { now });
            }
        }
        let mut steps = Vec::new();
        self.withdraw(now, &mut steps);
        for (id, spec) in wanted {
            for host in hosts_of(spec) {
                if self.hosts.want(&host) {
                    self.write_at = Some(now);
                }
            }
            match self.members.get_mut(&id) {
                Some(member) => {
                    member.leaves = None;
                    if member.spec != *spec {
                        member.spec = spec.clone();
                        member.changed = true;
                    }
                }
                None => {
                    steps.push(Step::Scrape(spec.clone()));
                    self.members.insert(id, Member::new(spec.clone()));
                }
            }
        }
        steps.extend(self.due(now));
        steps
    }

    /// Takes members off whose time has come; their hosts linger.
    fn withdraw(&mut self, now: Instant, steps: &mut Vec<Step>) {
        let mut gone = BTreeSet::new();
        self.members.retain(|id, member| {
            let stays = member.leaves.is_none_or(|at| at > now);
            if !stays {
                steps.push(Step::Withdraw(*id));
                gone.insert(member.spec.address);
            }
            stays
        });
        if !gone.is_empty() {
            self.hosts.leave(later(now, self.linger), |(address, _)| gone.contains(address));
        }
    }

    /// The endpoint answered for the first time, or was found out.
    pub fn known(&mut self, id: EndpointId, now: Instant) -> Vec<Step> {
        match self.members.get_mut(&id) {
            Some(member) if !member.known => {
                member.known = true;
                self.due(now)
            }
            _ => Vec::new(),
        }
    }

    /// What is to be done by now.
    pub fn due(&mut self, now: Instant) -> Vec<Step> {
        if self.hosts.expire(now) {
            self.write_at = Some(now);
        }
        if self.clusters.expire(now) {
            let clusters = &self.clusters;
            self.cluster_specs.retain(|name, _| clusters.keys().any(|known| known == name));
            self.write_at = Some(now);
        }
        let mut steps = Vec::new();
        if self.write_at.is_some_and(|at| at <= now) {
            steps.push(Step::WriteHosts);
        }
        self.tell_changes(now, &mut steps);
        for (id, member) in &mut self.members {
            let settled = settled_at(&self.hosts, member, self.settle);
            if !member.announced && settled.is_some_and(|at| at <= now) {
                member.announced = true;
                steps.push(Step::Announce(*id));
            }
        }
        // After the endpoints: a pool that requests are sent to should have some.
        if !self.policy_told && self.policy_settled(now) {
            self.policy_told = true;
            steps.push(Step::TellPolicy);
            let wanted = &self.wanted_clusters;
            self.clusters.leave(later(now, self.linger), |name| !wanted.contains(name));
        }
        if self.members.values().any(|member| member.announced && member.leaves.is_none()) {
            for member in self.members.values_mut() {
                member.leaves = member.leaves.map(|_| now);
            }
        }
        self.withdraw(now, &mut steps);
        self.reschedule();
        steps
    }

    /// Tells changed members whose new pools' clusters have them; the hosts of pools that they left linger.
    fn tell_changes(&mut self, now: Instant, steps: &mut Vec<Step>) {
        let leaves = later(now, self.linger);
        for member in self.members.values_mut().filter(|member| member.changed) {
            let new = member.new_hosts();
            let settled = self.hosts.settled_at(&new, self.settle);
            if new.is_empty() || settled.is_some_and(|at| at <= now) {
                member.changed = false;
                member.told_pools.clone_from(&member.spec.pools);
                steps.push(Step::Relabel(member.spec.clone()));
                let spec = &member.spec;
                self.hosts.leave(leaves, |(address, pool)| {
                    *address == spec.address && !pool.is_empty() && !spec.pools.contains(pool)
                });
            }
        }
    }

    /// Whether Envoy has all clusters that the policy names, if it names any.
    fn policy_settled(&self, now: Instant) -> bool {
        let settled = self.clusters.settled_at(&self.wanted_clusters, self.settle);
        self.wanted_clusters.is_empty() || settled.is_some_and(|at| at <= now)
    }

    /// When [`Self::due`] has something to do next.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.next_due
    }

    fn reschedule(&mut self) {
        let leave = [self.hosts.next_leave(), self.clusters.next_leave()];
        let members_leave = self.members.values().filter_map(|member| member.leaves);
        let waiting = self.members.values().filter(|member| !member.announced);
        let announced = waiting.filter_map(|member| settled_at(&self.hosts, member, self.settle));
        let changed = self.members.values().filter(|member| member.changed);
        let told =
            changed.filter_map(|member| self.hosts.settled_at(&member.new_hosts(), self.settle));
        let policy = self.clusters.settled_at(&self.wanted_clusters, self.settle);
        let policy = policy.filter(|_| !self.policy_told);
        let single = leave.into_iter().flatten().chain(policy).chain(self.write_at);
        self.next_due = single.chain(members_leave).chain(announced).chain(told).min();
    }

    /// Hosts and clusters were given to Envoy.
    pub fn hosts_written(&mut self, now: Instant) {
        self.write_at = None;
        self.hosts.written(now);
        self.clusters.written(now);
        self.reschedule();
    }

    /// The hosts could not be given to Envoy; they will be tried again.
    pub fn hosts_failed(&mut self, now: Instant) {
        self.write_at = now.checked_add(RETRY);
        self.reschedule();
    }

    /// Hosts of Envoy's cluster of all, sorted.
    pub fn hosts(&self) -> impl Iterator<Item = SocketAddr> {
        self.hosts_in("")
    }

    /// Hosts of a pool's cluster, sorted.
    pub fn hosts_in<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = SocketAddr> + 'a {
        self.hosts.keys().filter(move |(_, within)| within == pool).map(|(address, _)| *address)
    }

    /// Clusters of pools, sorted by name.
    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.cluster_specs.values()
    }

    /// Whether every endpoint and the policy are on the stream.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.policy_told && self.members.values().all(|member| member.announced)
    }
}

fn later(now: Instant, by: Duration) -> Instant {
    now.checked_add(by).unwrap_or(now)
}

fn hosts_of(spec: &EndpointSpec) -> impl Iterator<Item = Host> {
    let pools = std::iter::once("").chain(spec.pools.iter().map(String::as_str));
    pools.map(|pool| (spec.address, pool.to_owned()))
}

/// When a known member may be announced.
fn settled_at(hosts: &Given<Host>, member: &Member, settle: Duration) -> Option<Instant> {
    let wanted: Vec<Host> = hosts_of(&member.spec).collect();
    member.known.then(|| hosts.settled_at(&wanted, settle)).flatten()
}

#[cfg(test)]
mod tests;
