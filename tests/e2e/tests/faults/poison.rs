//! The same request traps every VM that takes it, again and again.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::background_load::Load;
use e2e::workers::some_each;
use e2e::{Setup, Stack};

use crate::held_streams::SLOW_DECODE;
use crate::traps::{RECOVERY, poison};

const POISONED: usize = 50;

/// What is promised: a trap costs the streams of its worker, and that worker answers 503 until Envoy loads a
/// fresh VM, which takes no longer than the longest pause between two loads (`reload_config`, 1 s). Other
/// workers don't notice.
#[tokio::test(flavor = "multi_thread")]
async fn a_poisonous_request_repeated_costs_one_worker_and_not_for_long() -> Result<()> {
    let mut setup = Setup::new(4, 4).simulator(&SLOW_DECODE);
    setup.fault_injection = true;
    let stack = Stack::start(setup).await?;
    let mut workers = some_each(stack.listen(), 4, POISONED + 2).await?;
    let mut victims = workers.swap_remove(0);
    let victim = victims[0].incarnation.clone();
    let load = Load::on_kept_connections(stack.listen(), 12).await?;

    let start = Instant::now();
    for number in 0..POISONED {
        // At five a second, and faster where the machine was late.
        let due = start + Duration::from_millis(200) * u32::try_from(number)?;
        tokio::time::sleep_until(due.into()).await;
        let Some(mut connection) = victims.pop() else { break };
        let answer = connection.send(&poison()).await?;
        assert_eq!(answer.status, 503);
    }
    victims[0].reloaded(RECOVERY).await?;

    let outcomes = load.stop().await;
    let others: Vec<_> =
        outcomes.iter().filter(|o| o.worker.as_deref() != Some(victim.as_str())).collect();
    let failed: Vec<_> = others.iter().filter(|o| !o.fine()).collect();
    assert!(others.len() > 500, "{} requests on other workers", others.len());
    assert!(failed.len() * 100 <= others.len(), "{} of {}: {failed:?}", failed.len(), others.len());

    let reloads = stack.stat("wasm.warmroute.vm_reload_success").await?;
    assert!(reloads >= 5, "only {reloads} fresh VMs: the worker was down in between");
    let clean = async || {
        let state = stack.filter_state().await.ok()?;
        (state.in_flight == 0 && state.vms == 5).then_some(())
    };
    stack.until_for(RECOVERY, "nothing in flight in 5 VMs", clean).await
}
