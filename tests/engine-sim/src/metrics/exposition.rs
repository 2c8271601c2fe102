//! Prometheus text, spelled as Python's client spells it.

use std::fmt::Write as _;

use crate::engine::stats::Histogram;

/// A label: name and value.
pub type Label<'a> = (&'a str, &'a str);

/// An exposition under construction.
pub struct Exposition {
    out: String,
    /// Unix time at which every counter started; its `_created` series.
    created: f64,
}

impl Exposition {
    /// An empty exposition of counters that started at `created` (Unix seconds).
    pub fn new(created: f64) -> Self {
        Self { out: String::with_capacity(80_000), created }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.out
    }

    /// A gauge family.
    pub fn gauge(&mut self, name: &str, help: &str, series: &[(&[Label<'_>], f64)]) {
        self.head(name, help, "gauge");
        for (labels, value) in series {
            self.sample(name, "", labels, None, *value);
        }
    }

    /// A counter family, `name` without `_total`, and its `_created` family.
    pub fn counter(&mut self, name: &str, help: &str, series: &[(&[Label<'_>], f64)]) {
        let total = format!("{name}_total");
        self.head(&total, help, "counter");
        for (labels, value) in series {
            self.sample(&total, "", labels, None, *value);
        }
        let labels: Vec<_> = series.iter().map(|(labels, _)| *labels).collect();
        self.created(name, help, &labels);
    }

    /// A histogram family and its `_created` family.
    pub fn histogram(&mut self, name: &str, help: &str, series: &[(&[Label<'_>], &Histogram)]) {
        self.head(name, help, "histogram");
        for (labels, histogram) in series {
            for (bound, count) in histogram.cumulative() {
                let bound =
                    if bound.is_finite() { format!("{bound:?}") } else { "+Inf".to_owned() };
                self.sample(name, "_bucket", labels, Some(&bound), count as f64);
            }
            self.sample(name, "_count", labels, None, histogram.count() as f64);
            self.sample(name, "_sum", labels, None, histogram.sum());
        }
        let labels: Vec<_> = series.iter().map(|(labels, _)| *labels).collect();
        self.created(name, help, &labels);
    }

    /// A summary family without quantiles, and its `_created` family.
    pub fn summary(&mut self, name: &str, help: &str, series: &[(&[Label<'_>], u64, f64)]) {
        self.head(name, help, "summary");
        for (labels, count, sum) in series {
            self.sample(name, "_count", labels, None, *count as f64);
            self.sample(name, "_sum", labels, None, *sum);
        }
        let labels: Vec<_> = series.iter().map(|(labels, ..)| *labels).collect();
        self.created(name, help, &labels);
    }

    fn created(&mut self, name: &str, help: &str, series: &[&[Label<'_>]]) {
        let name = format!("{name}_created");
        self.head(&name, help, "gauge");
        for labels in series {
            self.sample(&name, "", labels, None, self.created);
        }
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// `le`, where there is one, takes its place in the alphabetical order of the labels.
    fn sample(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &[Label<'_>],
        le: Option<&str>,
        value: f64,
    ) {
        self.out.push_str(name);
        self.out.push_str(suffix);
        let mut open = '{';
        let mut le = le;
        for (label, text) in labels {
            if *label > "le"
                && let Some(bound) = le.take()
            {
                self.label(&mut open, "le", bound);
            }
            self.label(&mut open, label, text);
        }
        if let Some(bound) = le {
            self.label(&mut open, "le", bound);
        }
        if open == ',' {
            self.out.push('}');
        }
        self.out.push(' ');
        self.out.push_str(&number(value));
        self.out.push('\n');
    }

    fn label(&mut self, open: &mut char, name: &str, value: &str) {
        let _ = write!(self.out, "{open}{name}=\"");
        for c in value.chars() {
            match c {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
        *open = ',';
    }
}

/// `floatToGoString` of Python's prometheus_client.
fn number(value: f64) -> String {
    let plain = format!("{value:?}");
    match plain.find('.') {
        Some(dot) if value > 0.0 && dot > 6 => {
            let (digits, fraction) =
                (plain.get(..dot).unwrap_or(""), plain.get(dot + 1..).unwrap_or(""));
            let (first, rest) = digits.split_at(1);
            let mantissa = format!("{first}.{rest}{fraction}");
            format!("{}e+0{}", mantissa.trim_end_matches(['0', '.']), dot - 1)
        }
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelled_as_in_the_captures() {
        for (value, text) in [
            (0.0, "0.0"),
            (4.0, "4.0"),
            (15_506.0, "15506.0"),
            (0.477_987_421_383_647_8, "0.4779874213836478"),
            (1_795_993_536.010_127_8, "1.7959935360101278e+09"),
            (4_676_820_992.0, "4.676820992e+09"),
            (999_999.0, "999999.0"),
            (1_000_000.0, "1e+06"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn le_sorts_between_engine_and_model_name() {
        let mut histogram = Histogram::new(&[1.0]);
        histogram.observe(0.5);
        let mut exposition = Exposition::new(1.5);
        exposition.histogram(
            "h",
            "Help.",
            &[(&[("engine", "0"), ("model_name", "a\"b")], &histogram)],
        );
        assert_eq!(
            exposition.finish(),
            "# HELP h Help.\n# TYPE h histogram\n\
             h_bucket{engine=\"0\",le=\"1.0\",model_name=\"a\\\"b\"} 1.0\n\
             h_bucket{engine=\"0\",le=\"+Inf\",model_name=\"a\\\"b\"} 1.0\n\
             h_count{engine=\"0\",model_name=\"a\\\"b\"} 1.0\n\
             h_sum{engine=\"0\",model_name=\"a\\\"b\"} 0.5\n\
             # HELP h_created Help.\n# TYPE h_created gauge\n\
             h_created{engine=\"0\",model_name=\"a\\\"b\"} 1.5\n"
        );
    }
}
