//! Tenants, queues and prompts: what every part is made of.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use e2e::client::Request;
use e2e::state::FilterState;
use e2e::workers::one_each;
use e2e::{MODEL, Stack};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use warmroute_demo::workload::{Message, SimulatedTokens, Tokens as _, Writer};

/// Envoy's worker threads.
pub const WORKERS: usize = 4;

/// The tenant entitled to more, or whose requests are urgent.
pub const A: &str = "a";
/// The other one.
pub const B: &str = "b";

/// A tenant's API key.
#[must_use]
pub fn key(tenant: &str) -> String {
    format!("sk-bench-{tenant}")
}

/// The `TenantQuota` of a tenant, with these further fields of `spec`, each on a line that begins with two spaces.
#[must_use]
pub fn tenant(name: &str, spec: &str) -> String {
    let mut hash = String::new();
    for byte in Sha256::digest(key(name)) {
        // Writing to a string cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    format!(
        "---\napiVersion: warmroute/v1alpha1\nkind: TenantQuota\nmetadata: {{name: {name}}}\nspec:\n  \
         identity: {{apiKeyHashes: [\"{hash}\"], stripKey: true}}\n{spec}\n"
    )
}

/// An objective of this priority.
#[must_use]
pub fn objective(name: &str, priority: i32) -> String {
    format!(
        "---\napiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {{name: {name}}}\n\
         spec: {{priority: {priority}, poolRef: {{name: default}}}}\n"
    )
}

/// Flow control with `places` requests at once at each engine and this fairness policy, which every band has.
#[must_use]
pub fn flow_control(places: usize, fairness: &str) -> String {
    let name = fairness.split([',', ' ']).next().unwrap_or_default();
    format!(
        "---\napiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nfeatureGates: [flowControl]\nplugins:\n\
         - {{type: {fairness}}}\n\
         - {{type: concurrency-detector, parameters: {{maxConcurrency: {places}}}}}\n- type: queue-scorer\n\
         schedulingProfiles: [{{name: default, plugins: [{{pluginRef: queue-scorer}}]}}]\n\
         flowControl:\n  maxRequests: 20k\n  defaultRequestTTL: 300s\n  \
         saturationDetector: {{pluginRef: concurrency-detector}}\n  \
         defaultPriorityBand: {{fairnessPolicyRef: {name}, maxRequests: 20k}}\n"
    )
}

/// Shares in tokens: three parts of four are A's.
pub const WEIGHTED: &str = "weighted-token-fairness-policy, parameters: {weights: {a: 3, b: 1}}";

/// Writes prompts of an exact number of tokens, none like another.
pub struct Prompts {
    tokens: SimulatedTokens,
    writer: Writer,
}

impl Prompts {
    /// Loads the engines' tokenizer.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn new() -> Result<Self> {
        let tokens = SimulatedTokens::new()?;
        let writer = Writer::new(&tokens)?;
        Ok(Self { tokens, writer })
    }

    /// A text whose chat has exactly `length` tokens, the template's included.
    ///
    /// # Errors
    /// When the template alone is longer.
    pub fn text(&self, length: usize) -> Result<String> {
        let random = &mut fastrand::Rng::new();
        // Digits first: no two prompts share even their first block.
        let opening = format!("{:04}", random.u32(..10_000));
        let around = self.chat_tokens(&opening) - self.tokens.text(&opening).len();
        let inside = length.checked_sub(around).context("a prompt shorter than its template")?;
        Ok(self.writer.write(&self.tokens, random, &opening, inside)?)
    }

    fn chat_tokens(&self, text: &str) -> usize {
        self.tokens.chat(&[Message { role: "user", content: text.to_owned() }]).len()
    }
}

/// The body of a chat that is answered with exactly `reply` tokens.
#[must_use]
pub fn chat(text: &str, reply: usize) -> Value {
    json!({"model": MODEL, "max_tokens": reply, "messages": [{"role": "user", "content": text}]})
}

/// The same with a tenant's key.
#[must_use]
pub fn keyed(tenant: &str, body: &Value) -> Request {
    Request::chat(body).header("authorization", &format!("Bearer {}", key(tenant)))
}

/// What is left in all workers together: requests that wait, that have their turn, and that are charged to endpoints.
///
/// # Errors
/// When a worker does not tell.
pub async fn left_over(stack: &Stack) -> Result<u64> {
    let mut left = 0;
    for worker in &mut one_each(stack.listen(), WORKERS).await? {
        let FilterState { parked_here, turns_here, in_flight, in_flight_here, .. } =
            worker.state().await?;
        left += parked_here + turns_here + in_flight + in_flight_here;
    }
    Ok(left)
}

/// What is left once nothing is, or else after some seconds.
///
/// # Errors
/// When a worker does not tell.
pub async fn finally_left(stack: &Stack) -> Result<u64> {
    let none = async || left_over(stack).await.ok().filter(|left| *left == 0);
    match stack.until("nothing left in any worker", none).await {
        Ok(none) => Ok(none),
        Err(_) => left_over(stack).await,
    }
}
