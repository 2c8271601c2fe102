//! In which order endpoints come and go, for Envoy's cluster (EDS) and for the stream.
//!
//! The filter may only pick hosts that Envoy's cluster has. So a new endpoint is given to Envoy
//! first and announced on the stream once Envoy had time to load it; a removed one leaves the
//! stream first and Envoy's cluster when nobody can have picked it any more. Where all endpoints
//! are replaced at once, the old ones stay on the stream until one of the new is there, for a
//! moment at most: requests that come in between would find nobody. Pure: time comes in, steps go
//! out.

use crate::config::file_discovery::EndpointSpec;
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
    /// Its labels changed.
    Relabel(EndpointSpec),
    /// Tell it on the stream.
    Announce(EndpointId),
}

#[derive(Debug)]
struct Member {
    spec: EndpointSpec,
    /// It answered once or was found out.
    known: bool,
    announced: bool,
    /// It was removed and stays until then, or until another is announced.
    leaves: Option<Instant>,
}

#[derive(Debug, Default)]
struct Host {
    /// When Envoy was given it.
    written: Option<Instant>,
    /// When it leaves Envoy's cluster.
    leaves: Option<Instant>,
}

/// The endpoints of a pool and the hosts of its cluster.
#[derive(Debug)]
pub struct Membership {
    settle: Duration,
    linger: Duration,
    members: BTreeMap<EndpointId, Member>,
    hosts: BTreeMap<SocketAddr, Host>,
    /// When the host list is to be written, if it changed since the last write.
    write_at: Option<Instant>,
    /// Kept, not computed when asked: it is asked for after every scrape.
    next_due: Option<Instant>,
}

impl Membership {
    /// An empty pool. `settle`: how long Envoy has to load a new host. `linger`: how long a removed
    /// one stays in its cluster.
    #[must_use]
    pub fn new(settle: Duration, linger: Duration) -> Self {
        let (members, hosts) = (BTreeMap::new(), BTreeMap::new());
        Self { settle, linger, members, hosts, write_at: None, next_due: None }
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
            let host = self.hosts.entry(spec.address).or_insert_with(|| {
                self.write_at = Some(now);
                Host::default()
            });
            host.leaves = None;
            match self.members.get_mut(&id) {
                Some(member) => {
                    member.leaves = None;
                    if member.spec != *spec {
                        member.spec = spec.clone();
                        steps.push(Step::Relabel(spec.clone()));
                    }
                }
                None => {
                    let spec = spec.clone();
                    steps.push(Step::Scrape(spec.clone()));
                    let member = Member { spec, known: false, announced: false, leaves: None };
                    self.members.insert(id, member);
                }
            }
        }
        steps.extend(self.due(now));
        steps
    }

    /// Takes members off whose time has come; their hosts linger.
    fn withdraw(&mut self, now: Instant, steps: &mut Vec<Step>) {
        let leaves = later(now, self.linger);
        self.members.retain(|id, member| {
            let stays = member.leaves.is_none_or(|at| at > now);
            if !stays {
                steps.push(Step::Withdraw(*id));
                if let Some(host) = self.hosts.get_mut(&member.spec.address) {
                    host.leaves = Some(leaves);
                }
            }
            stays
        });
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
        let before = self.hosts.len();
        self.hosts.retain(|_, host| host.leaves.is_none_or(|leaves| leaves > now));
        if self.hosts.len() < before {
            self.write_at = Some(now);
        }
        let mut steps = Vec::new();
        if self.write_at.is_some_and(|at| at <= now) {
            steps.push(Step::WriteHosts);
        }
        for (id, member) in &mut self.members {
            let settled = settled_at(&self.hosts, member, self.settle);
            if !member.announced && settled.is_some_and(|at| at <= now) {
                member.announced = true;
                steps.push(Step::Announce(*id));
            }
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

    /// When [`Self::due`] has something to do next.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.next_due
    }

    fn reschedule(&mut self) {
        let leaves = self.hosts.values().filter_map(|host| host.leaves);
        let members_leave = self.members.values().filter_map(|member| member.leaves);
        let waiting = self.members.values().filter(|member| !member.announced);
        let settled = waiting.filter_map(|member| settled_at(&self.hosts, member, self.settle));
        self.next_due = leaves.chain(members_leave).chain(settled).chain(self.write_at).min();
    }

    /// The hosts were given to Envoy.
    pub fn hosts_written(&mut self, now: Instant) {
        self.write_at = None;
        for host in self.hosts.values_mut() {
            host.written = host.written.or(Some(now));
        }
        self.reschedule();
    }

    /// The hosts could not be given to Envoy; they will be tried again.
    pub fn hosts_failed(&mut self, now: Instant) {
        self.write_at = now.checked_add(RETRY);
        self.reschedule();
    }

    /// Hosts of Envoy's cluster, sorted.
    pub fn hosts(&self) -> impl Iterator<Item = SocketAddr> {
        self.hosts.keys().copied()
    }

    /// Whether every endpoint is on the stream.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.members.values().all(|member| member.announced)
    }
}

fn later(now: Instant, by: Duration) -> Instant {
    now.checked_add(by).unwrap_or(now)
}

/// When a known member may be announced.
fn settled_at(
    hosts: &BTreeMap<SocketAddr, Host>,
    member: &Member,
    settle: Duration,
) -> Option<Instant> {
    let written = hosts.get(&member.spec.address)?.written?;
    if member.known { written.checked_add(settle) } else { None }
}

#[cfg(test)]
mod tests;
