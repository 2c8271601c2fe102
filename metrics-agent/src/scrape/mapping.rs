//! Which metrics of an engine say what: those that are built in, under llm-d's names for engines.

use super::selector::Selector;

/// Metrics of one kind of engine. What is `None` or empty is not reported by it: unknown, and so neutral.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    /// Requests that wait.
    pub waiting: Option<Selector>,
    /// Requests that run.
    pub running: Option<Selector>,
    /// Share of KV blocks in use, 0 to 1; the first that is there counts.
    pub kv_usage: Vec<Selector>,
    /// The family whose labels tell the LoRA adapters, as vLLM's does.
    pub adapters: Option<Selector>,
    /// The family whose labels describe the KV cache.
    pub cache_info: Option<CacheInfo>,
    /// Tokens of a KV block, as a value.
    pub block_tokens: Option<Selector>,
    /// Number of KV blocks, as a value.
    pub kv_blocks: Option<Selector>,
    /// Values that become attributes of the endpoint, by key.
    pub attributes: Vec<(String, Selector)>,
    /// Prefix of the engine's own families; the oldest `_created` series among them stands in for a missing
    /// process start time. Empty: none does.
    pub own_prefix: &'static str,
}

/// A family whose labels describe the KV cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheInfo {
    /// The family.
    pub family: Selector,
    /// Its label for the tokens of a block.
    pub block_tokens_label: String,
    /// Its label for the number of blocks.
    pub kv_blocks_label: String,
}

/// The names of the engines that are built in.
pub const BUILT_IN: [&str; 5] = ["vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm", "triton"];

impl Mapping {
    /// The mapping of an engine that is built in.
    #[must_use]
    pub fn built_in(engine: &str) -> Option<Self> {
        Some(match engine {
            "vllm" => Self::vllm(),
            "sglang" => Self::sglang(),
            "trtllm-serve" => Self::trtllm_serve(),
            "triton-tensorrt-llm" => Self::triton_tensorrt_llm(),
            "triton" => Self::triton(),
            _ => return None,
        })
    }

    /// vLLM. `gpu_cache_usage_perc` is the name before version 0.10.
    #[must_use]
    pub fn vllm() -> Self {
        Self {
            waiting: Some(Selector::family("vllm:num_requests_waiting")),
            running: Some(Selector::family("vllm:num_requests_running")),
            kv_usage: vec![
                Selector::family("vllm:kv_cache_usage_perc"),
                Selector::family("vllm:gpu_cache_usage_perc"),
            ],
            adapters: Some(Selector::family("vllm:lora_requests_info")),
            cache_info: Some(CacheInfo {
                family: Selector::family("vllm:cache_config_info"),
                block_tokens_label: "block_size".to_owned(),
                kv_blocks_label: "num_gpu_blocks".to_owned(),
            }),
            own_prefix: "vllm:",
            ..Self::default()
        }
    }

    fn sglang() -> Self {
        Self {
            waiting: Some(Selector::family("sglang:num_queue_reqs")),
            running: Some(Selector::family("sglang:num_running_reqs")),
            kv_usage: vec![Selector::family("sglang:token_usage")],
            cache_info: Some(CacheInfo {
                family: Selector::family("sglang:cache_config_info"),
                block_tokens_label: "page_size".to_owned(),
                kv_blocks_label: "num_pages".to_owned(),
            }),
            own_prefix: "sglang:",
            ..Self::default()
        }
    }

    fn trtllm_serve() -> Self {
        Self {
            waiting: Some(Selector::family("trtllm_num_requests_waiting")),
            running: Some(Selector::family("trtllm_num_requests_running")),
            kv_usage: vec![Selector::family("trtllm_kv_cache_utilization")],
            block_tokens: Some(Selector::family("trtllm_kv_cache_tokens_per_block")),
            kv_blocks: Some(Selector::family("trtllm_kv_cache_max_blocks")),
            own_prefix: "trtllm_",
            ..Self::default()
        }
    }

    fn triton_tensorrt_llm() -> Self {
        let requests =
            |kind| Selector::with_label("nv_trt_llm_request_metrics", "request_type", kind);
        let blocks = |kind| {
            Selector::with_label("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type", kind)
        };
        Self {
            waiting: Some(requests("waiting")),
            running: Some(requests("scheduled")),
            kv_usage: vec![blocks("fraction")],
            block_tokens: Some(blocks("tokens_per")),
            kv_blocks: Some(blocks("max")),
            ..Self::default()
        }
    }

    fn triton() -> Self {
        Self {
            waiting: Some(Selector::family("nv_inference_pending_request_count")),
            running: Some(Selector::family("nv_inference_exec_count")),
            ..Self::default()
        }
    }

    /// Whether anything is read from series of this name.
    #[must_use]
    pub fn wants(&self, name: &[u8]) -> bool {
        self.selectors().any(|selector| selector.name().as_bytes() == name)
            || self.is_own_created(name)
    }

    /// Whether this is one of the engine's own `_created` series.
    #[must_use]
    pub fn is_own_created(&self, name: &[u8]) -> bool {
        !self.own_prefix.is_empty()
            && name.starts_with(self.own_prefix.as_bytes())
            && name.ends_with(b"_created")
    }

    fn selectors(&self) -> impl Iterator<Item = &Selector> {
        [&self.waiting, &self.running, &self.adapters, &self.block_tokens, &self.kv_blocks]
            .into_iter()
            .flatten()
            .chain(self.cache_info.as_ref().map(|info| &info.family))
            .chain(&self.kv_usage)
            .chain(self.attributes.iter().map(|(_, selector)| selector))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_that_is_named_is_there() {
        for engine in BUILT_IN {
            let mapping = Mapping::built_in(engine).unwrap();
            assert!(mapping.waiting.is_some() && mapping.running.is_some(), "{engine}");
        }
        assert_eq!(Mapping::built_in("default"), None);
    }

    #[test]
    fn what_is_read_of_an_exposition_is_told_by_name() {
        let vllm = Mapping::vllm();
        for name in ["vllm:num_requests_waiting", "vllm:lora_requests_info", "vllm:x_created"] {
            assert!(vllm.wants(name.as_bytes()), "{name}");
        }
        for name in ["", "vllm:num_requests_waiting_by_reason", "sglang:token_usage", "x_created"] {
            assert!(!vllm.wants(name.as_bytes()), "{name}");
        }
        assert!(!Mapping::triton().wants(b"x_created"));
    }
}
