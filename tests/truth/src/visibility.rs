//! How soon events are visible in every worker: a histogram that the filter keeps in Envoy.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use warmroute_demo::processes::Buckets;

use crate::verdict::Delay;

/// The end of the histogram's name.
const HISTOGRAM: &str = "warmroute.event_to_visible_ms";

/// What the histogram holds once nothing more comes.
///
/// # Errors
/// When it does not cease; `logs` tells where to look.
pub async fn quiet(admin: SocketAddr, logs: &Path) -> Result<Buckets> {
    Ok(Buckets::quiet(admin, HISTOGRAM, logs).await?)
}

/// Median and 99th percentile.
///
/// # Errors
/// When there is no value.
pub fn delay(buckets: &Buckets) -> Result<Delay> {
    let none = || format!("no value in {HISTOGRAM}: did the filter see an event?");
    let [p50, p99] = [0.5, 0.99].map(|share| buckets.quantile(share).with_context(none));
    Ok(Delay { p50: p50?, p99: p99? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_told() {
        assert!(delay(&Buckets::default()).unwrap_err().to_string().contains("no value"));
    }
}
