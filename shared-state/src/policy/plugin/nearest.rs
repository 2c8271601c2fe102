//! Which known name somebody may have meant.

/// The known name that differs least from `given`, if it differs little: by a third of its letters at most.
#[must_use]
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer than any name: no sense in comparing, whatever somebody wrote.
    if given.len() > 80 {
        return None;
    }
    let given: Vec<char> = given.to_lowercase().chars().collect();
    let near = known.into_iter().map(|name| (distance(&given, name), name));
    let (distance, name) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= name.len().max(given.len()).div_ceil(3)).then_some(name)
}

/// Letters to add, drop or change (Levenshtein).
fn distance(given: &[char], name: &str) -> usize {
    let mut row: Vec<usize> = (0..=given.len()).collect();
    for (at, letter) in name.to_lowercase().chars().enumerate() {
        let mut left = at.saturating_add(1);
        let mut diagonal = at;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (cell, other) in row.iter_mut().skip(1).zip(given) {
            let changed = diagonal.saturating_add(usize::from(*other != letter));
            diagonal = *cell;
            *cell = changed.min(left.saturating_add(1)).min(cell.saturating_add(1));
            left = *cell;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn the_least_different_name_is_found_if_it_is_near() {
            let known = ["queue-scorer", "kv-cache-utilization-scorer", "random-picker"];
            for (given, expected) in [
                ("queue-scorrer", Some("queue-scorer")),
                ("Queue-Scorer", Some("queue-scorer")),
                ("kv-cache-utilisation-scorer", Some("kv-cache-utilization-scorer")),
                ("rnadom-picker", Some("random-picker")),
                ("something-else-altogether", None),
                ("", None),
            ] {
                assert_eq!(nearest(given, known), expected, "{given}");
            }
            assert_eq!(nearest(&"x".repeat(100_000), known), None);
        }
    }
}
