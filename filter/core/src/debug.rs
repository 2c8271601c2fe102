//! One VM's state as JSON, for people and tests.

use crate::vm::VmState;
use serde_json::{Value, json};

/// Endpoints with their loads and requests in flight, and how current this VM is. `memory_bytes`: what the VM
/// takes.
#[must_use]
pub fn state_json(vm: &VmState, now_ms: u64, memory_bytes: usize) -> String {
    let replica = &vm.follower().replica;
    let (position, answered_ms) = replica.roster.position();
    let in_flight = vm.in_flight();
    let policy = replica.policy.current();
    let endpoints: Vec<Value> = replica
        .roster
        .iter()
        .map(|endpoint| {
            let record = &endpoint.record;
            let counts = in_flight.of(record.id);
            json!({
                "name": record.name,
                "address": record.address,
                "ready": endpoint.is_ready(),
                "generation": record.generation,
                "column": endpoint.columns.held.0,
                "precise": record.precise,
                "pools": record.pools,
                "block_tokens": record.block_tokens,
                "kv_blocks": record.kv_blocks,
                "bytes_per_token": endpoint.bytes_per_token,
                "waiting": endpoint.load.waiting,
                "running": endpoint.load.running,
                "kv_usage": endpoint.load.kv_usage,
                "load_age_ms": now_ms.saturating_sub(endpoint.load_at_ms),
                "in_flight": {
                    "requests": counts.requests,
                    "waiting": counts.waiting,
                    "uncached_tokens": counts.uncached_tokens,
                },
            })
        })
        .collect();
    let models: Vec<Value> = replica
        .models
        .iter()
        .map(|model| json!({ "name": model.record.name, "problem": model.problem() }))
        .collect();
    // Also of endpoints that are gone: nothing may be left of those.
    let charged: u64 = in_flight.totals.all().iter().map(|(_, c)| u64::from(c.requests)).sum();
    let (parked, turns) = vm.flow_counts();
    json!({
        "incarnation": format!("{:016x}", vm.incarnation()),
        "slot": vm.slot(),
        "applier": vm.is_applier(),
        "applied": vm.follower().applied(),
        "epoch": position.epoch,
        "seq": position.seq,
        "table_age_ms": now_ms.saturating_sub(answered_ms),
        "prefix_blocks": replica.table.len(),
        "memory_bytes": memory_bytes,
        "models": models,
        "policy": {
            "revision": format!("{:016x}", replica.policy.revision()),
            "unreadable": replica.policy.unreadable(),
            "pools": policy.pools.iter().map(|pool| pool.name.as_str()).collect::<Vec<_>>(),
            "schedulers": policy.schedulers.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(),
        },
        "vms": in_flight.totals.row_count(),
        "in_flight": charged,
        "in_flight_here": vm.ledger().total(),
        "parked_here": parked,
        "turns_here": turns,
        "endpoints": endpoints,
    })
    .to_string()
}
