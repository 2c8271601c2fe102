//! Traps on demand, in builds with the feature `fault-injection` only.
//!
//! Header `x-warmroute-fault`: `panic` (this VM, now), `panic-applier` (the applier, on its queue), `panic-slot=N` (the
//! VM that holds row slot N, at its next tick).

use warmroute_core::vm::Message;

#[cfg(feature = "fault-injection")]
const KEY: &str = "warmroute.fault";

/// A request's headers.
#[cfg(feature = "fault-injection")]
pub(crate) fn on_request() {
    use crate::host::{self, HostStore};
    use proxy_wasm::types::MapType;
    use warmroute_core::vm::SharedStore;

    let Some(fault) = host::header(MapType::HttpRequestHeaders, "x-warmroute-fault") else {
        return;
    };
    match fault.as_slice() {
        b"panic" => panic!("fault injection: panic"),
        b"panic-applier" => {
            let trap = Message::Trap.encode();
            let now_ms = crate::host::now_ms();
            crate::runtime::with(|runtime| runtime.tell_applier(&trap, now_ms));
        }
        fault => {
            if let Some(slot) = fault.strip_prefix(b"panic-slot=") {
                let _ = HostStore.set(KEY, slot, None);
            }
        }
    }
}

/// A message that the applier took.
#[cfg(feature = "fault-injection")]
pub(crate) fn on_message(message: &Message<'_>) {
    if *message == Message::Trap {
        panic!("fault injection: panic-applier");
    }
}

/// A tick of the VM that holds this row slot.
#[cfg(feature = "fault-injection")]
pub(crate) fn on_tick(slot: Option<usize>) {
    use crate::host::HostStore;
    use warmroute_core::vm::SharedStore;

    let wanted = HostStore.get(KEY).map(|(value, _)| value).unwrap_or_default();
    if let Some(slot) = slot
        && wanted == slot.to_string().as_bytes()
    {
        let _ = HostStore.set(KEY, b"", None);
        panic!("fault injection: panic-slot={slot}");
    }
}

#[cfg(not(feature = "fault-injection"))]
pub(crate) fn on_request() {}

#[cfg(not(feature = "fault-injection"))]
pub(crate) fn on_message(_message: &Message<'_>) {}

#[cfg(not(feature = "fault-injection"))]
pub(crate) fn on_tick(_slot: Option<usize>) {}
