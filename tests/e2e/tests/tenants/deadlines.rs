//! Who of a flow goes first by `edf-ordering-policy`.

use crate::bed::KEY_B;
use crate::queues::{Bed, flow_control_with, prioritized};
use anyhow::Result;

/// With this time to live, by this policy.
fn documents(policy: &str, ttl: &str) -> String {
    let fields = format!(
        "  defaultRequestTTL: {ttl}\n  priorityBands: [{{priority: 0, orderingPolicyRef: {policy}}}]\n"
    );
    prioritized() + &flow_control_with(&format!("- {{type: {policy}}}\n"), 1, &fields)
}

/// Where all have the same time to live, the first comes first. A shorter one for those to come makes the difference.
#[tokio::test(flavor = "multi_thread")]
async fn whose_time_is_over_first_goes_first() -> Result<()> {
    for (policy, order) in [
        ("edf-ordering-policy", ["first", "soon", "later", "late"]),
        ("fcfs-ordering-policy", ["first", "late", "later", "soon"]),
    ] {
        let mut bed = Bed::start(&documents(policy, "900s")).await?;
        let mut running = bed.call(KEY_B, "first");
        running.arrived().await?;
        let mut waiting = Vec::new();
        for (parked, (id, ttl)) in [("late", None), ("later", Some("600s")), ("soon", Some("300s"))]
            .into_iter()
            .enumerate()
        {
            if let Some(ttl) = ttl {
                bed.reconfigure(&documents(policy, ttl)).await?;
            }
            waiting.push((id, bed.call(KEY_B, id)));
            bed.settled(parked as u64 + 1, 1).await?;
        }
        for next in &order[1..] {
            running.finish().await?;
            let at = waiting.iter().position(|(id, _)| id == next).unwrap_or_default();
            let (_, mut call) = waiting.remove(at);
            call.arrived().await?;
            running = call;
        }
        running.finish().await?;
        assert_eq!(bed.order(), order, "{policy}");
        bed.settled(0, 0).await?;
    }
    Ok(())
}
