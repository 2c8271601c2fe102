//! An `EndpointPickerConfig`, compiled: defaults injected, references resolved.

use super::plugin::{
    AgentIdentity, Decider, Detector, Filter, Parser, Picker, PrefixCache, PrefixProducer,
    ProbabilisticAdmitter, Scorer, SessionId,
};
use serde::{Deserialize, Serialize};

/// How the endpoints of a pool are picked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scheduler {
    /// For messages: the object's name or its file.
    pub name: String,
    /// Parsers, in order.
    pub parsers: Vec<Parser>,
    /// Who runs the profiles.
    pub handler: Handler,
    /// Profiles.
    pub profiles: Vec<Profile>,
    /// Caps of the prefix index.
    #[serde(default)]
    pub prefix: PrefixProducer,
    /// How a request's load is estimated.
    #[serde(default)]
    pub inflight: InflightLoad,
    /// `session-id-producer`s, for session affinity.
    #[serde(default)]
    pub session_ids: Vec<Named<SessionId>>,
    /// `agent-identity`, for session affinity and fairness.
    #[serde(default)]
    pub agent_identity: Option<AgentIdentity>,
    /// When its pools are full, if they have no flow control: then what has a priority below 0 is refused.
    #[serde(default)]
    pub detector: Detector,
    /// `probabilistic-admitter`s: they refuse requests of a priority below 0 in any case.
    #[serde(default)]
    pub admitters: Vec<Named<ProbabilisticAdmitter>>,
}

impl Default for Scheduler {
    /// llm-d's, without any configuration.
    fn default() -> Self {
        let scorer =
            |name: &str, plugin, weight| WeightedScorer { name: name.into(), plugin, weight };
        let prefix = PrefixCache { match_length_weight: 0.0, match_length_scale_tokens: 8192 };
        Self {
            name: "default".into(),
            parsers: vec![Parser::OpenAi, Parser::Anthropic, Parser::VllmHttp, Parser::Passthrough],
            handler: Handler::Single,
            profiles: vec![Profile {
                name: "default".into(),
                filters: Vec::new(),
                scorers: vec![
                    scorer("queue-scorer", Scorer::Queue, 2.0),
                    scorer("kv-cache-utilization-scorer", Scorer::KvCacheUtilization, 2.0),
                    scorer("prefix-cache-scorer", Scorer::PrefixCache(prefix), 3.0),
                ],
                picker: Named { name: "max-score-picker".into(), plugin: Picker::default() },
            }],
            prefix: PrefixProducer::default(),
            inflight: InflightLoad::default(),
            session_ids: Vec::new(),
            agent_identity: None,
            detector: Detector::default(),
            admitters: Vec::new(),
        }
    }
}

/// One scheduling profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// In this order.
    pub filters: Vec<Named<Filter>>,
    /// With their weights.
    pub scorers: Vec<WeightedScorer>,
    /// Exactly one.
    pub picker: Named<Picker>,
}

/// A plugin with its instance's name, for metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Named<T> {
    /// The instance's name; its type's if it was given none.
    pub name: String,
    /// What it does.
    pub plugin: T,
}

/// A scorer with its weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WeightedScorer {
    /// The instance's name.
    pub name: String,
    /// What it does.
    pub plugin: Scorer,
    /// Not normalised.
    pub weight: f64,
}

/// Who decides which profiles run. Profiles are given as indexes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Handler {
    /// `single-profile-handler`: the only profile.
    Single,
    /// `header-profile-handler`: the profile that this header names; with one profile, that.
    Header {
        /// In lower case.
        header: String,
        /// Name of the profile without the header.
        default_profile: String,
    },
    /// `disagg-profile-handler` (and the deprecated `pd-profile-handler`).
    Disagg(Disagg),
    /// The deprecated `data-parallel-profile-handler`: the only profile; the picked address is told in
    /// `x-data-parallel-host-port`, the destinations have this port.
    DataParallel {
        /// Port of the destinations.
        primary_port: u16,
    },
}

/// Prefill and decode at different endpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disagg {
    /// The instance's type and name, for metrics.
    pub plugin_type: String,
    /// See `plugin_type`.
    pub name: String,
    /// `stageOrder: prefill-first`.
    pub prefill_first: bool,
    /// Index of the decode profile; `None` = no such profile: every request fails.
    pub decode: Option<usize>,
    /// Index of the prefill profile, if there is one.
    pub prefill: Option<usize>,
    /// Index of the encode profile, if there is one.
    pub encode: Option<usize>,
    /// Whether a request's prefill goes elsewhere; `None` = never (decode-first).
    pub prefill_decider: Option<Decider>,
    /// Whether its encoding does; `None` = never.
    pub encode_decider: Option<Decider>,
    /// `primaryPort` of the deprecated handlers: `x-data-parallel-host-port` is written, and this port is the destination's.
    pub primary_port: Option<u16>,
}

/// `inflight-load-producer`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct InflightLoad {
    /// Estimated output tokens count as load.
    pub add_estimated_output_tokens: bool,
    /// Output tokens for each input token.
    pub output_ratio: f64,
    /// Cap of the estimate.
    pub max_estimated_output_tokens: Option<u64>,
}

impl Default for InflightLoad {
    fn default() -> Self {
        Self {
            add_estimated_output_tokens: false,
            output_ratio: 1.5,
            max_estimated_output_tokens: None,
        }
    }
}
