//! Which profiles run, and what the sidecars are told.

use super::*;
use serde_json::json;
use warmroute_shared_state::policy::plugin::Decider;
use warmroute_shared_state::policy::scheduler::Disagg;

const PREFILL_FROM_100: Decider = Decider::PrefixBased { non_cached_tokens: 100, prompt_tokens: 0 };

fn disagg() -> Disagg {
    Disagg {
        plugin_type: "disagg-profile-handler".into(),
        name: "disagg".into(),
        prefill_first: false,
        decode: Some(0),
        prefill: Some(1),
        encode: Some(2),
        prefill_decider: Some(PREFILL_FROM_100),
        encode_decider: Some(Decider::Multimodal),
        primary_port: None,
    }
}

fn stages(disagg: Disagg) -> Scheduler {
    let profiles = ["decode", "prefill", "encode"].map(|stage| {
        let most = if stage == "encode" { 2 } else { 1 };
        profile(
            stage,
            &[
                (&format!("{stage}-filter"), Value::Null, 1.0),
                ("queue-scorer", Value::Null, 1.0),
                ("max-score-picker", json!({"maxNumOfEndpoints": most}), 1.0),
            ],
        )
    });
    scheduler(profiles.into(), Handler::Disagg(disagg))
}

/// Two of each role: decode 0 and 1, prefill 2 and 3, encode 4 and 5; the lower has the shorter queue.
struct Fleet {
    labels: Vec<Vec<(String, String)>>,
    addresses: Vec<String>,
}

impl Fleet {
    fn new() -> Self {
        let roles = ["decode", "decode", "prefill", "prefill", "encode", "encode"];
        Self {
            labels: roles.map(|role| labels(&[("llm-d.ai/role", role)])).into(),
            addresses: (0..6).map(|n| format!("10.0.0.{n}:8000")).collect(),
        }
    }

    fn candidates(&self) -> Vec<Candidate<'_>> {
        let both = self.labels.iter().zip(&self.addresses);
        (0u8..)
            .zip(both)
            .map(|(n, (labels, address))| Candidate {
                labels,
                address,
                waiting: Some(f32::from(n)),
                prompt_tokens: 300,
                ..candidate(n.into())
            })
            .collect()
    }
}

fn told<'d>(decision: &'d Decision, header: &str) -> Option<&'d str> {
    decision.headers.iter().find(|(name, _)| *name == header).map(|(_, value)| value.as_str())
}

fn multimodal() -> Request<'static> {
    Request { multimodal: true, ..request(10, &[]) }
}

crate::tests! {
    fn prefill_goes_elsewhere_if_enough_is_not_cached() {
        let fleet = Fleet::new();
        let mut candidates = fleet.candidates();
        for (cached, prefill) in [(0, true), (200, true), (201, false)] {
            candidates[0].matched_tokens = cached;
            let decision = decide(&stages(disagg()), &request(10, &[]), &candidates).unwrap();
            assert_eq!(decision.primary.ranked, [0, 1].map(EndpointId));
            assert_eq!(told(&decision, PREFILL_HEADER), prefill.then_some("10.0.0.2:8000"));
            assert_eq!(told(&decision, ENCODE_HEADER), None);
            let word = if prefill { "prefill-decode" } else { "decode-only" };
            assert_eq!(decision.disaggregation.unwrap().as_str(), word);
            assert_eq!(decision.prefill.map(|pick| pick.ranked), prefill.then(|| vec![EndpointId(2)]));
        }
    }

    fn images_are_encoded_at_all_that_the_picker_names() {
        let fleet = Fleet::new();
        let decision = decide(&stages(disagg()), &multimodal(), &fleet.candidates()).unwrap();
        assert_eq!(told(&decision, ENCODE_HEADER), Some("10.0.0.4:8000,10.0.0.5:8000"));
        assert_eq!(decision.disaggregation, Some(Disaggregation::EncodePrefillDecode));
        let fewer = Disagg { prefill_decider: None, ..disagg() };
        let decision = decide(&stages(fewer), &multimodal(), &fleet.candidates()).unwrap();
        assert_eq!(decision.disaggregation, Some(Disaggregation::EncodeDecode));
    }

    fn a_stage_that_finds_nobody_is_done_at_the_decode_endpoint() {
        let fleet = Fleet::new();
        let decoders = &fleet.candidates()[..2];
        let decision = decide(&stages(disagg()), &multimodal(), decoders).unwrap();
        assert_eq!(decision.disaggregation, Some(Disaggregation::DecodeOnly));
        assert!(decision.headers.is_empty());
        let others = &fleet.candidates()[2..];
        let none_left = Err(SchedulingError::NoneLeft { profile: "decode".into() });
        assert_eq!(decide(&stages(disagg()), &multimodal(), others), none_left);
    }

    fn prefill_first_asks_no_decider_for_prefill() {
        let fleet = Fleet::new();
        let first = Disagg {
            prefill_first: true,
            prefill_decider: None,
            encode_decider: Some(PREFILL_FROM_100),
            ..disagg()
        };
        // The decider for encoding is asked without a decode endpoint.
        let decision = decide(&stages(first), &multimodal(), &fleet.candidates()).unwrap();
        assert_eq!(decision.disaggregation, Some(Disaggregation::PrefillDecode));
        assert_eq!(told(&decision, PREFILL_HEADER), Some("10.0.0.2:8000"));
    }

    fn a_common_port_is_told_with_the_rank() {
        let fleet = Fleet::new();
        let port = Disagg { primary_port: Some(9000), ..disagg() };
        for scheduler in [
            stages(port),
            scheduler(vec![profile("default", &[])], Handler::DataParallel { primary_port: 9000 }),
        ] {
            let candidates = &fleet.candidates()[..1];
            let decision = decide(&scheduler, &request(0, &[]), candidates).unwrap();
            assert_eq!(decision.destination_port, Some(9000));
            assert_eq!(told(&decision, DATA_PARALLEL_HEADER), Some("10.0.0.0:8000"));
        }
    }

    fn a_header_names_the_profile() {
        let fleet = Fleet::new();
        let handler = || Handler::Header { header: "epp-profile".into(), default_profile: "decode".into() };
        let scheduler_of = |count| {
            let profiles = stages(disagg()).profiles.into_iter().skip(1).take(count);
            let decode = stages(disagg()).profiles.remove(0);
            scheduler(core::iter::once(decode).chain(profiles).collect(), handler())
        };
        for (count, header, expected) in [
            (1, Some("prefill"), Ok(EndpointId(2))),
            (1, None, Ok(EndpointId(0))),
            (1, Some("nobody"), Err(SchedulingError::UnknownProfile)),
            // There is only one.
            (0, Some("nobody"), Ok(EndpointId(0))),
        ] {
            let headers = [("epp-profile", header.unwrap_or_default())];
            let request = request(0, &headers);
            let decision = decide(&scheduler_of(count), &request, &fleet.candidates());
            assert_eq!(decision.map(|d| d.primary.ranked[0]), expected, "{header:?}");
        }
    }

    fn a_session_header_is_the_endpoint_that_serves_or_that_of_a_profile() {
        let fleet = Fleet::new();
        let affinity = |profile: &str| json!({
            "profileName": profile,
            "encodedEndpointHeaderConfig": {"header": format!("x-{profile}-session")},
        });
        let mut scheduler = stages(disagg());
        for (at, name) in [(0, ""), (1, "prefill"), (2, "encode")] {
            let scorer = profile("p", &[("session-affinity-scorer", affinity(name), 1.0)]).scorers.remove(0);
            scheduler.profiles[at].scorers.push(WeightedScorer { name: format!("session-{name}"), ..scorer });
        }
        let decision = decide(&scheduler, &request(10, &[]), &fleet.candidates()).unwrap();
        // Nobody encoded.
        assert_eq!(decision.session_headers, [
            SessionHeader { header: "x--session".into(), endpoint: None },
            SessionHeader { header: "x-prefill-session".into(), endpoint: Some(EndpointId(2)) },
        ]);
    }
}
