//! Counters and histograms that an engine keeps about itself; `metrics` prints them.

/// Bucket bounds as vLLM 0.32 uses them; `+Inf` is implied.
pub mod bounds {
    /// Token counts per request.
    pub const TOKENS: &[f64] =
        &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0];
    /// Tokens per engine step.
    pub const STEP: &[f64] =
        &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
    /// The `n` parameter.
    pub const N: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
    /// Preemptions of a request.
    pub const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];
    /// Time to first token, seconds.
    pub const TTFT: &[f64] = &[
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
        20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
    ];
    /// Time between tokens, seconds.
    pub const PER_TOKEN: &[f64] = &[
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
        20.0, 40.0, 80.0,
    ];
    /// Phases of a request, seconds.
    pub const REQUEST: &[f64] = &[
        0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0,
        240.0, 480.0, 960.0, 1920.0, 7680.0,
    ];
}

/// A Prometheus histogram.
#[derive(Debug, Clone)]
pub struct Histogram {
    bounds: &'static [f64],
    // One more than `bounds`: the last counts what is above them all.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    /// An empty histogram over ascending upper bounds.
    pub fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    /// Counts one value.
    pub fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum += value;
    }

    /// Cumulative counts by upper bound; the last is `+Inf`.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut total = 0;
        self.bounds.iter().copied().chain([f64::INFINITY]).zip(&self.counts).map(
            move |(bound, count)| {
                total += count;
                (bound, total)
            },
        )
    }

    /// Values seen.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Sum of the values.
    pub fn sum(&self) -> f64 {
        self.sum
    }
}

/// Everything an engine has counted since it started. Times are simulated seconds.
#[derive(Debug, Clone)]
#[allow(
    missing_docs,
    reason = "the names are those of vLLM's families, described in metrics::families"
)]
pub struct Stats {
    pub prefix_queries: u64,
    pub prefix_hits: u64,
    pub transfer_queries: u64,
    pub transferred: u64,
    pub preemptions: u64,
    pub prompt_tokens: u64,
    pub generation_tokens: u64,
    pub finished_stop: u64,
    pub finished_length: u64,
    pub rejected_queue_full: u64,
    pub request_prompt_tokens: Histogram,
    pub request_generation_tokens: Histogram,
    pub step_tokens: Histogram,
    pub max_generation_tokens: Histogram,
    pub params_n: Histogram,
    pub params_max_tokens: Histogram,
    pub ttft: Histogram,
    pub inter_token: Histogram,
    pub time_per_output_token: Histogram,
    pub e2e: Histogram,
    pub queue_time: Histogram,
    pub inference_time: Histogram,
    pub prefill_time: Histogram,
    pub decode_time: Histogram,
    pub request_preemptions: Histogram,
    pub prefill_computed_tokens: Histogram,
}

impl Stats {
    /// Prompt tokens that the engine computed itself, those computed again after a preemption included.
    pub fn computed(&self) -> u64 {
        self.prefix_queries.saturating_sub(self.prefix_hits).saturating_sub(self.transferred)
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            prefix_queries: 0,
            prefix_hits: 0,
            transfer_queries: 0,
            transferred: 0,
            preemptions: 0,
            prompt_tokens: 0,
            generation_tokens: 0,
            finished_stop: 0,
            finished_length: 0,
            rejected_queue_full: 0,
            request_prompt_tokens: Histogram::new(bounds::TOKENS),
            request_generation_tokens: Histogram::new(bounds::TOKENS),
            step_tokens: Histogram::new(bounds::STEP),
            max_generation_tokens: Histogram::new(bounds::TOKENS),
            params_n: Histogram::new(bounds::N),
            params_max_tokens: Histogram::new(bounds::TOKENS),
            ttft: Histogram::new(bounds::TTFT),
            inter_token: Histogram::new(bounds::PER_TOKEN),
            time_per_output_token: Histogram::new(bounds::PER_TOKEN),
            e2e: Histogram::new(bounds::REQUEST),
            queue_time: Histogram::new(bounds::REQUEST),
            inference_time: Histogram::new(bounds::REQUEST),
            prefill_time: Histogram::new(bounds::REQUEST),
            decode_time: Histogram::new(bounds::REQUEST),
            request_preemptions: Histogram::new(bounds::PREEMPTIONS),
            prefill_computed_tokens: Histogram::new(bounds::TOKENS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_to_that_bucket() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 3.0] {
            histogram.observe(value);
        }
        let cumulative: Vec<_> = histogram.cumulative().collect();
        assert_eq!(cumulative, vec![(1.0, 2), (2.0, 3), (f64::INFINITY, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (4, 6.0));
    }
}
