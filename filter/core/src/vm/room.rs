//! How much room there is at endpoints, as this VM sees all workers' requests: for what is refused before a pick.

use super::flow::load_of;
use super::{Ask, VmState};
use crate::flow_control::policy::saturation::InFlight;
use crate::flow_control::policy::shedding::EndpointUse;
use crate::replica::EndpointState;

impl VmState {
    /// The endpoints that may serve the request, with what goes on there.
    #[must_use]
    pub fn uses(&self, ask: &Ask<'_>) -> Vec<EndpointUse> {
        let all = self.in_flight();
        let admitted =
            self.follower.replica.roster.iter().filter(|e| e.is_ready() && ask.admits(e));
        let of = |endpoint: &EndpointState| {
            let counts = all.of(endpoint.record.id);
            // Far below 2^53: exact.
            #[allow(clippy::cast_precision_loss)]
            let tokens = counts.uncached_tokens as f64;
            EndpointUse {
                load: load_of(endpoint),
                in_flight: InFlight { requests: f64::from(counts.requests), tokens },
                unseen: f64::from(counts.waiting),
            }
        };
        admitted.map(of).collect()
    }
}
