//! What a VM does when it panics. Envoy fails a stream of a dead VM at its next callback, and one that waits for its
//! turn has none to come: it would hang until a timeout. So those are answered while the VM still can.

use crate::host;
use std::cell::RefCell;
use std::collections::BTreeSet;

thread_local! {
    /// Contexts of the streams that wait. Not part of the runtime, which is at work when it panics.
    static WAITING: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
}

/// This stream waits from now on.
pub(crate) fn waits(context: u32) {
    WAITING.with_borrow_mut(|waiting| waiting.insert(context));
}

/// It waits no longer, or is gone.
pub(crate) fn waits_no_longer(context: u32) {
    WAITING.with_borrow_mut(|waiting| waiting.remove(&context));
}

/// From now on a panic is logged, as before, and those who wait are answered.
pub(crate) fn install() {
    let log = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        log(panic);
        answer_waiting();
    }));
}

/// Must not panic again: nothing here is unwrapped, or borrowed where it may be borrowed already.
fn answer_waiting() {
    let waiting = WAITING.try_with(|waiting| {
        waiting.try_borrow_mut().map(|mut waiting| core::mem::take(&mut *waiting)).ok()
    });
    for context in waiting.ok().flatten().unwrap_or_default() {
        if host::act_on(context) {
            // On its way out it meets the dead VM, so Envoy puts its own in its place: 503, `wasm_fail_stream`.
            host::reply(503, &[], b"", "wasm_fail_stream");
        }
    }
}
