//! Ten thousand requests that end in every way there is, and engines that fail in every way they can.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::access_log::{self, Access};
use e2e::client::{Request, send};
use e2e::prompts::{chat, fresh_text};
use e2e::workers::one_each;
use e2e::{Setup, Stack};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::endings::{Ending, Seen, carry_out, short_timeouts};
use crate::settled::{engine_ports, nothing_is_left};

const REQUESTS: usize = 10_000;
const CLIENTS: usize = 48;
const WORKERS: usize = 4;
/// Requests that a fault lasts for, unless they all hang in it.
const PER_FAULT: usize = 250;

type Outcomes = Vec<(usize, Ending, Seen)>;

/// Clients that send all requests.
struct Load {
    over: Arc<AtomicUsize>,
    clients: JoinSet<Result<Outcomes, String>>,
}

impl Load {
    fn start(listen: SocketAddr) -> Self {
        let (next, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let systems: Arc<Vec<String>> = Arc::new((0..16).map(|_| fresh_text(600)).collect());
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (next, over, systems) =
                (Arc::clone(&next), Arc::clone(&over), Arc::clone(&systems));
            clients.spawn(async move {
                let mut random = fastrand::Rng::with_seed(client as u64);
                let mut outcomes = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= REQUESTS {
                        return Ok(outcomes);
                    }
                    let ending = Ending::choose(&mut random);
                    let id = format!("r-{number}");
                    match carry_out(listen, &id, ending, &mut random, &systems).await {
                        Ok(seen) => outcomes.push((number, ending, seen)),
                        Err(what) => {
                            // The test has failed: nobody is to wait for the rest.
                            next.store(REQUESTS, Ordering::Relaxed);
                            over.store(REQUESTS, Ordering::Relaxed);
                            return Err(what);
                        }
                    }
                    over.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        Self { over, clients }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) >= REQUESTS
    }

    /// Waits until so many more requests are over, or for `limit`: a fault may hold all of them up.
    async fn go_on(&self, requests: usize, limit: Duration) {
        let until = (self.over.load(Ordering::Relaxed) + requests).min(REQUESTS);
        let start = Instant::now();
        while self.over.load(Ordering::Relaxed) < until && start.elapsed() < limit {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Faults on engines 0 to 2; engine 3 stays well, so that a retry has somewhere to go.
fn faults() -> impl Iterator<Item = Value> {
    let one = [
        json!({"fault": "error", "status": 503, "count": 40}),
        json!({"fault": "reset", "count": 40}),
        json!({"fault": "reset", "after_tokens": 3, "count": 40}),
        json!({"fault": "refuse"}),
        json!({"fault": "crash_midstream"}),
        json!({"fault": "crash_midstream_silent"}),
        json!({"fault": "hang"}),
        json!({"fault": "error", "status": 500, "count": 40}),
        json!({"fault": "drain"}),
        json!({"fault": "die"}),
        json!({"fault": "restart"}),
    ];
    one.into_iter().cycle().zip((0..3).cycle()).map(|(mut fault, replica)| {
        fault["replica"] = json!(replica);
        fault
    })
}

async fn lift(stack: &Stack, replica: &Value) -> Result<()> {
    // Also whatever hangs on an engine that is gone.
    Ok(stack.simulator.fault(&json!({"replica": replica, "fault": "restart"})).await?)
}

/// While the agent is away, an engine that is down goes on being picked: each time the request goes to the
/// next one on the list. Returns the numbers of requests that met nothing else.
async fn refuse_without_agent(stack: &mut Stack, load: &Load) -> Result<Range<usize>> {
    if let Some(agent) = &mut stack.agent {
        agent.process.kill();
    }
    stack.simulator.fault(&json!({"replica": 0, "fault": "refuse"})).await?;
    let first = load.over.load(Ordering::Relaxed) + CLIENTS;
    load.go_on(2 * PER_FAULT, Duration::from_secs(20)).await;
    let end = load.over.load(Ordering::Relaxed);
    lift(stack, &json!(0)).await?;
    stack.start_agent().await?;
    Ok(first..end)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_requests_leave_nothing_behind() -> Result<()> {
    let setup = Setup::new(4, WORKERS)
        .simulator(&[
            "--time-scale",
            "20",
            "--record-requests",
            "0",
            "--ports",
            &engine_ports::<4>()?,
        ])
        .template(|template| short_timeouts(&template));
    let mut stack = Stack::start(setup).await?;
    let before = incarnations(&stack).await?;

    let mut load = Load::start(stack.listen());
    load.go_on(PER_FAULT, Duration::from_secs(20)).await;
    let agent_away = refuse_without_agent(&mut stack, &load).await?;
    for fault in faults() {
        if load.is_over() {
            break;
        }
        stack.simulator.fault(&fault).await?;
        // Nothing but hanging requests may be left: then the fault ends when the time is up.
        load.go_on(PER_FAULT, Duration::from_secs(1)).await;
        lift(&stack, &fault["replica"]).await?;
    }
    let mut outcomes = Outcomes::new();
    while let Some(client) = load.clients.join_next().await {
        outcomes.extend(client?.map_err(anyhow::Error::msg)?);
    }
    assert_eq!(outcomes.len(), REQUESTS);

    let records = records(&stack, &outcomes).await?;
    check_records(&records);
    check_variety(&records, &agent_away);
    nothing_is_left(&stack).await?;
    assert_eq!(incarnations(&stack).await?, before, "a VM was replaced");
    assert_eq!(stack.stat("wasm.warmroute.vm_reload_success").await?, 0);
    stack.wait_ready(4).await?;
    let answer = send(stack.listen(), &Request::chat(&chat(&fresh_text(500), 4))).await?;
    assert_eq!(answer.status, 200);
    Ok(())
}

async fn incarnations(stack: &Stack) -> Result<BTreeSet<String>> {
    let workers = one_each(stack.listen(), WORKERS).await?;
    Ok(workers.into_iter().map(|worker| worker.incarnation).collect())
}

/// The records of all requests that Envoy must have seen.
async fn records(stack: &Stack, outcomes: &Outcomes) -> Result<BTreeMap<usize, Access>> {
    let path = stack.dir().join(access_log::FILE);
    let wanted: Vec<usize> =
        outcomes.iter().filter(|(_, _, seen)| *seen != Seen::Left).map(|(n, ..)| *n).collect();
    let complete = async || {
        let mut by_number = BTreeMap::new();
        for record in access_log::read(&path) {
            let number =
                record.request_id.as_deref().and_then(|id| id.strip_prefix("r-")?.parse().ok());
            if let Some(number) = number {
                let twice = by_number.insert(number, record).is_some();
                assert!(!twice, "two records of request {number}");
            }
        }
        wanted.iter().all(|number| by_number.contains_key(number)).then_some(by_number)
    };
    stack.until("a record of each answered request", complete).await
}

/// What holds for each request, however it ended.
fn check_records(records: &BTreeMap<usize, Access>) {
    for record in records.values() {
        assert!(record.cause.is_some(), "no cause: {record:?}");
        let details = record.details.as_deref().unwrap_or_default();
        assert!(!details.contains("wasm"), "the filter failed: {record:?}");
        if record.status == 200 {
            assert_eq!(record.endpoint, record.upstream, "another one is charged: {record:?}");
        }
        if record.cause.as_deref() == Some("completed") {
            assert_eq!(record.status, 200, "{record:?}");
        }
    }
}

/// The test is only worth what it brings about: each way to end, and how often at least.
fn check_variety(records: &BTreeMap<usize, Access>, agent_away: &Range<usize>) {
    let at_least = [
        ("completed", 3000),
        ("client left before the pick", 100),
        ("client left while waiting", 100),
        ("client left within the answer", 100),
        ("route's time was up before the answer", 50),
        ("route's time was up within the answer", 50),
        ("engine was silent for too long", 100),
        ("engine broke off before the answer", 20),
        ("engine broke off within the answer", 20),
        ("engine reported an error", 20),
        ("served after its own 503", 40),
        ("served after a refused connection", 40),
        ("refused by the filter", 500),
    ];
    let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, record) in records {
        let known = kind(record).into_iter().chain(retried(*number, record, agent_away));
        known.for_each(|kind| *tally.entry(kind).or_default() += 1);
    }
    for (kind, least) in at_least {
        let count = tally.get(kind).copied().unwrap_or(0);
        assert!(count >= least, "{kind}: {count} times; all: {tally:#?}");
    }
}

fn kind(record: &Access) -> Option<&'static str> {
    let flags = record.flags.as_deref().unwrap_or_default();
    let kind = match (record.cause.as_deref()?, flags, record.status) {
        ("completed", ..) => "completed",
        ("client_gone", _, 200) => "client left within the answer",
        ("client_gone", ..) if record.endpoint.is_some() => "client left while waiting",
        ("client_gone", ..) => "client left before the pick",
        ("no_response", "UT", _) => "route's time was up before the answer",
        ("truncated", "UT", _) => "route's time was up within the answer",
        ("no_response", "SI", _) => "engine was silent for too long",
        ("no_response", "UC" | "UPE", 503) => "engine broke off before the answer",
        ("truncated", "UC" | "UPE", 200) => "engine broke off within the answer",
        ("engine_error", ..) | ("refused", _, 500) => "engine reported an error",
        (cause, ..) if cause.starts_with("warmroute_") => "refused by the filter",
        _ => return None,
    };
    Some(kind)
}

/// While the agent was away nothing but refused connections made Envoy try again.
fn retried(number: usize, record: &Access, agent_away: &Range<usize>) -> Option<&'static str> {
    let served = record.status == 200 && record.attempts > Some(1);
    served.then_some(if agent_away.contains(&number) {
        "served after a refused connection"
    } else {
        "served after its own 503"
    })
}
