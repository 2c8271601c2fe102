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
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_millis(500);
    const LINGER: Duration = Duration::from_secs(2);

    fn spec(name: &str, port: u16) -> EndpointSpec {
        EndpointSpec {
            namespace: "default".into(),
            name: name.into(),
            address: SocketAddr::from(([10, 0, 0, 1], port)),
            labels: BTreeMap::new(),
        }
    }

    fn ports(pool: &Membership) -> Vec<u16> {
        pool.hosts().map(|host| host.port()).collect()
    }

    /// A pool in which the given endpoints are announced.
    fn announced(specs: &[EndpointSpec], now: Instant) -> Membership {
        let mut pool = Membership::new(SETTLE, LINGER);
        pool.configure(specs, now);
        pool.hosts_written(now);
        for spec in specs {
            pool.known(spec.id(), now);
        }
        assert_eq!(pool.due(now + SETTLE).len(), specs.len());
        assert!(pool.complete());
        pool
    }

    #[test]
    fn a_new_endpoint_goes_to_envoy_first_and_is_announced_when_settled_and_known() {
        let t = Instant::now();
        let a = spec("a", 1);
        let mut pool = Membership::new(SETTLE, LINGER);
        let steps = pool.configure(std::slice::from_ref(&a), t);
        assert_eq!(steps, [Step::Scrape(a.clone()), Step::WriteHosts]);
        assert_eq!(pool.known(a.id(), t), [Step::WriteHosts], "not written yet");
        pool.hosts_written(t);
        assert_eq!(pool.next_due(), Some(t + SETTLE));
        assert_eq!(pool.due(t + SETTLE - Duration::from_millis(1)), []);
        assert!(!pool.complete());
        assert_eq!(pool.due(t + SETTLE), [Step::Announce(a.id())]);
        assert!(pool.complete());
        assert_eq!(pool.next_due(), None);

        let b = spec("b", 2);
        pool.configure(&[a, b.clone()], t);
        pool.hosts_written(t);
        assert_eq!(pool.next_due(), None, "nothing to wait for but its first answer");
        assert_eq!(pool.due(t + SETTLE * 9), []);
        assert_eq!(pool.known(b.id(), t + SETTLE * 9), [Step::Announce(b.id())]);
    }

    #[test]
    fn a_removed_endpoint_leaves_the_stream_at_once_and_envoy_later() {
        let t = Instant::now();
        let (a, b) = (spec("a", 1), spec("b", 2));
        let mut pool = announced(&[a.clone(), b.clone()], t);
        assert_eq!(pool.configure(std::slice::from_ref(&b), t), [Step::Withdraw(a.id())]);
        assert_eq!(ports(&pool), [1, 2]);
        assert_eq!(pool.next_due(), Some(t + LINGER));
        assert_eq!(pool.due(t + LINGER), [Step::WriteHosts]);
        assert_eq!(ports(&pool), [2]);
    }

    #[test]
    fn an_endpoint_that_returns_in_time_never_leaves_envoy() {
        let t = Instant::now();
        let a = spec("a", 1);
        let mut pool = announced(std::slice::from_ref(&a), t);
        pool.configure(&[], t);
        let later = t + Duration::from_secs(1);
        let steps = pool.configure(std::slice::from_ref(&a), later);
        assert_eq!(steps, [Step::Scrape(a.clone())]);
        assert_eq!(pool.known(a.id(), later), [Step::Announce(a.id())], "Envoy has it already");
        assert_eq!(pool.due(t + LINGER * 2), []);
        assert_eq!(ports(&pool), [1]);
    }

    #[test]
    fn a_new_address_is_another_endpoint_and_both_are_hosts_for_a_while() {
        let t = Instant::now();
        let (old, new, other) = (spec("a", 1), spec("a", 2), spec("b", 3));
        let mut pool = announced(&[old.clone(), other.clone()], t);
        let steps = pool.configure(&[new.clone(), other], t);
        assert_eq!(steps, [Step::Withdraw(old.id()), Step::Scrape(new), Step::WriteHosts]);
        assert_eq!(ports(&pool), [1, 2, 3]);
    }

    /// A pool of `a` on port 1, which was just moved to port 2.
    fn moved(t: Instant) -> (Membership, EndpointSpec, EndpointSpec) {
        let (old, new) = (spec("a", 1), spec("a", 2));
        let mut pool = announced(std::slice::from_ref(&old), t);
        let steps = pool.configure(std::slice::from_ref(&new), t);
        assert_eq!(steps, [Step::Scrape(new.clone()), Step::WriteHosts]);
        pool.hosts_written(t);
        (pool, old, new)
    }

    #[test]
    fn when_all_are_replaced_the_old_ones_stay_until_a_new_one_is_announced() {
        let t = Instant::now();
        let (mut pool, old, new) = moved(t);
        assert_eq!(pool.known(new.id(), t), []);
        let steps = pool.due(t + SETTLE);
        assert_eq!(steps, [Step::Announce(new.id()), Step::Withdraw(old.id())]);
        assert!(pool.complete());
        assert_eq!(pool.due(t + SETTLE + LINGER), [Step::WriteHosts]);
        assert_eq!(ports(&pool), [2]);
    }

    #[test]
    fn the_old_ones_do_not_stay_for_ever() {
        let t = Instant::now();
        let (mut pool, old, _) = moved(t);
        assert_eq!(pool.next_due(), Some(t + SETTLE + LINGER));
        assert_eq!(pool.due(t + SETTLE + LINGER), [Step::Withdraw(old.id())]);
    }

    #[test]
    fn one_that_returns_while_it_is_leaving_stays() {
        let t = Instant::now();
        let (mut pool, old, new) = moved(t);
        assert_eq!(pool.configure(std::slice::from_ref(&old), t), [Step::Withdraw(new.id())]);
        assert_eq!(pool.due(t + LINGER), [Step::WriteHosts]);
        pool.hosts_written(t + LINGER);
        assert_eq!(ports(&pool), [1]);
        assert_eq!(pool.next_due(), None);
    }

    #[test]
    fn a_new_name_for_an_address_replaces_the_old_one_at_once() {
        let t = Instant::now();
        let (old, new) = (spec("a", 1), spec("b", 1));
        let mut pool = announced(std::slice::from_ref(&old), t);
        let steps = pool.configure(std::slice::from_ref(&new), t);
        assert_eq!(steps, [Step::Withdraw(old.id()), Step::Scrape(new.clone())]);
        assert_eq!(pool.known(new.id(), t + SETTLE), [Step::Announce(new.id())]);
        assert_eq!(pool.due(t + LINGER * 2), [], "the host never left");
    }

    #[test]
    fn labels_change_in_place() {
        let t = Instant::now();
        let a = spec("a", 1);
        let mut pool = announced(std::slice::from_ref(&a), t);
        let labels = BTreeMap::from([("role".to_owned(), "decode".to_owned())]);
        let labelled = EndpointSpec { labels, ..a };
        let steps = pool.configure(std::slice::from_ref(&labelled), t);
        assert_eq!(steps, [Step::Relabel(labelled.clone())]);
        assert_eq!(pool.configure(&[labelled], t), []);
    }

    #[test]
    fn a_failed_write_is_tried_again_and_nothing_is_announced_before() {
        let t = Instant::now();
        let a = spec("a", 1);
        let mut pool = Membership::new(SETTLE, LINGER);
        pool.configure(std::slice::from_ref(&a), t);
        pool.hosts_failed(t);
        assert_eq!(pool.known(a.id(), t), []);
        assert_eq!(pool.next_due(), Some(t + RETRY));
        assert_eq!(pool.due(t + RETRY), [Step::WriteHosts]);
        pool.hosts_written(t + RETRY);
        assert_eq!(pool.due(t + RETRY + SETTLE), [Step::Announce(a.id())]);
    }

    proptest::proptest! {
        #[test]
        fn flapping_converges_to_the_configured_set(
            rounds in proptest::collection::vec((0u8..16, 0u64..3000), 1..40)
        ) {
            let start = Instant::now();
            let mut now = start;
            let mut pool = Membership::new(SETTLE, LINGER);
            let mut on_stream = std::collections::BTreeSet::new();
            let mut last = Vec::new();
            let play = |pool: &mut Membership, steps: Vec<Step>, now, on: &mut std::collections::BTreeSet<EndpointId>| {
                let mut queue = std::collections::VecDeque::from(steps);
                while let Some(step) = queue.pop_front() {
                    match step {
                        Step::Withdraw(id) => { on.remove(&id); }
                        Step::WriteHosts => pool.hosts_written(now),
                        Step::Scrape(spec) => queue.extend(pool.known(spec.id(), now)),
                        Step::Relabel(_) => {}
                        Step::Announce(id) => assert!(on.insert(id), "announced twice"),
                    }
                }
            };
            for (bits, pause) in rounds {
                last = (0..4).filter(|n| bits >> n & 1 == 1).map(|n| spec("r", n + 1)).collect();
                let steps = pool.configure(&last, now);
                play(&mut pool, steps, now, &mut on_stream);
                now += Duration::from_millis(pause);
                let steps = pool.due(now);
                play(&mut pool, steps, now, &mut on_stream);
            }
            while let Some(due) = pool.next_due() {
                now = now.max(due);
                let steps = pool.due(now);
                play(&mut pool, steps, now, &mut on_stream);
            }
            let wanted: std::collections::BTreeSet<_> = last.iter().map(EndpointSpec::id).collect();
            assert_eq!(on_stream, wanted);
            assert_eq!(ports(&pool), last.iter().map(|s| s.address.port()).collect::<Vec<_>>());
        }
    }
}
