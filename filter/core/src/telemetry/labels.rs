//! A request's labels, their values bounded, and how they stand in the name of an Envoy stat.

use core::fmt::Write as _;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Stands for every value beyond the bound.
pub(super) const OTHER: &str = "other";

/// Model names, and fairness IDs, of one VM that only requests name. llm-d has 1,000 of each; Envoy keeps each stat
/// of each combination for ever.
const OTHERS_KEPT: usize = 200;

/// The same of those that the configuration or an engine names. Only a configuration that changes all the time gets
/// there.
const CONFIGURED_KEPT: usize = 1000;

/// Combinations of labels of one VM with a value that only requests name.
const OTHER_SETS_KEPT: usize = 500;

/// Combinations of configured values.
const CONFIGURED_SETS_KEPT: usize = 1000;

/// Longer values are cut.
const VALUE_BYTES: usize = 128;

/// The labels that llm-d puts on every metric of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels<'a> {
    /// `model_name`: what the client asked for.
    pub model: Cow<'a, str>,
    /// `target_model_name`: what the engine was asked for.
    pub target_model: Cow<'a, str>,
    /// `fairness_id`.
    pub fairness_id: Cow<'a, str>,
    /// `priority`.
    pub priority: i32,
}

/// A label whose values clients can make up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Label {
    /// `model_name` and `target_model_name`.
    Model,
    /// `fairness_id`.
    FairnessId,
}

/// Who asks for room.
pub struct Admission<'a> {
    /// The request is sent on: a name of its own making may take one of the places for such names.
    pub sent_on: bool,
    /// Whether the operator's configuration, or an engine, has this name.
    pub configured: &'a dyn Fn(Label, &str) -> bool,
}

/// An admitted combination of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetId(pub(super) usize);

/// An admitted value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NameId(usize);

impl NameId {
    /// [`OTHER`]; known names count from 1.
    const OTHER: Self = Self(0);
}

/// Model, target model, fairness ID, priority.
type Key = (NameId, NameId, NameId, i32);

/// The labels that have been used.
#[derive(Debug, Default)]
pub(super) struct LabelBounds {
    models: Names,
    fairness_ids: Names,
    ids: BTreeMap<Key, SetId>,
    sets: Vec<(Key, Labels<'static>)>,
    /// Of them, those with a value that only requests name.
    others: usize,
}

impl LabelBounds {
    /// The labels as they may be used. What is beyond the bounds is `other`; configured names have bounds of their own.
    pub(super) fn admit(&mut self, labels: &Labels<'_>, admission: &Admission<'_>) -> SetId {
        if let Some(id) = self.known(labels) {
            return id;
        }
        let model = self.models.admit(&labels.model, Label::Model, admission);
        let target = self.models.admit(&labels.target_model, Label::Model, admission);
        let fairness_id =
            self.fairness_ids.admit(&labels.fairness_id, Label::FairnessId, admission);
        let mut values = [
            (model, &labels.model),
            (target, &labels.target_model),
            (fairness_id, &labels.fairness_id),
        ];
        if values.iter().any(|(name, _)| !name.configured) {
            let key = key(&values, labels.priority);
            if self.others < OTHER_SETS_KEPT || self.ids.contains_key(&key) {
                let before = self.sets.len();
                let id = self.insert(key, &values);
                self.others = self.others.saturating_add(self.sets.len().saturating_sub(before));
                return id;
            }
            for (name, _) in values.iter_mut().filter(|(name, _)| !name.configured) {
                *name = Name::OTHER;
            }
        }
        let key = key(&values, labels.priority);
        let configured = self.sets.len().saturating_sub(self.others);
        if configured < CONFIGURED_SETS_KEPT || self.ids.contains_key(&key) {
            return self.insert(key, &values);
        }
        let rest = values.map(|(_, value)| (Name::OTHER, value));
        self.insert((NameId::OTHER, NameId::OTHER, NameId::OTHER, 0), &rest)
    }

    /// The labels of a set.
    pub(super) fn labels(&self, id: SetId) -> Option<&Labels<'static>> {
        self.sets.get(id.0).map(|(_, labels)| labels)
    }

    /// The target model of a set.
    pub(super) fn target_model(&self, id: SetId) -> NameId {
        self.sets.get(id.0).map_or(NameId::OTHER, |((_, target, ..), _)| *target)
    }

    /// The set of a request like one before: nearly all.
    fn known(&self, labels: &Labels<'_>) -> Option<SetId> {
        let model = self.models.known(&labels.model)?;
        let target = self.models.known(&labels.target_model)?;
        let fairness_id = self.fairness_ids.known(&labels.fairness_id)?;
        self.ids.get(&(model, target, fairness_id, labels.priority)).copied()
    }

    fn insert(&mut self, key: Key, values: &[(Name, &Cow<'_, str>); 3]) -> SetId {
        let next = SetId(self.sets.len());
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            let [model, target_model, fairness_id] = values.map(|(name, value)| {
                let text = if name.id == NameId::OTHER { OTHER } else { cut(value) };
                Cow::Owned(text.to_owned())
            });
            self.sets.push((key, Labels { model, target_model, fairness_id, priority: key.3 }));
        }
        id
    }
}

fn key(values: &[(Name, &Cow<'_, str>); 3], priority: i32) -> Key {
    let [model, target, fairness_id] = values.map(|(name, _)| name.id);
    (model, target, fairness_id, priority)
}

#[derive(Debug, Clone, Copy)]
struct Name {
    id: NameId,
    configured: bool,
}

impl Name {
    /// It takes nobody's place.
    const OTHER: Self = Self { id: NameId::OTHER, configured: true };
}

/// Values of a label.
#[derive(Debug, Default)]
struct Names {
    names: BTreeMap<Box<str>, Name>,
    /// Those that only requests name.
    others: usize,
}

impl Names {
    fn known(&self, value: &str) -> Option<NameId> {
        self.names.get(cut(value)).map(|name| name.id)
    }

    fn admit(&mut self, value: &str, label: Label, admission: &Admission<'_>) -> Name {
        let configured = || (admission.configured)(label, value);
        if let Some(name) = self.names.get_mut(cut(value)) {
            // It was sent before it was configured.
            if !name.configured && configured() {
                name.configured = true;
                self.others = self.others.saturating_sub(1);
            }
            return *name;
        }
        let configured = configured();
        let room = if configured {
            self.names.len().saturating_sub(self.others) < CONFIGURED_KEPT
        } else {
            admission.sent_on && self.others < OTHERS_KEPT
        };
        if !room {
            return Name::OTHER;
        }
        let id = NameId(self.names.len().saturating_add(1));
        let name = Name { id, configured };
        self.names.insert(cut(value).into(), name);
        self.others = self.others.saturating_add(usize::from(!configured));
        name
    }
}

fn cut(value: &str) -> &str {
    value.get(..value.floor_char_boundary(VALUE_BYTES)).unwrap_or_default()
}

/// Name of a stat, from which Envoy's `stats_tags` take the labels: `@name=.=value;.;` for each, then the metric's.
pub(super) fn stat_name(metric: &str, labels: &[(&str, &str)]) -> String {
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

    fn labels(model: &str, fairness_id: &str, priority: i32) -> Labels<'static> {
        let text = |value: &str| Cow::Owned(value.to_owned());
        Labels {
            model: text(model),
            target_model: text(model),
            fairness_id: text(fairness_id),
            priority,
        }
    }

    /// Names that begin with `real` are configured.
    fn configured(_: Label, name: &str) -> bool {
        name.starts_with("real")
    }

    fn admit(bounds: &mut LabelBounds, labels: &Labels<'_>, sent_on: bool) -> Labels<'static> {
        let id = bounds.admit(labels, &Admission { sent_on, configured: &configured });
        assert_eq!(bounds.admit(labels, &Admission { sent_on, configured: &configured }), id);
        bounds.labels(id).unwrap().clone()
    }

    crate::tests! {
        fn invented_names_beyond_the_bound_are_other_and_take_no_place_of_configured_ones() {
            let mut bounds = LabelBounds::default();
            for n in 0..2 * OTHERS_KEPT {
                let name = format!("m-{n}");
                let seen = admit(&mut bounds, &labels(&name, "real", 0), true);
                assert_eq!(seen.model, if n < OTHERS_KEPT { &*name } else { OTHER });
                assert_eq!(seen.fairness_id, "real");
            }
            for name in ["m-3", "real-m"] {
                assert_eq!(admit(&mut bounds, &labels(name, "real", 0), true), labels(name, "real", 0));
            }
        }

        fn a_refused_request_takes_no_place_unless_its_name_is_configured() {
            let mut bounds = LabelBounds::default();
            assert_eq!(admit(&mut bounds, &labels("m", "f", 0), false), labels(OTHER, OTHER, 0));
            assert_eq!(admit(&mut bounds, &labels("real", "f", 0), false), labels("real", OTHER, 0));
            assert_eq!(admit(&mut bounds, &labels("m", "f", 0), true), labels("m", "f", 0));
            assert_eq!(admit(&mut bounds, &labels("m", "f", 0), false), labels("m", "f", 0));
            assert_eq!((bounds.models.others, bounds.fairness_ids.others), (1, 1));
        }

        fn a_name_that_is_configured_later_gives_its_place_back() {
            let mut bounds = LabelBounds::default();
            let nothing = Admission { sent_on: true, configured: &|_, _| false };
            bounds.admit(&labels("real", "real", 0), &nothing);
            assert_eq!(bounds.models.others, 1);
            admit(&mut bounds, &labels("real", "real", 1), true);
            assert_eq!(bounds.models.others, 0);
        }

        fn combinations_are_bounded_and_invented_ones_take_no_place_of_configured_ones() {
            let mut bounds = LabelBounds::default();
            for n in 0..2 * OTHER_SETS_KEPT {
                let priority = i32::try_from(n).unwrap();
                let seen = admit(&mut bounds, &labels("m", "real", priority), true);
                let model = if n < OTHER_SETS_KEPT { "m" } else { OTHER };
                assert_eq!(seen, Labels { fairness_id: "real".into(), ..labels(model, "", priority) });
            }
            for n in 1..2 * CONFIGURED_SETS_KEPT {
                admit(&mut bounds, &labels("real", "real", i32::try_from(n).unwrap()), true);
            }
            assert_eq!(bounds.sets.len(), OTHER_SETS_KEPT + CONFIGURED_SETS_KEPT + 1);
            assert_eq!(admit(&mut bounds, &labels("real", "real", 5), true), labels("real", "real", 5));
            assert_eq!(admit(&mut bounds, &labels("real", "real", -1), true), labels(OTHER, OTHER, 0));
        }

        fn configured_names_are_bounded_too() {
            let mut bounds = LabelBounds::default();
            for n in 0..2 * CONFIGURED_KEPT {
                admit(&mut bounds, &labels(&format!("real-{n}"), "real", 0), true);
            }
            assert_eq!(bounds.models.names.len(), CONFIGURED_KEPT);
        }

        fn a_value_cannot_end_itself() {
            let name = stat_name("x_total", &[("a", "1;.;@b=.=2"), ("b", "é.c")]);
            assert_eq!(name, "@a=.=1_._b=.=2;.;@b=.=é.c;.;x_total".replace("_._b", "_.__b"));
        }

        fn long_values_are_cut_between_characters() {
            let mut bounds = LabelBounds::default();
            let long = labels(&format!("x{}", "é".repeat(100)), "f", 0);
            assert_eq!(admit(&mut bounds, &long, true).model, format!("x{}", "é".repeat(63)));
        }
    }
}
