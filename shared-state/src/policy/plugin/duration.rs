//! Durations as Go writes them, which is how llm-d's and Gateway API's objects write theirs.

use core::time::Duration;

/// Reads `300ms`, `1m30s`, `1.5h`. `None` if it is none: no unit, an unknown unit, below zero, beyond 292 years.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(digits)?;
        let number: f64 = number.parse().ok()?;
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(end)?;
        let scale = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number * scale;
        rest = after;
    }
    // Go counts nanoseconds in an int64.
    (seconds < 9.2e9).then(|| Duration::try_from_secs_f64(seconds).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::tests! {
        fn durations_are_read_as_go_writes_them() {
            for (text, expected) in [
                ("60s", Some(60_000)),
                ("200ms", Some(200)),
                ("1m30s", Some(90_000)),
                ("1.5h", Some(5_400_000)),
                ("0", Some(0)),
                ("0s", Some(0)),
                ("60", None),
                ("-1s", None),
                ("1d", None),
                ("", None),
                ("s", None),
                ("1..5s", None),
                ("99999999999h", None),
            ] {
                let read = parse_duration(text).map(|d| d.as_millis());
                assert_eq!(read, expected, "{text}");
            }
        }
    }
}
