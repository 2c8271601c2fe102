use super::*;

const SETTLE: Duration = Duration::from_millis(500);
const LINGER: Duration = Duration::from_secs(2);

fn spec(name: &str, port: u16) -> EndpointSpec {
    EndpointSpec {
        namespace: "default".into(),
        name: name.into(),
        address: SocketAddr::from(([10, 0, 0, 1], port)),
        labels: BTreeMap::new(),
        pools: Vec::new(),
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

fn in_pools(name: &str, port: u16, pools: &[&str]) -> EndpointSpec {
    let pools = pools.iter().map(|&pool| pool.to_owned()).collect();
    EndpointSpec { pools, ..spec(name, port) }
}

fn cluster(name: &str, h2c: bool) -> Cluster {
    Cluster { name: name.into(), pool: name.into(), h2c }
}

fn ports_in(members: &Membership, pool: &str) -> Vec<u16> {
    members.hosts_in(pool).map(|host| host.port()).collect()
}

#[test]
fn an_endpoint_that_changes_pools_goes_to_the_new_cluster_first_and_leaves_the_old_one_last() {
    let t = Instant::now();
    let old = in_pools("a", 1, &["p"]);
    let mut members = announced(std::slice::from_ref(&old), t);
    let new = in_pools("a", 1, &["q"]);
    let now = t + SETTLE;
    assert_eq!(members.configure(std::slice::from_ref(&new), now), [Step::WriteHosts]);
    assert_eq!((ports_in(&members, "p"), ports_in(&members, "q")), (vec![1], vec![1]));
    members.hosts_written(now);
    assert_eq!(members.next_due(), Some(now + SETTLE));
    assert_eq!(members.due(now + SETTLE - Duration::from_millis(1)), []);
    assert_eq!(members.due(now + SETTLE), [Step::Relabel(new)]);
    assert_eq!(members.next_due(), Some(now + SETTLE + LINGER));
    assert_eq!(members.due(now + SETTLE + LINGER), [Step::WriteHosts]);
    assert_eq!((ports_in(&members, "p"), ports_in(&members, "q")), (vec![], vec![1]));
    assert_eq!(ports(&members), [1]);
}

#[test]
fn a_policy_without_clusters_of_its_own_is_told_at_once() {
    let t = Instant::now();
    let mut members = Membership::new(SETTLE, LINGER);
    members.configure_policy(Vec::new(), t);
    assert!(!members.complete());
    assert_eq!(members.configure(&[], t), [Step::TellPolicy]);
    assert!(members.complete());
    assert_eq!(members.next_due(), None);
}

#[test]
fn a_policy_waits_for_its_clusters_and_what_it_names_no_more_leaves_later() {
    let t = Instant::now();
    let mut members = Membership::new(SETTLE, LINGER);
    members.configure_policy(vec![cluster("p", false), cluster("q", false)], t);
    assert_eq!(members.configure(&[], t), [Step::WriteHosts]);
    members.hosts_written(t);
    assert_eq!(members.next_due(), Some(t + SETTLE));
    assert!(!members.complete());
    assert_eq!(members.due(t + SETTLE), [Step::TellPolicy]);
    assert!(members.complete());

    let now = t + SETTLE;
    let names = |members: &Membership| -> Vec<String> {
        members.clusters().map(|cluster| cluster.name.clone()).collect()
    };
    members.configure_policy(vec![cluster("p", false)], now);
    assert_eq!(members.configure(&[], now), [Step::TellPolicy]);
    assert_eq!(names(&members), ["p", "q"]);
    assert_eq!(members.due(now + LINGER), [Step::WriteHosts]);
    assert_eq!(names(&members), ["p"]);
    members.hosts_written(now + LINGER);

    members.configure_policy(vec![cluster("p", true)], now + LINGER);
    let steps = members.configure(&[], now + LINGER);
    assert_eq!(
        steps,
        [Step::WriteHosts, Step::TellPolicy],
        "the cluster that is there changes in place"
    );
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
                    Step::Relabel(_) | Step::TellPolicy => {}
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
