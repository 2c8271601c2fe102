//! A span of time, as an operator gives it.

use super::ReportError;
use crate::timestamp::Timestamp;

/// From `since_ms` on, before `until_ms`, in ms since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// The first moment that counts.
    pub since_ms: i64,
    /// The first that does not.
    pub until_ms: i64,
}

impl Period {
    /// Reads `since` and `until`, each an age (`24h`) or a time (RFC 3339, or less of it); without them, all time.
    ///
    /// # Errors
    /// If one is neither.
    pub fn new(since: Option<&str>, until: Option<&str>, now_ms: u64) -> Result<Self, ReportError> {
        let now_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        Ok(Self {
            since_ms: since.map_or(Ok(0), |text| moment(text, now_ms))?,
            until_ms: until.map_or(Ok(i64::MAX), |text| moment(text, now_ms))?,
        })
    }
}

fn moment(text: &str, now_ms: i64) -> Result<i64, ReportError> {
    if let Some(age) = age(text) {
        return Ok(now_ms.saturating_sub(age).max(0));
    }
    // More than RFC 3339 has: only a day, no seconds, no zone (UTC), a space for the `T`.
    let mut time = text.replacen(' ', "T", 1);
    time.push_str(match text.len() {
        10 => "T00:00:00Z",
        16 => ":00Z",
        19 => "Z",
        _ => "",
    });
    Timestamp::parse(&time).map(Timestamp::millis).ok_or_else(|| ReportError::Time(text.to_owned()))
}

/// `24h` and the like, in ms.
fn age(text: &str) -> Option<i64> {
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)];
    units.iter().find_map(|(unit, seconds)| {
        let count = text.strip_suffix(unit)?;
        let digits = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let ms = count.parse::<i64>().ok()?.checked_mul(seconds * 1000)?;
        digits.then_some(ms)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_times_are_read() {
        let now = 1_790_000_000_000_i64;
        let cases = [
            ("90s", now - 90_000),
            ("30m", now - 1_800_000),
            ("24h", now - 86_400_000),
            ("7d", now - 604_800_000),
            ("4w", now - 2_419_200_000),
            ("99999999w", 0),
            ("2026-11-30", 1_795_996_800_000),
            ("2026-11-30T09:00:00Z", 1_796_029_200_000),
            ("2026-11-30 09:00", 1_796_029_200_000),
            ("2026-11-30 09:00:01", 1_796_029_201_000),
            ("2026-11-30T10:00:00.250+01:00", 1_796_029_200_250),
            ("2028-02-29", 1_835_395_200_000),
        ];
        for (text, expected) in cases {
            let period = Period::new(Some(text), Some(text), now.unsigned_abs()).unwrap();
            assert_eq!((period.since_ms, period.until_ms), (expected, expected), "{text}");
        }
        let all = Period::new(None, None, 5).unwrap();
        assert_eq!(all, Period { since_ms: 0, until_ms: i64::MAX });
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let bad = [
            "",
            "now",
            "24",
            "h",
            "-1h",
            "+1h",
            "1.5h",
            "2460000.5",
            "2026-13-01",
            "2026-02-30",
            "2026-11-30T25:00:00Z",
            "2026-11-30Tx",
            "99999999999999999999s",
            "2026-11-3é",
        ];
        for text in bad {
            let error = Period::new(Some(text), None, 0).unwrap_err();
            assert!(matches!(error, ReportError::Time(_)), "{text}: {error}");
        }
    }
}
