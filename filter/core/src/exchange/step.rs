//! What the host is to do with a request.

use super::DESTINATION;
use crate::request::{LocalReply, Splice};

/// What the host is to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Hold it and let the body come.
    Pause,
    /// Send it on, changed like this.
    Forward(Box<Forward>),
    /// Answer it here.
    Reply {
        /// The answer.
        reply: LocalReply,
        /// One word for the access log's response code details.
        details: &'static str,
    },
}

/// What is changed of a request that is sent on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forward {
    /// Headers to take off.
    pub remove_headers: Vec<String>,
    /// Headers to set, [`DESTINATION`] among them if an endpoint was picked; without it Envoy's fallback policy
    /// chooses.
    pub set_headers: Vec<(String, String)>,
    /// Headers to add to those of the same name.
    pub add_headers: Vec<(String, String)>,
    /// Parts of the body to replace.
    pub splices: Vec<Splice>,
}

impl Forward {
    /// The endpoints named, best first.
    #[must_use]
    pub fn destinations(&self) -> Option<&str> {
        self.set_headers
            .iter()
            .find(|(name, _)| name == DESTINATION)
            .map(|(_, value)| value.as_str())
    }
}
