//! What a request asks of the VM's state, and what became of it.

use super::Routed;
use crate::replica::EndpointState;
use crate::scheduling::{Headers, SchedulingError, Subset};
use warmroute_shared_state::policy::routing::Pool;
use warmroute_shared_state::policy::scheduler::Scheduler;

/// A request for an endpoint.
#[derive(Clone, Copy)]
pub struct Ask<'a> {
    /// Endpoints of this pool; `None` = of all.
    pub pool: Option<&'a Pool>,
    /// How one is picked; `None` = as llm-d does without any configuration.
    pub scheduler: Option<&'a Scheduler>,
    /// Only these endpoints; `None` = all.
    pub subset: Option<&'a Subset>,
    /// Only one that holds some of the prompt.
    pub only_if_cached: bool,
    /// The model that the engine is asked for.
    pub target_model: &'a str,
    /// It has an image, sound or video.
    pub multimodal: bool,
    /// Output tokens at most, if the client said.
    pub max_output_tokens: Option<u64>,
    /// Its headers.
    pub headers: &'a dyn Headers,
}

impl Default for Ask<'_> {
    fn default() -> Self {
        Self {
            pool: None,
            scheduler: None,
            subset: None,
            only_if_cached: false,
            target_model: "",
            multimodal: false,
            max_output_tokens: None,
            headers: &[],
        }
    }
}

impl Ask<'_> {
    pub(super) fn admits(&self, endpoint: &EndpointState) -> bool {
        endpoint.is_in(self.pool)
            && self.subset.is_none_or(|subset| subset.contains(&endpoint.record.address))
    }
}

/// What became of a request for an endpoint.
#[derive(Debug)]
pub enum Choice {
    /// It goes here.
    Routed(Box<Routed>),
    /// There is a table, and nobody in it can be picked.
    NoEndpoint,
    /// The agent has never been heard.
    NoTable,
    /// Nobody holds any of the prompt, and it was asked for somebody who does.
    NotCached,
    /// The filters of its profile left nobody.
    Saturated,
    /// Its header names a profile that does not exist.
    UnknownProfile,
}

impl From<SchedulingError> for Choice {
    fn from(error: SchedulingError) -> Self {
        match error {
            SchedulingError::NoCandidate | SchedulingError::NoProfile => Self::NoEndpoint,
            SchedulingError::NoneLeft { .. } => Self::Saturated,
            SchedulingError::UnknownProfile => Self::UnknownProfile,
        }
    }
}
