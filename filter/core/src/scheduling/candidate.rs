//! What the scorers see of an endpoint.

use warmroute_shared_state::endpoint::EndpointId;

/// One endpoint that may be picked, with everything that a scorer may ask.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Which endpoint.
    pub id: EndpointId,
    /// Requests waiting in the engine: scraped, plus those picked since that scrape. `None` if the
    /// scrape did not say.
    pub waiting: Option<f32>,
    /// Those picked since the scrape, counted even if the scrape did not say.
    pub waiting_since_scrape: u32,
    /// KV utilization, 0 to 1, if the scrape said.
    pub kv_usage: Option<f32>,
    /// Leading blocks of the prompt that it holds, those of a slower tier by their worth.
    pub matched_blocks: usize,
    /// The same in tokens.
    pub matched_tokens: u64,
    /// Tokens of the whole prompt.
    pub prompt_tokens: u64,
    /// Uncached prompt tokens of requests on their way to it.
    pub uncached_tokens: u64,
}
