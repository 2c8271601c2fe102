//! Times of RFC 3339: `creationTimestamp`, which Kubernetes writes in whole seconds and UTC, and others may not; and
//! what an operator asks of the ledger.

/// A moment, to the nanosecond; an earlier one is less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970, in UTC.
    seconds: i64,
    nanos: u32,
}

impl Timestamp {
    /// Reads a time like `2026-01-31T12:00:00Z`, `2026-01-31T12:00:00.25+02:00`. Of a fraction nine digits count.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (date, rest) = (text.get(..10)?, text.get(10..)?);
        let rest = rest.strip_prefix(['T', 't'])?;
        let (time, rest) = (rest.get(..8)?, rest.get(8..)?);
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        // A second may be a leap second.
        let fine = hour < 24 && minute < 60 && second <= 60;
        let days = Some(days_since_1970(year, month, day)?).filter(|_| fine)?;
        let (nanos, zone) = fraction(rest)?;
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second - offset(zone)?;
        Some(Self { seconds, nanos })
    }

    /// Milliseconds since 1970, rounded down.
    #[must_use]
    pub fn millis(self) -> i64 {
        self.seconds * 1000 + i64::from(self.nanos / 1_000_000)
    }
}

/// Three numbers of these lengths.
fn numbers(text: &str, between: char, lengths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(between);
    let mut found = [0; 3];
    for (number, length) in found.iter_mut().zip(lengths) {
        let digits = parts.next()?;
        let fine = digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_digit());
        *number = digits.parse().ok().filter(|_| fine)?;
    }
    parts.next().is_none().then_some(found)
}

/// Days since 1970 of a day of the Gregorian calendar, if there is such a day.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month.checked_sub(1)?).ok()?;
    if !(1..=*lengths.get(before)?).contains(&day) {
        return None;
    }
    // Leap days from year 0 up to this year; there were 719,528 days before 1970.
    let leaps = (year + 3) / 4 - (year + 99) / 100 + (year + 399) / 400;
    let in_year: i64 = lengths.iter().take(before).sum();
    Some(year * 365 + leaps + in_year + day - 1 - 719_528)
}

/// The nanoseconds of a fraction, if there is one, and what is behind it.
fn fraction(text: &str) -> Option<(u32, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, zone) = rest.split_at_checked(length).filter(|_| length > 0)?;
    let nanos = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
    Some((nanos.fold(0, |nanos, digit| nanos * 10 + u32::from(digit - b'0')), zone))
}

/// Seconds that a zone is ahead of UTC.
fn offset(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let (sign, clock) = match zone.strip_prefix('+') {
        Some(clock) => (1, clock),
        None => (-1, zone.strip_prefix('-')?),
    };
    let [hours, minutes, _] = numbers(&format!("{clock}:00"), ':', [2, 2, 2])?;
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_rfc_3339_allows_is_read() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0, 0),
            ("2026-11-30T09:00:00Z", 1_796_029_200, 0),
            ("2026-11-30t09:00:00z", 1_796_029_200, 0),
            ("2026-11-30T11:00:00+02:00", 1_796_029_200, 0),
            ("2026-11-29T23:30:00-09:30", 1_796_029_200, 0),
            ("2026-11-30T09:00:00.5Z", 1_796_029_200, 500_000_000),
            ("2026-11-30T10:00:00.000000001999+01:00", 1_796_029_200, 1),
            ("2028-02-29T00:00:00Z", 1_835_395_200, 0),
            ("2000-03-01T00:00:00Z", 951_868_800, 0),
            ("1969-12-31T23:59:59Z", -1, 0),
            ("2016-12-31T23:59:60Z", 1_483_228_800, 0),
            ("0000-01-01T00:00:00Z", -719_528 * 86_400, 0),
            ("9999-12-31T23:59:59Z", 253_402_300_799, 0),
        ];
        for (text, seconds, nanos) in cases {
            assert_eq!(Timestamp::parse(text), Some(Timestamp { seconds, nanos }), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused() {
        let bad = [
            "",
            "yesterday",
            "2026-01-31",
            "2026-01-31T12:00:00",
            "2026-01-31 12:00:00Z",
            "2026-1-31T12:00:00Z",
            "2026-02-29T12:00:00Z",
            "2100-02-29T12:00:00Z",
            "2026-00-01T12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-01-00T12:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T12:60:00Z",
            "2026-01-31T12:00:61Z",
            "2026-01-31T12:00:00.Z",
            "2026-01-31T12:00:00.5",
            "2026-01-31T12:00:00+2:00",
            "2026-01-31T12:00:00+0200",
            "2026-01-31T12:00:00+24:00",
            "2026-01-31T12:00:00+-1:00",
            "2026-01-31T12:00:00Zx",
            "+026-01-31T12:00:00Z",
            "2026-01-31T12:00:0éZ",
        ];
        for text in bad {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }
}
