//! `vllm:lora_requests_info`: every combination of adapters that was ever seen stays as a series,
//! and the current one is the series with the largest value.

use std::collections::BTreeMap;

use super::Exposition;

/// Most combinations kept; the one seen longest ago goes first.
const MAX_SERIES: usize = 64;

/// The combinations seen so far, each with the Unix time at which it was last current.
#[derive(Debug, Default)]
pub struct LoraSeries {
    seen: BTreeMap<(String, String), f64>,
}

impl LoraSeries {
    /// Notes the adapters of running and waiting requests at Unix time `now`.
    pub fn note(&mut self, running: &[String], waiting: &[String], now: f64) {
        self.seen.insert((running.join(","), waiting.join(",")), now);
        if self.seen.len() > MAX_SERIES {
            let oldest =
                self.seen.iter().min_by(|a, b| a.1.total_cmp(b.1)).map(|(key, _)| key.clone());
            oldest.map(|key| self.seen.remove(&key));
        }
    }

    /// Prints the family.
    pub fn write(&self, out: &mut Exposition, max_loras: usize) {
        let max = max_loras.to_string();
        let labels: Vec<_> = self
            .seen
            .keys()
            .map(|(running, waiting)| {
                [
                    ("max_lora", max.as_str()),
                    ("running_lora_adapters", running.as_str()),
                    ("waiting_lora_adapters", waiting.as_str()),
                ]
            })
            .collect();
        let series: Vec<(&[_], f64)> = labels
            .iter()
            .zip(self.seen.values())
            .map(|(labels, at)| (labels.as_slice(), *at))
            .collect();
        out.gauge("vllm:lora_requests_info", "Running stats on lora requests.", &series);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_combination_has_the_largest_value_and_others_stay() {
        let mut series = LoraSeries::default();
        series.note(&["a".into(), "b".into()], &["a".into()], 1.0);
        series.note(&[], &[], 2.0);
        let mut out = Exposition::new(0.0);
        series.write(&mut out, 2);
        let text = out.finish();
        assert!(text.contains(
            "{max_lora=\"2\",running_lora_adapters=\"a,b\",waiting_lora_adapters=\"a\"} 1.0\n"
        ));
        assert!(text.contains(
            "{max_lora=\"2\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} 2.0\n"
        ));
        for i in 0..1_000 {
            series.note(&[i.to_string()], &[], 3.0 + f64::from(i));
        }
        assert_eq!(series.seen.len(), MAX_SERIES);
        assert!(series.seen.contains_key(&("999".to_owned(), String::new())));
    }
}
