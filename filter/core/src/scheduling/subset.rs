//! The subset hint: an outer gateway says which endpoints may serve a request.

/// Whether an endpoint at `address` (`ip:port`) is in the hint: entries are compared by IP, so that all ranks of a
/// pod are meant; what is no text is passed over. `None` as a hint: everybody is.
#[must_use]
pub fn in_subset<'h>(address: &str, hint: Option<impl IntoIterator<Item = &'h str>>) -> bool {
    let ip = |address: &'h str| address.rsplit_once(':').map_or(address, |(ip, _)| ip);
    let own = address.rsplit_once(':').map_or(address, |(ip, _)| ip);
    hint.is_none_or(|hint| hint.into_iter().any(|entry| ip(entry) == own))
}
