//! A plugin instance: what it is, what it names, what it needs.

use super::parameters::Parameters;
use super::{
    AgentIdentity, ContextLength, DataLayer, Decider, Detector, Eviction, Fairness, Filter, Metric,
    Ordering, Picker, PluginError, PrecisePrefix, ProbabilisticAdmitter, Producer, ProfileHandler,
    Scorer, TtftSource, UsageLimit,
};
use serde::{Deserialize, Serialize};

/// A plugin instance as its type reads its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// Its type.
    pub type_name: &'static str,
    /// What it does.
    pub plugin: Plugin,
    /// Other instances that it names.
    pub references: Vec<Reference>,
    /// What the operator should know: deprecated, or accepted and without meaning here. Each a sentence.
    pub remarks: Vec<String>,
}

/// A place where a plugin names another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Path of the parameter.
    pub at: String,
    /// The instance that it names.
    pub name: String,
    /// What that must be.
    pub kind: Kind,
}

/// What a plugin does.
#[derive(Debug, Clone, PartialEq)]
pub enum Plugin {
    /// Takes candidates away.
    Filter(Filter),
    /// Scores candidates.
    Scorer(Scorer),
    /// `context-length-aware`: scores, and filters if it is told to.
    ContextLength(ContextLength),
    /// `precise-prefix-cache-scorer`: producer and scorer in one.
    PreciseScorer(PrecisePrefix, Scorer),
    /// Takes the best.
    Picker(Picker),
    /// Says which profiles run.
    Handler(ProfileHandler),
    /// `disagg-headers-handler`: only writes the headers that the handler's picks call for. The handler does.
    HeaderWriter,
    /// Says whether a stage runs elsewhere.
    Decider(Decider),
    /// Reads bodies of a wire format.
    Parser(Parser),
    /// Knows something of endpoints or requests.
    Producer(Producer),
    /// `agent-identity`.
    AgentIdentity(AgentIdentity),
    /// `probabilistic-admitter`.
    Admitter(ProbabilisticAdmitter),
    /// Says how full the pool is; in a profile, a filter.
    Detector(Detector),
    /// Whose turn it is.
    Fairness(Fairness),
    /// Which request of a flow goes next.
    Ordering(Ordering),
    /// Up to which saturation a priority is let through.
    UsageLimit(UsageLimit),
    /// Which requests in flight may be ended.
    Eviction(Eviction),
    /// Sources, extractors, discovery.
    DataLayer(DataLayer),
}

/// What a plugin instance may be used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Filter,
    Scorer,
    Picker,
    ProfileHandler,
    HeaderWriter,
    Decider,
    Parser,
    PrefixProducer,
    InflightLoad,
    Tokens,
    SessionId,
    /// None can be configured: Warmroute has no latency predictor.
    LatencyPredictor,
    AgentIdentity,
    Admitter,
    SaturationDetector,
    FairnessPolicy,
    OrderingPolicy,
    UsageLimitPolicy,
    EvictionPolicy,
    DataSource,
    Extractor,
    Discovery,
}

impl Kind {
    /// In words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Scorer => "scorer",
            Self::Picker => "picker",
            Self::ProfileHandler => "profile handler",
            Self::HeaderWriter => "headers handler",
            Self::Decider => "decider",
            Self::Parser => "parser",
            Self::PrefixProducer => "prefix cache producer",
            Self::InflightLoad => "in-flight load producer",
            Self::Tokens => "token producer",
            Self::SessionId => "session id producer",
            Self::LatencyPredictor => "latency predictor",
            Self::AgentIdentity => "agent identity",
            Self::Admitter => "admitter",
            Self::SaturationDetector => "saturation detector",
            Self::FairnessPolicy => "fairness policy",
            Self::OrderingPolicy => "ordering policy",
            Self::UsageLimitPolicy => "usage limit policy",
            Self::EvictionPolicy => "eviction policy",
            Self::DataSource => "data source",
            Self::Extractor => "extractor",
            Self::Discovery => "discovery",
        }
    }

    /// The type that is taken if a plugin needs this kind and none is configured.
    #[must_use]
    pub fn default_type(self) -> Option<&'static str> {
        match self {
            Self::PrefixProducer => Some("approx-prefix-cache-producer"),
            Self::InflightLoad => Some("inflight-load-producer"),
            Self::Tokens => Some("token-producer"),
            Self::Picker => Some("max-score-picker"),
            Self::ProfileHandler => Some("single-profile-handler"),
            Self::SaturationDetector => Some("utilization-detector"),
            Self::FairnessPolicy => Some("global-strict-fairness-policy"),
            Self::OrderingPolicy => Some("fcfs-ordering-policy"),
            Self::UsageLimitPolicy => Some("static-usage-limit-policy"),
            Self::DataSource => Some("metrics-data-source"),
            Self::Extractor => Some("core-metrics-extractor"),
            _ => None,
        }
    }
}

/// Parsers, by wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parser {
    /// `openai-parser`.
    OpenAi,
    /// `anthropic-parser`.
    Anthropic,
    /// `vllmhttp-parser`.
    VllmHttp,
    /// `sglanghttp-parser`.
    SglangHttp,
    /// `passthrough-parser`.
    Passthrough,
}

impl Plugin {
    /// What it may be used as.
    #[must_use]
    pub fn kinds(&self) -> &'static [Kind] {
        match self {
            Self::Filter(_) => &[Kind::Filter],
            Self::Scorer(_) => &[Kind::Scorer],
            Self::ContextLength(_) => &[Kind::Filter, Kind::Scorer],
            Self::PreciseScorer(..) => &[Kind::Scorer, Kind::PrefixProducer],
            Self::Picker(_) => &[Kind::Picker],
            Self::Handler(_) => &[Kind::ProfileHandler],
            Self::HeaderWriter => &[Kind::HeaderWriter],
            Self::Decider(_) => &[Kind::Decider],
            Self::Parser(_) => &[Kind::Parser],
            Self::Producer(Producer::ApproxPrefix(_) | Producer::PrecisePrefix(_)) => {
                &[Kind::PrefixProducer]
            }
            Self::Producer(Producer::InflightLoad(_)) => &[Kind::InflightLoad],
            Self::Producer(Producer::Token(_)) => &[Kind::Tokens],
            Self::Producer(Producer::SessionId(_)) => &[Kind::SessionId],
            Self::AgentIdentity(_) => &[Kind::AgentIdentity],
            Self::Admitter(_) => &[Kind::Admitter],
            Self::Detector(_) => &[Kind::SaturationDetector, Kind::Filter],
            Self::Fairness(_) => &[Kind::FairnessPolicy],
            Self::Ordering(_) => &[Kind::OrderingPolicy],
            Self::UsageLimit(_) => &[Kind::UsageLimitPolicy],
            Self::Eviction(_) => &[Kind::EvictionPolicy],
            Self::DataLayer(layer) => match layer {
                DataLayer::MetricsSource(_)
                | DataLayer::ModelsSource(_)
                | DataLayer::Notifications => &[Kind::DataSource],
                DataLayer::MetricsExtractor(_) | DataLayer::ModelsExtractor => &[Kind::Extractor],
                DataLayer::FileDiscovery { .. } => &[Kind::Discovery],
            },
        }
    }

    /// Whether it may be used so.
    #[must_use]
    pub fn is(&self, kind: Kind) -> bool {
        self.kinds().contains(&kind)
    }

    /// As a filter of a profile; `None` if it is none, or one that keeps everybody.
    #[must_use]
    pub fn filter(&self) -> Option<Filter> {
        match self {
            Self::Filter(filter) => Some(filter.clone()),
            Self::ContextLength(length) if length.enable_filtering => {
                Some(Filter::ContextLength(length.clone()))
            }
            Self::Detector(detector) => Some(Filter::Detector(*detector)),
            _ => None,
        }
    }

    /// As a scorer of a profile.
    #[must_use]
    pub fn scorer(&self) -> Option<Scorer> {
        match self {
            Self::Scorer(scorer) | Self::PreciseScorer(_, scorer) => Some(scorer.clone()),
            Self::ContextLength(length) => Some(Scorer::ContextLength(length.clone())),
            _ => None,
        }
    }

    /// Kinds of producers that it needs one of.
    #[must_use]
    pub fn needs(&self) -> &'static [Kind] {
        const PREFIX: &[Kind] = &[Kind::PrefixProducer, Kind::Tokens];
        const LOAD: &[Kind] = &[Kind::InflightLoad, Kind::Tokens];
        const BOTH: &[Kind] = &[Kind::PrefixProducer, Kind::InflightLoad, Kind::Tokens];
        match self {
            Self::Filter(Filter::PrefixCacheAffinity(affinity)) => match affinity.ttft_source {
                TtftSource::PrefillThroughput => BOTH,
                TtftSource::LatencyPredictor => PREFIX,
            },
            Self::Filter(Filter::Utilization(utilization)) => {
                let active = |c: &super::Condition| c.metric == Metric::ActiveRequests;
                if utilization.conditions.iter().any(active) { LOAD } else { &[] }
            }
            Self::Scorer(Scorer::PrefixCache(_) | Scorer::NoHitLru { .. })
            | Self::Handler(ProfileHandler::Disagg(_))
            | Self::Decider(Decider::PrefixBased { .. }) => PREFIX,
            Self::Scorer(Scorer::TokenLoad { .. } | Scorer::ActiveRequest(_))
            | Self::Detector(Detector::Concurrency(_)) => LOAD,
            Self::ContextLength(_)
            | Self::PreciseScorer(..)
            | Self::Producer(
                Producer::ApproxPrefix(_) | Producer::PrecisePrefix(_) | Producer::InflightLoad(_),
            ) => &[Kind::Tokens],
            _ => &[],
        }
    }
}

/// What is gathered of an instance while its parameters are read.
#[derive(Debug, Default)]
pub(crate) struct References {
    pub(super) names: Vec<Reference>,
    pub(super) remarks: Vec<String>,
}

impl References {
    /// Notes that the parameter names an instance, if it is given.
    pub(super) fn add(
        &mut self,
        parameters: &Parameters<'_>,
        parameter: &str,
        kind: Kind,
    ) -> Result<(), PluginError> {
        if let Some(name) = parameters.text(parameter)? {
            self.add_name(&parameters.path(parameter), name, kind);
        }
        Ok(())
    }

    /// Notes that the parameter at this path names an instance.
    pub(super) fn add_name(&mut self, at: &str, name: &str, kind: Kind) {
        self.names.push(Reference { at: at.to_owned(), name: name.to_owned(), kind });
    }

    /// Something that the operator should know.
    pub(super) fn remark(&mut self, remark: impl Into<String>) {
        self.remarks.push(remark.into());
    }
}
