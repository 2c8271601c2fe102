//! What filters and scorers see: the endpoints that may be picked, and the request.

use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::signals::Signals;

/// One endpoint that may be picked, with everything that a plugin may ask.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate<'a> {
    /// Which endpoint.
    pub id: EndpointId,
    /// `namespace/name`.
    pub name: &'a str,
    /// `ip:port`, IPv6 in brackets.
    pub address: &'a str,
    /// Labels, sorted by key.
    pub labels: &'a [(String, String)],
    /// Adapters and attributes.
    pub signals: &'a Signals,
    /// Requests waiting in the engine: scraped, plus those picked since that scrape. `None` if the
    /// scrape did not say.
    pub waiting: Option<f32>,
    /// Those picked since the scrape, counted even if the scrape did not say.
    pub waiting_since_scrape: u32,
    /// Requests that the engine runs, if the scrape said.
    pub running: Option<f32>,
    /// KV utilization, 0 to 1, if the scrape said.
    pub kv_usage: Option<f32>,
    /// How old the scrape is, in ms; `None` if there was none.
    pub scrape_age_ms: Option<u64>,
    /// Requests sent to it and not finished, over all workers.
    pub active_requests: u32,
    /// Uncached prompt tokens of requests on their way to it, over all workers.
    pub uncached_tokens: u64,
    /// Leading blocks of the prompt that it holds, those of a slower tier by their worth.
    pub matched_blocks: usize,
    /// The same in tokens.
    pub matched_tokens: u64,
    /// Tokens of the whole prompt.
    pub prompt_tokens: u64,
    /// Predicted time to first token, in ms. Nobody predicts yet (`predicted-latency-producer` is refused): it is here
    /// for `ttftSource: latencyPredictor`, which knows what to do without.
    pub predicted_ttft_ms: Option<f64>,
}

impl<'a> Candidate<'a> {
    /// An endpoint of which nothing is known but its names.
    #[must_use]
    pub fn unknown(id: EndpointId, name: &'a str, address: &'a str) -> Self {
        static NO_SIGNALS: Signals = Signals { adapters: None, attributes: Vec::new() };
        Self {
            id,
            name,
            address,
            labels: &[],
            signals: &NO_SIGNALS,
            waiting: None,
            waiting_since_scrape: 0,
            running: None,
            kv_usage: None,
            scrape_age_ms: None,
            active_requests: 0,
            uncached_tokens: 0,
            matched_blocks: 0,
            matched_tokens: 0,
            prompt_tokens: 0,
            predicted_ttft_ms: None,
        }
    }

    /// Value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&'a str> {
        let at = self.labels.binary_search_by(|(known, _)| known.as_str().cmp(key)).ok()?;
        self.labels.get(at).map(|(_, value)| value.as_str())
    }

    /// Tokens of this request that it still has to compute.
    #[must_use]
    pub fn request_tokens(&self) -> u64 {
        self.prompt_tokens.saturating_sub(self.matched_tokens)
    }
}

/// A request, as plugins see it.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The model that the engine is asked for: a LoRA adapter's name selects it.
    pub target_model: &'a str,
    /// Whole blocks of the prompt.
    pub prompt_blocks: usize,
    /// It has an image, sound or video.
    pub multimodal: bool,
    /// Its headers.
    pub headers: &'a dyn Headers,
}

/// Request headers.
pub trait Headers {
    /// Value of a header, by its name in lower case.
    fn header(&self, name: &str) -> Option<&str>;
}

impl<const N: usize> Headers for [(&str, &str); N] {
    fn header(&self, name: &str) -> Option<&str> {
        self.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

impl<'a> Request<'a> {
    /// Value of a request header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.header(name)
    }
}

impl core::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Request")
            .field("target_model", &self.target_model)
            .field("prompt_blocks", &self.prompt_blocks)
            .field("multimodal", &self.multimodal)
            .finish_non_exhaustive()
    }
}

/// Everything that a filter or scorer may ask while a profile runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation<'r, 'a> {
    /// The request.
    pub request: &'r Request<'a>,
    /// All candidates of the pool.
    pub candidates: &'r [Candidate<'a>],
    /// What earlier picks left behind.
    pub state: &'r super::SchedulerState,
    /// Plugins that name a session.
    pub sessions: super::SessionIds<'r>,
    /// The clock, in ms.
    pub now_ms: u64,
}

impl<'r, 'a> Situation<'r, 'a> {
    /// The candidates at these places.
    pub(super) fn at<'k>(
        &self,
        kept: &'k [usize],
    ) -> impl Iterator<Item = &'r Candidate<'a>> + Clone + use<'r, 'a, 'k> {
        let candidates = self.candidates;
        kept.iter().filter_map(move |at| candidates.get(*at))
    }
}

/// From 0 up to, not including, 1.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn chance(random: &mut dyn FnMut() -> u64) -> f64 {
    // As many bits as an f64 holds.
    (random() >> 11) as f64 / (1u64 << 53) as f64
}
