use super::*;
use crate::exchange::{Cause, Record};
use crate::response::{Outcome, Usage};
use std::collections::BTreeMap;
use warmroute_shared_state::endpoint::EndpointId;

/// Stats by name; histograms by their sum.
#[derive(Default)]
struct Stats(Vec<(String, i64)>);

impl StatSink for Stats {
    fn define(&mut self, _: MetricKind, name: &str) -> u32 {
        let known = self.0.iter().position(|(known, _)| known == name);
        let at = known.unwrap_or_else(|| {
            self.0.push((name.to_owned(), 0));
            self.0.len() - 1
        });
        u32::try_from(at).unwrap()
    }

    fn add(&mut self, id: u32, by: i64) {
        self.0[id as usize].1 += by;
    }

    fn record(&mut self, id: u32, value: u64) {
        self.add(id, i64::try_from(value).unwrap());
    }
}

impl Stats {
    /// Sum of the metric over all that has these labels.
    fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> i64 {
        let fits = |name: &str| {
            name.ends_with(&format!(";.;{metric}"))
                && labels
                    .iter()
                    .all(|(label, value)| name.contains(&format!("@{label}=.={value};.;")))
        };
        self.0.iter().filter(|(name, _)| fits(name)).map(|(_, value)| value).sum()
    }
}

fn configured(_: Label, name: &str) -> bool {
    ["real", "default-flow"].contains(&name)
}

const SENT_ON: Admission<'_> = Admission { sent_on: true, configured: &configured };
const REFUSED: Admission<'_> = Admission { sent_on: false, configured: &configured };

/// A request for this model that endpoint `n` answered.
fn answered(model: &str, n: u64) -> Record {
    Record {
        model: Some(model.into()),
        rewritten_by: Some("n/rewrite".into()),
        endpoint: Some("10.0.0.1:8000".into()),
        endpoint_id: Some(EndpointId(n)),
        endpoint_name: Some(format!("ns/e{n}")),
        status: 200,
        cause: Some(Cause::Answered(Outcome::Completed)),
        usage: Usage { prompt_tokens: Some(9), ..Usage::default() },
        ..Record::default()
    }
}

fn refused(model: &str) -> Record {
    let cause = Some(Cause::Rejected("warmroute_no_route"));
    Record { model: Some(model.into()), status: 404, cause, ..Record::default() }
}

fn serve(stats: &mut RequestStats, sink: &mut Stats, record: &Record) {
    let set = stats.started(sink, record, &SENT_ON);
    stats.ended(sink, record, Some(set), &SENT_ON);
}

crate::tests! {
    fn a_request_counts_from_its_start_to_its_end() {
        let (mut stats, mut sink) = (RequestStats::default(), Stats::default());
        let record = answered("real", 1);
        let set = stats.started(&mut sink, &record, &SENT_ON);
        let labels = [("model_name", "real"), ("target_model_name", "real"), ("fairness_id", "default-flow"), ("priority", "0")];
        assert_eq!(sink.sum("llm_d_epp_request_running", &labels), 1);
        stats.ended(&mut sink, &record, Some(set), &SENT_ON);
        serve(&mut stats, &mut sink, &answered("real", 2));
        for (metric, sum) in [
            ("llm_d_epp_request_total", 2),
            ("llm_d_epp_request_running", 0),
            ("llm_d_epp_request_input_tokens", 18),
            ("llm_d_epp_request_error_total", 0),
        ] {
            assert_eq!(sink.sum(metric, &labels), sum, "{metric}");
        }
        let endpoint = [("status", "success"), ("target_model_name", "real"), ("endpoint_name", "e2"), ("namespace", "ns"), ("port", "8000")];
        assert_eq!(sink.sum(counter::ATTEMPTS, &endpoint), 1);
        let rewrite = [("model_rewrite_name", "n/rewrite"), ("model_name", "real"), ("target_model", "real")];
        assert_eq!(sink.sum(counter::REWRITES, &rewrite), 2);
        let open = Record { endpoint_id: None, endpoint: None, endpoint_name: None, ..answered("real", 1) };
        serve(&mut stats, &mut sink, &open);
        assert_eq!(sink.sum(counter::ATTEMPTS, &[("status", "failure"), ("endpoint_name", "")]), 1);
    }

    fn invented_models_make_a_bounded_number_of_stats_and_hide_no_real_one() {
        let (mut stats, mut sink) = (RequestStats::default(), Stats::default());
        let mut after = BTreeMap::new();
        for n in 0..6000 {
            let model = format!("invented-{n}-{}", "x".repeat(1000));
            serve(&mut stats, &mut sink, &answered(&model, 1));
            after.insert(n, sink.0.len());
        }
        assert_eq!(after[&500], after[&5999]);
        assert!(sink.0.iter().all(|(name, _)| name.len() < 1000), "names are cut");
        assert_eq!(sink.sum(counter::ATTEMPTS, &[("endpoint_name", "e1")]), 6000);
        serve(&mut stats, &mut sink, &answered("real", 1));
        for metric in ["llm_d_epp_request_total", counter::REWRITES] {
            assert_eq!(sink.sum(metric, &[("model_name", "real")]), 1, "{metric}");
        }
        assert_eq!(sink.sum(counter::ATTEMPTS, &[("target_model_name", "real")]), 1);
    }

    fn endpoints_that_come_and_go_are_counted_as_one_at_last() {
        let (mut stats, mut sink) = (RequestStats::default(), Stats::default());
        for n in 0..5000 {
            serve(&mut stats, &mut sink, &answered("real", n));
        }
        assert_eq!(sink.sum(counter::ATTEMPTS, &[("status", "success")]), 5000);
        assert_eq!(sink.sum(counter::ATTEMPTS, &[("endpoint_name", "other")]), 1000);
    }

    fn refused_requests_count_as_errors_and_name_nothing_new() {
        let (mut stats, mut sink) = (RequestStats::default(), Stats::default());
        for n in 0..300 {
            stats.ended(&mut sink, &refused(&format!("m-{n}")), None, &REFUSED);
        }
        stats.ended(&mut sink, &refused("real"), None, &REFUSED);
        serve(&mut stats, &mut sink, &answered("unlisted", 1));
        for (model, total, errors) in [("other", 300, 300), ("real", 1, 1), ("unlisted", 1, 0)] {
            let labels = [("model_name", model)];
            assert_eq!(sink.sum("llm_d_epp_request_total", &labels), total, "{model}");
            assert_eq!(sink.sum(counter::ERRORS, &labels), errors, "{model}");
        }
        assert_eq!(sink.sum(counter::ERRORS, &[("error_code", "NotFound")]), 301);
    }

    fn a_page_of_the_filters_own_counts_for_nothing() {
        let (mut stats, mut sink) = (RequestStats::default(), Stats::default());
        stats.ended(&mut sink, &Record::default(), None, &REFUSED);
        assert!(sink.0.is_empty());
    }
}
