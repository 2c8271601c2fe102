//! `strftime_now`: the engine's date in the prompt, taken from the caller's clock, in UTC.

use core::fmt::Write;

pub(crate) const SECONDS_OF_A_DAY: u64 = 86_400;

const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// `datetime.fromtimestamp(unix_s, UTC).strftime(format)` in the C locale; `None` if the format has a directive
/// that is not known here.
pub(crate) fn strftime(format: &str, unix_s: u64) -> Option<String> {
    let date = Date::of(unix_s);
    let mut out = String::new();
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut directive = rest.next()?;
        // glibc's `%-d`: without leading zeros.
        let padded = directive != '-';
        if !padded {
            directive = rest.next()?;
        }
        date.write(directive, padded, &mut out)?;
    }
    Some(out)
}

/// Whether a template shows no more of the clock than its day: it calls `strftime_now` with formats, written out, that
/// have no time of day, and does nothing else with it but ask whether it is there.
pub(crate) fn shows_only_days(template: &str) -> bool {
    template.split("strftime_now").skip(1).all(|rest| {
        let rest = rest.trim_start();
        if rest.starts_with("is ") {
            return true;
        }
        let Some(argument) = rest.strip_prefix('(').map(str::trim_start) else { return false };
        let Some(quote) = argument.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
            return false;
        };
        let format = argument.get(1..).and_then(|rest| rest.split_once(quote));
        format.is_some_and(|(format, behind)| {
            let is_whole = behind.trim_start().starts_with(')') && !format.contains('\\');
            let directives = format.split('%').skip(1);
            let mut days = directives.map(|directive| {
                let directive = directive.trim_start_matches('-');
                directive.starts_with(['a', 'A', 'b', 'B', 'd', 'j', 'm', 'Y', 'y'])
            });
            is_whole && days.all(|is_of_a_day| is_of_a_day)
        })
    })
}

/// A moment of the proleptic Gregorian calendar, UTC.
struct Date {
    year: u64,
    /// From 1.
    month: u64,
    /// From 1.
    day: u64,
    /// From 1.
    day_of_year: u64,
    /// From Sunday, 0.
    weekday: u64,
    second_of_day: u64,
}

impl Date {
    fn of(unix_s: u64) -> Self {
        let days = unix_s / SECONDS_OF_A_DAY;
        let mut year = 1970u64;
        let mut left = days % 146_097;
        year = year.saturating_add(400u64.saturating_mul(days / 146_097));
        while left >= year_length(year) {
            left = left.saturating_sub(year_length(year));
            year = year.saturating_add(1);
        }
        let day_of_year = left.saturating_add(1);
        let mut month = 1u64;
        while left >= month_length(year, month) {
            left = left.saturating_sub(month_length(year, month));
            month = month.saturating_add(1);
        }
        Self {
            year,
            month,
            day: left.saturating_add(1),
            day_of_year,
            // 1 January 1970 was a Thursday.
            weekday: days.saturating_add(4) % 7,
            second_of_day: unix_s % SECONDS_OF_A_DAY,
        }
    }

    fn write(&self, directive: char, padded: bool, out: &mut String) -> Option<()> {
        let hour = self.second_of_day / 3600;
        let hour_12 = if hour.is_multiple_of(12) { 12 } else { hour % 12 };
        let (value, width) = match directive {
            'Y' => (self.year, 1),
            'y' => (self.year % 100, 2),
            'm' => (self.month, 2),
            'd' => (self.day, 2),
            'j' => (self.day_of_year, 3),
            'H' => (hour, 2),
            'I' => (hour_12, 2),
            'M' => (self.second_of_day / 60 % 60, 2),
            'S' => (self.second_of_day % 60, 2),
            'w' => (self.weekday, 1),
            _ => return self.write_name(directive, hour, out),
        };
        let width = if padded { width } else { 1 };
        // Writing to a string cannot fail.
        let _ = write!(out, "{value:0width$}");
        Some(())
    }

    fn write_name(&self, directive: char, hour: u64, out: &mut String) -> Option<()> {
        let named = |names: &[&'static str], index: u64| {
            usize::try_from(index).ok().and_then(|index| names.get(index).copied())
        };
        let month = named(&MONTHS, self.month.saturating_sub(1))?;
        let day = named(&DAYS, self.weekday)?;
        out.push_str(match directive {
            'B' => month,
            'b' | 'h' => month.get(..3)?,
            'A' => day,
            'a' => day.get(..3)?,
            'p' if hour < 12 => "AM",
            'p' => "PM",
            '%' => "%",
            _ => return None,
        });
        Some(())
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn year_length(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn month_length(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::{shows_only_days, strftime};

    #[test]
    fn what_shows_no_more_than_a_day() {
        for (template, shows) in [
            ("no clock", true),
            ("{{ strftime_now('%d %b %Y') }}{% if strftime_now is defined %}{% endif %}", true),
            ("{{ strftime_now( \"%-d\" ) }}", true),
            ("{{ strftime_now('%d %H') }}", false),
            ("{{ strftime_now('%d ' ~ '%H') }}", false),
            ("{{ strftime_now('\\x25H') }}", false),
            ("{{ strftime_now(format) }}", false),
            ("{% set f = strftime_now %}{{ f('%H') }}", false),
        ] {
            assert_eq!(shows_only_days(template), shows, "{template}");
        }
    }

    /// Python 3.11: `datetime.fromtimestamp(unix_s, timezone.utc).strftime(format)`.
    #[test]
    fn as_python_writes_it() {
        for (unix_s, format, expected) in [
            (0, "%Y-%m-%d %H:%M:%S %A", "1970-01-01 00:00:00 Thursday"),
            (951_782_400, "%d %b %Y, day %j", "29 Feb 2000, day 060"),
            (1_796_009_000, "%d %B %Y", "30 November 2026"),
            (1_735_689_599, "%a %-d %b %y %I:%M %p %%", "Tue 31 Dec 24 11:59 PM %"),
            (4_102_444_800, "%F", ""),
            (4_107_542_400, "%Y-%m-%d %w", "2100-03-01 1"),
            (12_345_678, "%-m/%-d %-I%p", "5/23 9PM"),
        ] {
            let written = strftime(format, unix_s);
            // `%F` is not known here: rather no prompt than a wrong one.
            let expected = (!expected.is_empty()).then(|| expected.to_owned());
            assert_eq!(written, expected, "{format}");
        }
        assert_eq!(strftime("50%", 0), None);
    }
}
