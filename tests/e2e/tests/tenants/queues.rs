//! Who waits when the engines are full, and for how long.

use crate::bed::{KEY_A, KEY_B, short, tenants, usage};
use anyhow::{Context as _, Result, ensure};
use e2e::client::{self, Request, Response};
use e2e::scripted_engine::{ScriptedEngine, Served};
use e2e::state::FilterState;
use e2e::workers::{WorkerConnection, one_each};
use e2e::{Endpoint, Setup, Stack};
use tokio::task::JoinHandle;

const WORKERS: usize = 4;

/// `x-request-id` of each worker's first request.
const PRIME: &str = "prime";

const ANSWER: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

/// Flow control at `places` requests in flight at each engine, with these further fields of `flowControl`.
pub(crate) fn flow_control(places: u32, fields: &str) -> String {
    flow_control_with("", places, fields)
}

/// The same with these further plugins, each a line.
pub(crate) fn flow_control_with(plugins: &str, places: u32, fields: &str) -> String {
    format!(
        "---\napiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\n\
         plugins:\n{plugins}- {{type: concurrency-detector, parameters: {{maxConcurrency: {places}}}}}\n- type: random-picker\n\
         schedulingProfiles: [{{name: default, plugins: [{{pluginRef: random-picker}}]}}]\n\
         flowControl:\n  saturationDetector: {{pluginRef: concurrency-detector}}\n{fields}"
    )
}

/// A tenant `a` of priority 7, and `b` of priority 0.
pub(crate) fn prioritized() -> String {
    let premium = "---\napiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: premium}\n\
                   spec: {priority: 7, poolRef: {name: default}}\n";
    tenants("  inject: {objective: premium}", "") + premium
}

/// One scripted engine behind the workers.
pub(crate) struct Bed {
    pub(crate) stack: Stack,
    engine: ScriptedEngine,
    workers: Vec<WorkerConnection>,
}

/// A request under way.
pub(crate) struct Call {
    answer: JoinHandle<Result<Response>>,
    served: Served,
}

impl Call {
    /// Waits for it at the engine.
    pub(crate) async fn arrived(&mut self) -> Result<()> {
        tokio::select! {
            arrived = self.served.arrived() => {
                arrived.context("it did not arrive at the engine").map(|_| ())
            }
            answer = &mut self.answer => {
                let answer = answer??;
                anyhow::bail!("refused: {} {:?}", answer.status, answer.text())
            }
        }
    }

    /// The engine answers it; waits until the client has it.
    pub(crate) async fn finish(self) -> Result<()> {
        self.served.send(ANSWER);
        self.served.done();
        let answer = self.answer.await??;
        ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
        Ok(())
    }

    /// What the client gets while the engine does not answer.
    pub(crate) async fn refused(self) -> Result<Response> {
        self.answer.await?
    }

    /// The client hangs up.
    fn leave(self) {
        self.answer.abort();
    }
}

impl Bed {
    pub(crate) async fn start(documents: &str) -> Result<Self> {
        Self::start_with(documents, "").await
    }

    /// The same with more fields for the plugin configuration, each with a comma before it.
    pub(crate) async fn start_with(documents: &str, plugin: &str) -> Result<Self> {
        let engine = ScriptedEngine::start().await?;
        let mut setup = Setup::new(0, WORKERS).document(documents);
        plugin.clone_into(&mut setup.plugin_config_extra);
        setup.other_endpoints.push(Endpoint::new("scripted", engine.address));
        let stack = Stack::start(setup).await?;
        let mut workers = one_each(stack.listen(), WORKERS).await?;
        // The dispatcher knows a worker from its first request on: what they report after that comes in the order
        // in which it happened.
        for worker in &mut workers {
            let answer = worker.send(&short(KEY_A, 1).id(PRIME)).await?;
            ensure!(answer.status == 200, "{}: {}", answer.status, answer.text());
        }
        let mut bed = Self { stack, engine, workers };
        bed.settled(0, 0).await?;
        Ok(bed)
    }

    pub(crate) fn call(&self, key: &str, id: &str) -> Call {
        self.send(short(key, 4), id)
    }

    fn send(&self, request: Request, id: &str) -> Call {
        let served = self.engine.expect(id);
        let (listen, request) = (self.stack.listen(), request.id(id));
        let answer = tokio::spawn(async move { client::send(listen, &request).await });
        Call { answer, served }
    }

    /// The tests' requests in the order in which they arrived at the engine.
    pub(crate) fn order(&self) -> Vec<String> {
        self.engine.order().into_iter().filter(|id| id != PRIME).collect()
    }

    /// Configures anew, and waits until every worker decides by it.
    pub(crate) async fn reconfigure(&mut self, documents: &str) -> Result<()> {
        let before = self.stack.filter_state().await?.policy.revision;
        self.stack.write_documents(documents)?;
        for worker in &mut self.workers {
            let changed = |state: &FilterState| state.policy.revision != before;
            worker.until(e2e::stack::PATIENCE, "another configuration", changed).await?;
        }
        Ok(())
    }

    /// Waits until so many requests wait and so many have their turn, over all workers.
    pub(crate) async fn settled(&mut self, parked: u64, turns: u64) -> Result<()> {
        let mut seen = (0, 0);
        let since = std::time::Instant::now();
        while since.elapsed() < e2e::stack::PATIENCE {
            seen = (0, 0);
            for worker in &mut self.workers {
                let state = worker.state().await?;
                seen = (seen.0 + state.parked_here, seen.1 + state.turns_here);
            }
            if seen == (parked, turns) {
                return Ok(());
            }
        }
        anyhow::bail!("{} wait and {} have their turn, not {parked} and {turns}", seen.0, seen.1)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_place_waits_and_the_higher_band_goes_first() -> Result<()> {
    let mut bed = Bed::start(&(prioritized() + &flow_control(2, ""))).await?;
    let mut running = Vec::new();
    for id in ["b1", "b2"] {
        let mut call = bed.call(KEY_B, id);
        call.arrived().await?;
        running.push(call);
    }
    let mut waiting = Vec::new();
    for (at, (key, id)) in
        [(KEY_B, "b3"), (KEY_B, "b4"), (KEY_A, "a1"), (KEY_A, "a2")].into_iter().enumerate()
    {
        waiting.push(bed.call(key, id));
        bed.settled(at as u64 + 1, 2).await?;
    }
    // Whoever ends makes room for one: A's first, though they came last.
    waiting.rotate_left(2);
    for mut next in waiting {
        running.remove(0).finish().await?;
        next.arrived().await?;
        running.push(next);
    }
    for call in running {
        call.finish().await?;
    }
    assert_eq!(bed.order(), ["b1", "b2", "a1", "a2", "b3", "b4"]);
    bed.settled(0, 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_and_a_client_that_leaves_makes_room() -> Result<()> {
    let bands = "  priorityBands: [{priority: 0, maxRequests: 1}]\n";
    let mut bed = Bed::start(&(prioritized() + &flow_control(1, bands))).await?;
    let mut first = bed.call(KEY_B, "first");
    first.arrived().await?;
    let left = bed.call(KEY_B, "left");
    bed.settled(1, 1).await?;
    let refused = bed.call(KEY_B, "refused").refused().await?;
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert_eq!(refused.header("x-llm-d-request-dropped-reason"), Some("rejected-saturated"));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(bed.stack.access("refused").await?.details.as_deref(), Some("warmroute_queue_full"));
    left.leave();
    bed.settled(0, 1).await?;
    let mut next = bed.call(KEY_B, "next");
    bed.settled(1, 1).await?;
    // Who runs and leaves makes room, as well.
    first.leave();
    next.arrived().await?;
    next.finish().await?;
    assert_eq!(bed.order(), ["first", "next"]);
    bed.settled(0, 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_longer_than_a_request_may() -> Result<()> {
    let times = "  defaultRequestTTL: 400ms\n  noEndpointRequestTTL: 300ms\n";
    let mut bed = Bed::start(&(prioritized() + &flow_control(1, times))).await?;
    let mut first = bed.call(KEY_B, "first");
    first.arrived().await?;
    let expired = bed.call(KEY_B, "expired").refused().await?;
    assert_eq!(expired.status, 429, "{}", expired.text());
    assert_eq!(expired.header("x-llm-d-request-dropped-reason"), Some("rejected-ttl-expired"));
    first.finish().await?;
    bed.settled(0, 0).await?;
    // Without any endpoint.
    bed.stack.write_endpoints(&[])?;
    bed.stack.wait_ready(0).await?;
    for worker in &mut bed.workers {
        worker
            .until(e2e::stack::PATIENCE, "no endpoint", |state| state.endpoints.is_empty())
            .await?;
    }
    let nobody = bed.call(KEY_B, "nobody").refused().await?;
    assert_eq!(nobody.status, 503, "{}", nobody.text());
    assert_eq!(nobody.header("x-llm-d-request-dropped-reason"), Some("rejected-no-endpoints"));
    assert_eq!(bed.order(), ["first"]);
    bed.settled(0, 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_wait_and_leave_leave_nothing() -> Result<()> {
    const MANY: u64 = 300;
    let mut bed = Bed::start(&(prioritized() + &flow_control(1, ""))).await?;
    let mut first = bed.call(KEY_A, "first");
    first.arrived().await?;
    let waiting: Vec<_> = (0..MANY).map(|id| bed.call(KEY_B, &format!("left-{id}"))).collect();
    bed.settled(MANY, 1).await?;
    waiting.into_iter().for_each(Call::leave);
    bed.settled(0, 1).await?;
    first.finish().await?;
    bed.settled(0, 0).await?;
    assert_eq!(bed.order(), ["first"]);
    usage(&bed.stack, "b", |total| total["requests"] == MANY && total["output"] == 0).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whose_first_token_is_due_first_goes_first() -> Result<()> {
    let bands =
        "  priorityBands: [{priority: 0, orderingPolicyRef: slo-deadline-ordering-policy}]\n";
    let ordering = "- {type: slo-deadline-ordering-policy}\n";
    let documents = prioritized() + &flow_control_with(ordering, 1, bands);
    let mut bed = Bed::start_with(&documents, ", \"trust_control_headers\": true").await?;
    let mut first = bed.call(KEY_B, "first");
    first.arrived().await?;
    let mut waiting = Vec::new();
    for (at, (id, ms)) in
        [("never", None), ("late", Some("900000")), ("soon", Some("60000"))].into_iter().enumerate()
    {
        let request = short(KEY_B, 4);
        let request = ms.map_or(request.clone(), |ms| request.header("x-llm-d-slo-ttft-ms", ms));
        waiting.push(bed.send(request, id));
        bed.settled(at as u64 + 1, 1).await?;
    }
    let mut running = first;
    for mut next in waiting.into_iter().rev() {
        running.finish().await?;
        next.arrived().await?;
        running = next;
    }
    running.finish().await?;
    assert_eq!(bed.order(), ["first", "soon", "late", "never"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn some_places_are_held_back_for_the_higher_priority() -> Result<()> {
    let holdback = "- {type: priority-holdback-policy, parameters: {minCeiling: 0.5}}\n";
    let fields = "  usageLimitPolicyPluginRef: priority-holdback-policy\n";
    let documents = prioritized() + &flow_control_with(holdback, 4, fields);
    let mut bed = Bed::start(&documents).await?;
    let mut running = Vec::new();
    for id in ["b1", "b2"] {
        let mut call = bed.call(KEY_B, id);
        call.arrived().await?;
        running.push(call);
    }
    let mut waiting = bed.call(KEY_B, "b3");
    bed.settled(1, 2).await?;
    for id in ["a1", "a2"] {
        let mut call = bed.call(KEY_A, id);
        call.arrived().await?;
        running.push(call);
    }
    bed.settled(1, 4).await?;
    // Only once less than half is taken.
    for call in running.drain(..3) {
        call.finish().await?;
    }
    waiting.arrived().await?;
    assert_eq!(bed.order(), ["b1", "b2", "a1", "a2", "b3"]);
    waiting.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sheddable_request_is_ended_for_a_higher_priority() -> Result<()> {
    let batch = "---\napiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: batch}\n\
                 spec: {priority: -1, poolRef: {name: default}}\n";
    let documents = tenants("", "  inject: {objective: batch}")
        + batch
        + &flow_control(1, "  enableEviction: true\n");
    let mut bed = Bed::start(&documents).await?;
    let mut batch = bed.call(KEY_B, "batch");
    batch.arrived().await?;
    let mut urgent = bed.call(KEY_A, "urgent");
    let evicted = batch.refused().await?;
    assert_eq!(evicted.status, 429, "{}", evicted.text());
    assert_eq!(evicted.header("x-llm-d-request-dropped-reason"), Some("evicted"));
    urgent.arrived().await?;
    urgent.finish().await?;
    let total = usage(&bed.stack, "b", |total| total["requests"] == 1).await?;
    assert_eq!(total["evicted"], 1, "{total}");
    bed.settled(0, 0).await
}
