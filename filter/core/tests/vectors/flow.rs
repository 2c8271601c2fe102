//! Flow control: which request goes first, up to where priorities are let through, and what the refused are told.

use crate::check::{figures, same};
use crate::entry::{Entry, Failure, Fields};
use serde_json::Value;
use warmroute_core::exchange::refusal_of;
use warmroute_core::flow_control::policy::ceiling::Ceilings;
use warmroute_core::flow_control::policy::fairness::{FlowId, Turns};
use warmroute_core::flow_control::policy::ordering::{Rank, slo_deadline_ms};
use warmroute_core::flow_control::policy::saturation::sheds;
use warmroute_core::flow_control::protocol::{DropReason, Refused, Request, TicketId};
use warmroute_core::routing::whole_ms;
use warmroute_shared_state::policy::plugin::{self, Fairness, Ordering, Plugin};

/// Where entries' clocks begin: they count below 0, too.
const START_MS: i64 = 1_000_000;

const DROP_REASON: &str = "x-llm-d-request-dropped-reason";

fn read(entry: &Entry) -> Result<Plugin, Failure> {
    let read = plugin::read(&entry.plugin, &entry.params);
    read.map(|instance| instance.plugin).map_err(|error| Failure::new(error.to_string()))
}

/// Two queues with a request each, or none: whether that of `a` goes next.
pub(crate) fn slo_deadline(entry: &Entry) -> Result<(), Failure> {
    let Plugin::Ordering(ordering) = read(entry)? else {
        return Err(Failure::new("no ordering policy"));
    };
    let input = entry.input(&["a", "b"])?;
    let mut turns = Turns::new(&Fairness::GlobalStrict);
    // Of equals neither is before the other: `b` has the flow that would go first by its name.
    let (a, b) = (FlowId::from("2"), FlowId::from("1"));
    for (key, flow) in [("a", &a), ("b", &b)] {
        let rank = input.optional(key).map(|request| rank(ordering, request)).transpose()?;
        turns.head_changed(flow, None, rank);
    }
    same(&(turns.next(0) == Some(a)), &entry.expected(&["a_before_b"])?.flag("a_before_b")?)
}

fn rank(ordering: Ordering, request: &Value) -> Result<Rank, Failure> {
    let fields = Fields::new(request, &["received_ms", "slo_ttft_header"])?;
    let received = fields.get("received_ms")?.as_i64().and_then(|ms| ms.checked_add(START_MS));
    let since_ms = received
        .and_then(|ms| u64::try_from(ms).ok())
        .ok_or_else(|| Failure::new("`received_ms` must be a whole number"))?;
    let header = fields.optional("slo_ttft_header").and_then(Value::as_str);
    let slo_ms = slo_deadline_ms(since_ms, header.and_then(whole_ms));
    let request = Request { since_ms, slo_ms, ..Request::default() };
    Ok(Rank::of(ordering, TicketId::default(), &request))
}

/// The ceilings of one decision, or those of the second band in several.
pub(crate) fn ceilings(entry: &Entry) -> Result<(), Failure> {
    let Plugin::UsageLimit(limit) = read(entry)? else {
        return Err(Failure::new("no usage-limit policy"));
    };
    let input = entry.input(&["priorities", "saturation", "calls"])?;
    let priority = |value: &Value| value.as_i64().and_then(|n| i32::try_from(n).ok());
    let priorities: Option<Vec<i32>> = input.list("priorities")?.iter().map(priority).collect();
    let priorities =
        priorities.ok_or_else(|| Failure::new("`priorities` must be numbers of 32 bits"))?;
    let saturation =
        if input.optional("saturation").is_some() { input.number("saturation")? } else { 0.0 };
    let mut policy = Ceilings::new(limit);
    let Some(calls) = input.optional("calls") else {
        return figures(entry, "ceilings", &policy.decide(saturation, &priorities));
    };
    let calls = calls.as_u64().ok_or_else(|| Failure::new("`calls` must be a whole number"))?;
    let second = (0..calls).map(|_| policy.decide(saturation, &priorities).get(1).copied());
    let second: Option<Vec<f64>> = second.collect();
    let second = second.ok_or_else(|| Failure::new("there is no second band"))?;
    figures(entry, "ceilings_band1", &second)
}

/// What a client is told whose request was refused or ended while it waited.
pub(crate) fn outcome(entry: &Entry) -> Result<(), Failure> {
    Fields::new(&entry.params, &[])?;
    let input = entry.input(&["outcome", "pool_empty"])?;
    let empty = input.optional("pool_empty").and_then(Value::as_bool) == Some(true);
    let reason = match input.text("outcome")? {
        "RejectedCapacity" => DropReason::Saturated,
        "RejectedNoEndpoints" => DropReason::NoEndpoints,
        "EvictedTTL" if !empty => DropReason::TtlExpired,
        "EvictedTTL" | "EvictedNoEndpoints" => DropReason::TtlNoEndpoints,
        "EvictedContextCancelled" => DropReason::Cancelled,
        "RejectedOther(shutdown)" | "EvictedOther(shutdown)" => DropReason::ShuttingDown,
        other => return Err(Failure::new(format!("no such outcome: {other}"))),
    };
    let (reply, _) = refusal_of(&Refused::Queue { reason, retry_after_ms: 1000 });
    let expected = entry.expected(&["http_status", "header"])?;
    same(&Value::from(reply.status), expected.get("http_status")?)?;
    let header = Fields::new(expected.get("header")?, &[DROP_REASON])?;
    let told = reply.headers.iter().find(|(name, _)| *name == DROP_REASON);
    same(&told.map(|(_, value)| value.as_ref()), &Some(header.text(DROP_REASON)?))
}

/// A request to a full pool that has no flow control.
pub(crate) fn shedding(entry: &Entry) -> Result<(), Failure> {
    Fields::new(&entry.params, &[])?;
    let input = entry.input(&["priority", "saturation"])?;
    let priority = input.get("priority")?.as_i64().and_then(|n| i32::try_from(n).ok());
    let priority =
        priority.ok_or_else(|| Failure::new("`priority` must be a number of 32 bits"))?;
    let shed = sheds(priority, input.number("saturation")?);
    let status = shed.then(|| DropReason::Saturated.status());
    same(&Value::from(status), entry.expected(&["http_status"])?.get("http_status")?)
}
