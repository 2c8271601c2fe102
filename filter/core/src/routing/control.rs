//! Control headers: priority, fairness and service level of a request.
//!
//! Names and aliases: llm-d-router, `pkg/epp/metadata/consts.go`; the new name counts if it is there at all, even empty.
//! They are read from a request only where an outer gateway is trusted to have set them.

use crate::scheduling::Subset;
use warmroute_shared_state::policy::Policy;

/// Fairness ID of requests that have none.
pub const DEFAULT_FAIRNESS_ID: &str = "default-flow";

const FAIRNESS_ID: [&str; 2] = ["x-llm-d-inference-fairness-id", "x-gateway-inference-fairness-id"];
const OBJECTIVE: [&str; 2] = ["x-llm-d-inference-objective", "x-gateway-inference-objective"];
const MODEL_REWRITE: [&str; 2] = ["x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"];
const SLO_TTFT_MS: [&str; 2] = ["x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"];
const SUBSET: &str = "x-gateway-destination-endpoint-subset";

/// What control headers say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Control {
    /// Whose request it is, for fairness.
    pub fairness_id: Option<String>,
    /// Name of its objective.
    pub objective: Option<String>,
    /// Model name to ask the engine for.
    pub model_rewrite: Option<String>,
    /// TTFT that is aimed at, in ms.
    pub slo_ttft_ms: Option<u64>,
    /// Endpoints that may be picked.
    pub subset: Option<Subset>,
}

impl Control {
    /// Reads them by `header`, which knows names in lower case.
    #[must_use]
    pub fn read<'a>(header: &dyn Fn(&str) -> Option<&'a str>) -> Self {
        let either = |[new, old]: [&str; 2]| header(new).or_else(|| header(old));
        let text =
            |names| either(names).map(|value| value.trim().to_owned()).filter(|v| !v.is_empty());
        let entries = |list: &'a str| list.split(',').map(str::trim).filter(|one| !one.is_empty());
        let subset = header(SUBSET).map(|list| Subset::of(entries(list)));
        Self {
            fairness_id: text(FAIRNESS_ID),
            objective: text(OBJECTIVE),
            model_rewrite: text(MODEL_REWRITE),
            slo_ttft_ms: either(SLO_TTFT_MS).and_then(whole_ms),
            subset,
        }
    }

    /// Priority by the objective: 0 without one, or if there is none of that name.
    #[must_use]
    pub fn priority(&self, policy: &Policy, pool: Option<usize>) -> i32 {
        let Some(name) = &self.objective else { return 0 };
        let of_pool = |o: &&warmroute_shared_state::policy::routing::Objective| {
            o.name == *name && (o.pool.is_none() || o.pool == pool)
        };
        policy.objectives.iter().find(of_pool).map_or(0, |objective| objective.priority)
    }
}

/// A whole number of milliseconds in plain digits; anything else is none.
#[must_use]
pub fn whole_ms(text: &str) -> Option<u64> {
    // `parse` would take a sign, too.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmroute_shared_state::policy::routing::Objective;

    fn read(pairs: &'static [(&'static str, &'static str)]) -> Control {
        Control::read(&|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
        })
    }

    crate::tests! {
        fn the_new_name_counts_if_it_is_there() {
            let both = read(&[("x-gateway-inference-objective", "old"), ("x-llm-d-inference-objective", "new")]);
            assert_eq!(both.objective.as_deref(), Some("new"));
            let empty = read(&[("x-gateway-inference-objective", "old"), ("x-llm-d-inference-objective", "")]);
            assert_eq!(empty.objective, None);
            let old = read(&[("x-gateway-inference-fairness-id", "t"), ("x-slo-ttft-ms", "200")]);
            assert_eq!((old.fairness_id.as_deref(), old.slo_ttft_ms), (Some("t"), Some(200)));
        }

        fn a_target_is_a_whole_number_of_milliseconds() {
            for (text, ms) in [
                ("50", Some(50)), ("0", Some(0)), ("007", Some(7)), ("18446744073709551615", Some(u64::MAX)),
                ("", None), ("abc", None), ("-1", None), ("+1", None), ("5 ", None), ("1.5", None), ("1e3", None), ("1e400", None),
                ("NaN", None), ("٥", None), ("18446744073709551616", None),
            ] {
                assert_eq!(whole_ms(text), ms, "{text}");
            }
            assert_eq!(read(&[("x-llm-d-slo-ttft-ms", "1e3")]).slo_ttft_ms, None);
        }

        fn priority_is_the_objectives() {
            let objective = |name: &str, pool, priority| Objective { name: name.into(), pool, priority };
            let objectives = vec![objective("p", Some(1), 100), objective("q", None, -10)];
            let policy = Policy { objectives, ..Policy::default() };
            let of = |name: &str, pool| {
                Control { objective: Some(name.into()), ..Control::default() }.priority(&policy, Some(pool))
            };
            assert_eq!((of("p", 1), of("p", 0), of("q", 0), of("r", 0)), (100, 0, -10, 0));
            assert_eq!(Control::default().priority(&policy, None), 0);
        }

        fn a_subset_may_be_empty() {
            assert_eq!(read(&[]).subset, None);
            assert_eq!(read(&[("x-gateway-destination-endpoint-subset", "")]).subset, Some(Subset::default()));
            let two = read(&[("x-gateway-destination-endpoint-subset", "10.0.0.2:8000, ,10.0.0.1")]).subset;
            let two = two.unwrap();
            for (address, is_in) in [
                ("10.0.0.1:8000", true), ("10.0.0.1:9000", true), ("10.0.0.2:9000", true),
                ("10.0.0.3:8000", false), ("10.0.0.12:8000", false), (":8000", false),
            ] {
                assert_eq!(two.contains(address), is_in, "{address}");
            }
        }
    }
}
