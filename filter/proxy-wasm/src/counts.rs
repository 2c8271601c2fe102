//! Counters and gauges on their way to Envoy: added up here, and told at ticks. A request moves ten of them, and each
//! host call costs it more than the sum does.

use proxy_wasm::hostcalls;
use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    /// By the stat's id: as many as were ever defined.
    static PENDING: RefCell<BTreeMap<u32, i64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Adds to a counter or a gauge.
pub(crate) fn add(id: u32, by: i64) {
    PENDING.with_borrow_mut(|pending| {
        let sum = pending.entry(id).or_default();
        *sum = sum.saturating_add(by);
    });
}

/// Tells Envoy. At every tick.
pub(crate) fn tell() {
    let pending = PENDING.with_borrow_mut(core::mem::take);
    for (id, by) in pending.into_iter().filter(|(_, by)| *by != 0) {
        let _ = hostcalls::increment_metric(id, by);
    }
}
