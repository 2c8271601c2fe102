//! Nothing is left of requests that are over.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::Stack;
use e2e::state::Charged;
use e2e::workers::one_each;

/// Free ports for `N` engines, as the simulator's argument. Not from the range that outgoing connections
/// take theirs from: else one of those could sit on the port of an engine that is down.
pub(crate) fn engine_ports<const N: usize>() -> Result<String> {
    let ports = warmroute_demo::processes::free_ports::<N>()?;
    Ok(ports.map(|port| port.to_string()).join(","))
}

/// Waits until each worker agrees that no row of any VM charges anything, and until no engine works.
pub(crate) async fn nothing_is_left(stack: &Stack) -> Result<()> {
    let limit = Instant::now() + Duration::from_secs(30);
    for worker in &mut one_each(stack.listen(), stack.setup.workers).await? {
        // A worker that nobody asks for anything looks at the others' rows ten times a second.
        loop {
            let state = worker.state().await?;
            let charged = state.endpoints.iter().any(|e| e.in_flight != Charged::default());
            if (state.in_flight, state.in_flight_here, charged) == (0, 0, false) {
                break;
            }
            ensure!(Instant::now() < limit, "still in flight: {state:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let engines_idle = async || {
        let engines = stack.engines().await.ok()?;
        engines.iter().all(|engine| (engine.running, engine.waiting) == (0, 0)).then_some(())
    };
    stack.until("the engines have nothing to do", engines_idle).await
}
