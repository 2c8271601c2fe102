//! Quantities as Kubernetes writes them: `500`, `1k`, `10Gi`, `1.5M`, `1e3`.
//!
//! Format: `k8s.io/apimachinery/pkg/api/resource`.

const BINARY: &[(&str, u32)] =
    &[("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
const DECIMAL: &[(&str, i32)] = &[
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// The quantity, parts of one rounded up. `None` if it is none, negative, or beyond 2^63.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let number: f64 = number.parse().ok()?;
    let exponent = |digits: &str| {
        let plain = digits.strip_prefix(['+', '-']).unwrap_or(digits);
        let fine =
            (1..=2).contains(&plain.len()) && plain.bytes().all(|byte| byte.is_ascii_digit());
        fine.then(|| digits.parse::<i32>().ok()).flatten()
    };
    let value = if suffix.is_empty() {
        number
    } else if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        number * f64::from(1u32 << (power / 2)) * f64::from(1u32 << (power - power / 2))
    } else if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        number * 10f64.powi(*power)
    } else {
        number * 10f64.powi(exponent(suffix.strip_prefix(['e', 'E'])?)?)
    };
    // The float holds every whole number that anybody limits a queue by.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (value.is_finite() && value < 9.2e18).then(|| value.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_kubernetes() {
        let cases = [
            ("0", Some(0)),
            ("500", Some(500)),
            ("1k", Some(1000)),
            ("10Gi", Some(10 << 30)),
            ("1.5Ki", Some(1536)),
            ("1.5M", Some(1_500_000)),
            ("100m", Some(1)),
            ("1e3", Some(1000)),
            ("1E3", Some(1000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("+5", Some(5)),
            ("8Ei", None),
            ("-1", None),
            ("1K", None),
            ("1 Gi", None),
            ("Gi", None),
            ("", None),
            ("1e400", None),
            ("1.2.3", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let _ = parse(&text);
        }
    }
}
