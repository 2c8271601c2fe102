//! Envoy's access log: one JSON object a request.

use std::path::Path;

use serde::Deserialize;

/// Its name in the folder of a run.
pub const FILE: &str = "access.log";

/// One record. Envoy writes the filter's values as strings, and null for what is absent.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs)]
pub struct Access {
    pub request_id: Option<String>,
    pub method: Option<String>,
    pub path: Option<String>,
    pub protocol: Option<String>,
    pub status: u16,
    pub details: Option<String>,
    pub flags: Option<String>,
    pub attempts: Option<u64>,
    pub duration_ms: Option<u64>,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub upstream: Option<String>,
    pub endpoint: Option<String>,
    pub reason: Option<String>,
    pub model: Option<String>,
    pub target_model: Option<String>,
    pub pool: Option<String>,
    pub stages: Option<String>,
    pub priority: Option<String>,
    pub fairness_id: Option<String>,
    pub cause: Option<String>,
    pub tenant: Option<String>,
    pub dropped: Option<String>,
    pub prompt_source: Option<String>,
    pub matched_kind: Option<String>,
    matched_tokens: Option<String>,
    ttft_ms: Option<String>,
    prompt_tokens: Option<String>,
    cached_tokens: Option<String>,
    completion_tokens: Option<String>,
    queue_ms: Option<String>,
    reserved_tokens: Option<String>,
    charged_tokens: Option<String>,
}

impl Access {
    /// Prompt tokens that the endpoint was believed to hold.
    #[must_use]
    pub fn matched_tokens(&self) -> Option<u64> {
        number(self.matched_tokens.as_deref())
    }

    /// Time to the first token, in ms.
    #[must_use]
    pub fn ttft_ms(&self) -> Option<u64> {
        number(self.ttft_ms.as_deref())
    }

    /// What the engine counted.
    #[must_use]
    pub fn prompt_tokens(&self) -> Option<u64> {
        number(self.prompt_tokens.as_deref())
    }

    /// What the engine had cached.
    #[must_use]
    pub fn cached_tokens(&self) -> Option<u64> {
        number(self.cached_tokens.as_deref())
    }

    /// What the engine wrote.
    #[must_use]
    pub fn completion_tokens(&self) -> Option<u64> {
        number(self.completion_tokens.as_deref())
    }

    /// Time in the queue, in ms.
    #[must_use]
    pub fn queue_ms(&self) -> Option<u64> {
        number(self.queue_ms.as_deref())
    }

    /// Taken of the tenant's budgets when the request came.
    #[must_use]
    pub fn reserved_tokens(&self) -> Option<u64> {
        number(self.reserved_tokens.as_deref())
    }

    /// Taken of the tenant's budgets in the end.
    #[must_use]
    pub fn charged_tokens(&self) -> Option<u64> {
        number(self.charged_tokens.as_deref())
    }
}

fn number(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// All records so far, oldest first.
#[must_use]
pub fn read(path: &Path) -> Vec<Access> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may still be on its way.
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The record of the request with this `x-request-id`, if it is there yet.
#[must_use]
pub fn find(path: &Path, request_id: &str) -> Option<Access> {
    read(path).into_iter().find(|record| record.request_id.as_deref() == Some(request_id))
}
