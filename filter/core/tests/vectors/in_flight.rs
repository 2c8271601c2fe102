//! Which endpoints may serve at all, and what a request counts while it is in flight.

use crate::check::{figures, same};
use crate::entry::{Entry, Failure, Fields};
use serde_json::{Value, json};
use warmroute_core::scheduling::{Subset, output_tokens, tokens_in_flight};
use warmroute_shared_state::policy::plugin::{self, Plugin, Producer};
use warmroute_shared_state::policy::scheduler::InflightLoad;

pub(crate) fn subset(entry: &Entry) -> Result<(), Failure> {
    let params = Fields::new(&entry.params, &["disableEndpointSubsetFilter"])?;
    let input = entry.input(&["pods", "subset"])?;
    let disabled = params.flag("disableEndpointSubsetFilter")?;
    // Entries that are no text are passed over, as where the hint is read.
    let subset = Subset::of(input.list("subset")?.iter().filter_map(Value::as_str));
    let pods = input.list("pods")?.iter();
    let kept = pods.filter(|pod| disabled || subset.contains(pod.as_str().unwrap_or_default()));
    let kept: Vec<Value> = kept.cloned().collect();
    same(&kept, entry.expected(&["candidates"])?.list("candidates")?)
}

/// The load as the producer reads its parameters; output counts, which is what these entries are about.
fn load(params: &Value) -> Result<InflightLoad, Failure> {
    let mut params = params.clone();
    params["addEstimatedOutputTokens"] = json!(true);
    let read = plugin::read("inflight-load-producer", &params);
    match read.map_err(|error| Failure::new(error.to_string()))?.plugin {
        Plugin::Producer(Producer::InflightLoad(load)) => Ok(load),
        other => Err(Failure::new(format!("no load producer: {other:?}"))),
    }
}

/// Tokens; below zero there are none.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn tokens(input: &Fields<'_>, key: &str) -> Result<u64, Failure> {
    Ok(input.number(key)?.max(0.0) as u64)
}

#[allow(clippy::cast_precision_loss)]
pub(crate) fn total(entry: &Entry) -> Result<(), Failure> {
    let input = tokens(&entry.input(&["input_tokens"])?, "input_tokens")?;
    let total = tokens_in_flight(&load(&entry.params)?, input, input, None);
    figures(entry, "total_tokens", &[total as f64])
}

#[allow(clippy::cast_precision_loss)]
pub(crate) fn output(entry: &Entry) -> Result<(), Failure> {
    let input = entry.input(&["input_tokens", "client_max_tokens"])?;
    // A maximum below zero is none: the parser reads no such number.
    let client = input.optional("client_max_tokens").and_then(Value::as_u64);
    let output = output_tokens(&load(&entry.params)?, tokens(&input, "input_tokens")?, client);
    figures(entry, "output_tokens", &[output as f64])
}
