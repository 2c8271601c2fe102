//! Plots as inline SVG, coloured by the page's CSS variables.

use std::fmt::Write;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 40.0;
/// More points than this on a curve cannot be told apart.
const POINTS: usize = 240;

/// A named series with its CSS class.
pub struct Series<'a> {
    /// Its class: `a` to `e`.
    pub class: &'static str,
    /// Its name.
    pub label: &'static str,
    /// What was measured.
    pub values: &'a [f64],
}

macro_rules! put {
    ($out:expr, $($argument:tt)*) => {
        write!($out, $($argument)*).expect("writing to a string cannot fail")
    };
}

fn open(label: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">")
}

/// Share of requests answered within a time, over a logarithmic axis. Values are sorted.
#[must_use]
pub fn distribution(label: &str, series: &[Series<'_>]) -> String {
    let positive =
        || series.iter().flat_map(|one| one.values).copied().filter(|value| *value > 0.0);
    let (low, high) = (positive().fold(f64::MAX, f64::min), positive().fold(0.0, f64::max));
    let mut out = open(label);
    if high <= 0.0 {
        put!(out, "<text x=\"{LEFT}\" y=\"{}\">nothing was measured</text></svg>", HEIGHT / 2.0);
        return out;
    }
    let decades = (low.log10().floor() as i32, (high * 1.0001).log10().ceil() as i32);
    let span = f64::from((decades.1 - decades.0).max(1));
    let x =
        |value: f64| LEFT + (value.log10() - f64::from(decades.0)) / span * (WIDTH - LEFT - RIGHT);
    let y = |share: f64| TOP + (1.0 - share) * (HEIGHT - TOP - BOTTOM);

    for decade in decades.0..=decades.1 {
        let base = 10_f64.powi(decade);
        let at = x(base);
        put!(
            out,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>",
            y(0.0)
        );
        put!(
            out,
            "<text class=\"mid\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            y(0.0) + 16.0,
            duration(base)
        );
        if decade < decades.1 {
            for minor in 2..10 {
                let at = x(base * f64::from(minor));
                put!(
                    out,
                    "<line class=\"tick\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                    y(0.0),
                    y(0.0) + 4.0
                );
            }
        }
    }
    for percent in [0, 25, 50, 75, 100] {
        let at = y(f64::from(percent) / 100.0);
        put!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
            WIDTH - RIGHT
        );
        put!(
            out,
            "<text class=\"end\" x=\"{:.1}\" y=\"{:.1}\">{percent}%</text>",
            LEFT - 6.0,
            at + 4.0
        );
    }
    let caption = (LEFT + WIDTH - RIGHT) / 2.0;
    put!(
        out,
        "<text class=\"mid\" x=\"{caption:.1}\" y=\"{:.1}\">time to first token</text>",
        HEIGHT - 6.0
    );

    for one in series {
        let count = one.values.len();
        let Some(first) = one.values.first() else { continue };
        let mut path = format!("M{:.1},{:.1}", x(*first), y(0.0));
        let step = count.div_ceil(POINTS).max(1);
        for index in (0..count).step_by(step).chain([count - 1]) {
            let share = (index + 1) as f64 / count as f64;
            // Steps: nothing is known of what lies between two values.
            put!(path, "H{:.1}V{:.1}", x(one.values[index]), y(share));
        }
        put!(path, "H{:.1}", WIDTH - RIGHT);
        put!(
            out,
            "<path class=\"curve {}\" d=\"{path}\"><title>{}</title></path>",
            one.class,
            one.label
        );
        let median = one.values[(count - 1) / 2];
        put!(
            out,
            "<circle class=\"{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\"><title>{}, median: {}</title></circle>",
            one.class,
            x(median),
            y(0.5),
            one.label,
            duration(median)
        );
    }
    out.push_str("</svg>");
    out
}

/// Values side by side for each name; the caption says what they are.
#[must_use]
pub fn bars(label: &str, caption: &str, names: &[String], series: &[Series<'_>]) -> String {
    let high = series.iter().flat_map(|one| one.values).copied().fold(1.0, f64::max);
    let y = |value: f64| TOP + 8.0 + (1.0 - value / high) * (HEIGHT - TOP - 8.0 - BOTTOM);
    let slot = (WIDTH - LEFT - RIGHT) / names.len().max(1) as f64;
    let bar = slot * 0.72 / series.len().max(1) as f64;
    let mut out = open(label);
    put!(
        out,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
        WIDTH - RIGHT,
        y(0.0),
        y(0.0)
    );
    for (index, name) in names.iter().enumerate() {
        let middle = LEFT + slot * (index as f64 + 0.5);
        put!(out, "<text class=\"mid\" x=\"{middle:.1}\" y=\"{:.1}\">{name}</text>", y(0.0) + 16.0);
        for (place, one) in series.iter().enumerate() {
            let value = one.values.get(index).copied().unwrap_or(0.0);
            let left = middle + (place as f64 - series.len() as f64 / 2.0) * (bar + 2.0);
            put!(
                out,
                "<rect class=\"{}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{bar:.1}\" height=\"{:.1}\"><title>{}, {name}: {value}</title></rect>",
                one.class,
                y(value),
                y(0.0) - y(value),
                one.label
            );
            put!(
                out,
                "<text class=\"mid\" x=\"{:.1}\" y=\"{:.1}\">{value}</text>",
                left + bar / 2.0,
                y(value) - 4.0
            );
        }
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    put!(
        out,
        "<text class=\"mid\" x=\"{middle:.1}\" y=\"{:.1}\">{caption}</text></svg>",
        HEIGHT - 6.0
    );
    out
}

/// Milliseconds for people.
pub(crate) fn duration(milliseconds: f64) -> String {
    match milliseconds {
        ms if ms >= 1_000.0 => format!("{} s", (ms / 10.0).round() / 100.0),
        ms if ms >= 10.0 => format!("{} ms", ms.round()),
        ms => format!("{} ms", (ms * 100.0).round() / 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let cases = [
            (0.25, "0.25 ms"),
            (9.5, "9.5 ms"),
            (60.4, "60 ms"),
            (1_000.0, "1 s"),
            (1_234.0, "1.23 s"),
        ];
        for (value, text) in cases {
            assert_eq!(duration(value), text);
        }
    }

    #[test]
    fn a_slower_series_lies_further_right() {
        let (fast, slow) = ([10.0, 20.0, 30.0], [1_000.0, 2_000.0, 3_000.0]);
        let plot = distribution(
            "x",
            &[
                Series { class: "a", label: "A", values: &fast },
                Series { class: "b", label: "B", values: &slow },
            ],
        );
        let at = |class: &str| {
            let circle = plot.split(&format!("<circle class=\"{class}\" cx=\"")).nth(1).unwrap();
            circle.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        assert!(at("a") + 100.0 < at("b"), "{plot}");
    }

    #[test]
    fn plots_without_values_are_still_drawn() {
        let none = || Series { class: "a", label: "A", values: &[] };
        assert!(distribution("x", &[none()]).contains("nothing was measured"));
        assert!(bars("x", "", &[], &[none()]).ends_with("</svg>"));
    }
}
