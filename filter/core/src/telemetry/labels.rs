//! Labels with bounded values, and how they stand in the name of an Envoy stat.

use core::fmt::Write as _;
use std::collections::BTreeSet;

/// Stands for every value beyond the bound.
const OTHER: &str = "other";

/// Distinct model names, and distinct fairness IDs, of one VM. llm-d has 1,000 of each; Envoy keeps each stat of each
/// combination for ever.
const VALUES_KEPT: usize = 200;

/// Combinations of labels of one VM.
const SETS_KEPT: usize = 1000;

/// Longer values are cut.
const VALUE_BYTES: usize = 128;

/// The labels that llm-d puts on every metric of a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Labels {
    /// `model_name`: what the client asked for.
    pub model: String,
    /// `target_model_name`: what the engine was asked for.
    pub target_model: String,
    /// `fairness_id`.
    pub fairness_id: String,
    /// `priority`.
    pub priority: i32,
}

/// The values that have been used.
#[derive(Debug, Default)]
pub struct LabelBounds {
    models: BTreeSet<String>,
    fairness_ids: BTreeSet<String>,
    sets: BTreeSet<Labels>,
}

impl LabelBounds {
    /// The labels as they may be used: values beyond the bounds are `other`.
    pub fn admit(&mut self, labels: &Labels) -> Labels {
        let admitted = Labels {
            model: admit(&mut self.models, &labels.model),
            target_model: admit(&mut self.models, &labels.target_model),
            fairness_id: admit(&mut self.fairness_ids, &labels.fairness_id),
            priority: labels.priority,
        };
        if self.sets.contains(&admitted) {
            return admitted;
        }
        if self.sets.len() < SETS_KEPT {
            self.sets.insert(admitted.clone());
            return admitted;
        }
        let other = || OTHER.to_owned();
        Labels { model: other(), target_model: other(), fairness_id: other(), priority: 0 }
    }
}

fn admit(known: &mut BTreeSet<String>, value: &str) -> String {
    let mut end = value.len().min(VALUE_BYTES);
    while !value.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let value = value.get(..end).unwrap_or_default();
    if known.contains(value) {
        return value.to_owned();
    }
    if known.len() >= VALUES_KEPT {
        return OTHER.to_owned();
    }
    known.insert(value.to_owned());
    value.to_owned()
}

/// Name of a stat, from which Envoy's `stats_tags` take the labels: `@name=.=value;.;` for each, then the metric's.
#[must_use]
pub fn stat_name(metric: &str, labels: &[(&str, &str)]) -> String {
    let mut name = String::new();
    for (label, value) in labels {
        let _ = write!(name, "@{label}=.=");
        // What ends a value must not stand in it.
        name.extend(
            value
                .chars()
                .map(|c| if matches!(c, ';' | '@' | '|') || c.is_control() { '_' } else { c }),
        );
        name.push_str(";.;");
    }
    name.push_str(metric);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(n: usize) -> Labels {
        let name = |what: &str| format!("{what}-{n}");
        Labels { model: name("m"), target_model: name("m"), fairness_id: name("f"), priority: 0 }
    }

    crate::tests! {
        fn values_beyond_the_bound_are_other_and_known_ones_stay() {
            let mut bounds = LabelBounds::default();
            for n in 0..2 * VALUES_KEPT {
                bounds.admit(&labels(n));
            }
            assert_eq!(bounds.admit(&labels(3)), labels(3));
            assert_eq!(bounds.admit(&labels(9999)).model, OTHER);
            assert!(bounds.models.len() <= VALUES_KEPT && bounds.sets.len() <= SETS_KEPT);
        }

        fn combinations_are_bounded_too() {
            let mut bounds = LabelBounds::default();
            for n in 0..3 * SETS_KEPT {
                let priority = i32::try_from(n).unwrap();
                bounds.admit(&Labels { priority, ..labels(1) });
            }
            assert_eq!(bounds.sets.len(), SETS_KEPT);
            assert_eq!(bounds.admit(&Labels { priority: 5, ..labels(1) }).priority, 5);
        }

        fn a_value_cannot_end_itself() {
            let name = stat_name("x_total", &[("a", "1;.;@b=.=2"), ("b", "é.c")]);
            assert_eq!(name, "@a=.=1_._b=.=2;.;@b=.=é.c;.;x_total".replace("_._b", "_.__b"));
        }

        fn long_values_are_cut_between_characters() {
            let mut bounds = LabelBounds::default();
            let long = Labels { model: "é".repeat(100), ..labels(0) };
            assert_eq!(bounds.admit(&long).model, "é".repeat(64));
        }
    }
}
