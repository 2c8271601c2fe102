//! The plugin types, by llm-d's names: parameters, defaults and limits.
//!
//! [`read`] is the only way in: it refuses an unknown type or parameter and names the nearest one. [`types()`] lists
//! every type that llm-d knows, with what Warmroute does about it. Where two versions of llm-d differ, names and
//! limits are those of llm-d-router's commit ebab68792.

mod data_layer;
mod duration;
mod error;
mod filter;
mod flow_control;
mod handler;
mod instance;
mod nearest;
mod parameters;
mod producer;
mod scorer;
mod session;
#[cfg(test)]
mod tests;
mod types;

pub use data_layer::{DataLayer, EngineConfig, HttpSource, MetricsExtractor};
pub use duration::parse_duration;
pub use error::PluginError;
pub use filter::{
    AttributeThreshold, ByLabel, Comparison, Condition, ContextLength, Filter, LabelExpression,
    LabelOperator, LabelSelector, Metric, PrefixCacheAffinity, ROLE_LABEL, Role, TtftSource,
    Utilization,
};
pub use flow_control::{
    ConcurrencyDetector, ConcurrencyMode, Detector, Eviction, Fairness, Ordering,
    ProbabilisticAdmitter, ProgramAware, UsageLimit, UtilizationDetector,
};
pub use handler::{Decider, DisaggNames, ProfileHandler};
pub(crate) use instance::References;
pub use instance::{Instance, Kind, Parser, Plugin, Reference};
pub use nearest::nearest;
pub use producer::{
    ApproxPrefix, KvEvents, PrecisePrefix, PrefixProducer, Producer, TokenProducer,
};
pub use scorer::{ActiveRequest, AttributeScore, Picker, PickerKind, PrefixCache, Scorer};
pub use session::{AgentIdentity, SessionAffinity, SessionId, SessionSource, SessionStrategy};
pub use types::{PluginType, Standing, read, types};
