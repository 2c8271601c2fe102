//! A span of time, as an operator gives it.

use super::ReportError;
use rusqlite::Connection;

/// From `since_ms` on, before `until_ms`, in ms since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// The first moment that counts.
    pub since_ms: i64,
    /// The first that does not.
    pub until_ms: i64,
}

impl Period {
    /// Reads `since` and `until`, each an age (`24h`) or a time (RFC 3339, or a day); without them, all time.
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
    let none = || ReportError::Time(text.to_owned());
    if let Some(age) = age(text) {
        return Ok(now_ms.saturating_sub(age).max(0));
    }
    // SQLite reads more than this: `now`, day numbers.
    let shape = text.as_bytes().get(..10).is_some_and(|day| {
        day.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
    });
    if !shape || text.len() > 40 {
        return Err(none());
    }
    let sql =
        "SELECT CAST(round(unixepoch(?1, 'subsec') * 1000) AS INTEGER), date(substr(?1, 1, 10))";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let found: (Option<i64>, Option<String>) =
        Connection::open_in_memory()?.query_row(sql, [text], read)?;
    match found {
        // A day that no month has would be read as one of the next month.
        (Some(ms), Some(day)) if text.starts_with(&day) => Ok(ms),
        _ => Err(none()),
    }
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
