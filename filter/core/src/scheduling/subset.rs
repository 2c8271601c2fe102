//! The subset hint: an outer gateway says which endpoints may serve a request.

/// The endpoints of a hint, by their IPs, so that all ranks of a pod are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subset {
    /// Sorted.
    ips: Vec<String>,
}

impl Subset {
    /// Those of these entries: `ip` or `ip:port` each.
    #[must_use]
    pub fn of<'h>(entries: impl IntoIterator<Item = &'h str>) -> Self {
        let mut ips: Vec<_> = entries.into_iter().map(|entry| ip(entry).to_owned()).collect();
        ips.sort_unstable();
        Self { ips }
    }

    /// Whether the endpoint at `address` (`ip:port`) is one of them.
    #[must_use]
    pub fn contains(&self, address: &str) -> bool {
        self.ips.binary_search_by(|known| known.as_str().cmp(ip(address))).is_ok()
    }
}

fn ip(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(ip, _)| ip)
}
