//! Which request of a flow goes next.

use crate::flow_control::protocol::{Request, TicketId};
use warmroute_shared_state::policy::plugin::Ordering;

/// A moment that never comes.
pub const NEVER: u64 = u64::MAX;

/// A request's place in its queue: the least goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// By the policy.
    pub key: u64,
    /// When it came, in ms.
    pub since_ms: u64,
    /// Tells equal ones apart.
    pub id: TicketId,
}

impl Rank {
    /// The request's rank under a policy.
    #[must_use]
    pub fn of(ordering: Ordering, id: TicketId, request: &Request) -> Self {
        let key = match ordering {
            Ordering::FirstCome => 0,
            Ordering::EarliestDeadline => request.deadline_ms,
            Ordering::SloDeadline => request.slo_ms,
        };
        Self { key, since_ms: request.since_ms, id }
    }
}

/// When the time to live ends of a request that came at `since_ms`; a TTL of 0 never does.
#[must_use]
pub fn deadline_ms(since_ms: u64, ttl_ms: u64) -> u64 {
    if ttl_ms == 0 { NEVER } else { since_ms.saturating_add(ttl_ms) }
}

/// When the first token is due of a request received at `received_ms`, by the TTFT that it aims at, in ms. Without one,
/// and with too large a one, it sorts last.
#[must_use]
pub fn slo_deadline_ms(received_ms: u64, slo_ttft_ms: Option<u64>) -> u64 {
    slo_ttft_ms
        .and_then(|slo| received_ms.checked_add(slo))
        .filter(|at| i64::try_from(*at).is_ok())
        .unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn without_a_target_or_with_one_beyond_all_time_it_sorts_last() {
            for (slo, due) in [
                (Some(50), 1050), (Some(0), 1000), (None, NEVER), (Some(i64::MAX as u64), NEVER), (Some(u64::MAX), NEVER),
            ] {
                assert_eq!(slo_deadline_ms(1000, slo), due, "{slo:?}");
            }
        }

        fn each_policy_sorts_by_its_own_time_and_ties_by_arrival() {
            let request = |since_ms, deadline_ms, slo_ms| Request {
                since_ms, deadline_ms, slo_ms, ..Request::default()
            };
            let a = request(1, 90, NEVER);
            let b = request(2, 80, NEVER);
            let c = request(3, NEVER, 70);
            let order = |ordering| {
                let mut ranks: Vec<_> = [(1, &a), (2, &b), (3, &c)]
                    .into_iter()
                    .map(|(n, r)| Rank::of(ordering, TicketId { incarnation: 1, number: n }, r))
                    .collect();
                ranks.sort();
                ranks.iter().map(|rank| rank.id.number).collect::<Vec<_>>()
            };
            assert_eq!(order(Ordering::FirstCome), [1, 2, 3]);
            assert_eq!(order(Ordering::EarliestDeadline), [2, 1, 3]);
            assert_eq!(order(Ordering::SloDeadline), [3, 1, 2]);
            assert_eq!(deadline_ms(5, 0), NEVER);
            assert_eq!(deadline_ms(5, 60), 65);
        }
    }
}
