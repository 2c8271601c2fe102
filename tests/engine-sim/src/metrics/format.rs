//! Whose exposition a replica speaks. vLLM's is whole; of other engines there are the families that pickers read.

use clap::ValueEnum;

use super::{Exposition, Label};
use crate::engine::EngineConfig;
use crate::replica::core::Snapshot;

/// An engine's exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// vLLM 0.32.
    #[default]
    Vllm,
    /// vLLM before 0.10: the KV usage is `gpu_cache_usage_perc`.
    VllmOld,
    /// SGLang.
    Sglang,
    /// `trtllm-serve`.
    Trtllm,
    /// Triton with the TensorRT-LLM backend.
    TritonTrtllm,
    /// Triton with another backend, which tells nothing of a KV cache.
    Triton,
}

/// Name of the KV usage in vLLM.
pub const KV_USAGE: &str = "vllm:kv_cache_usage_perc";
/// Its name before vLLM 0.10.
pub const FORMER_KV_USAGE: &str = "vllm:gpu_cache_usage_perc";

impl Format {
    /// vLLM's exposition as this version of it names things.
    pub fn renamed(self, text: String) -> String {
        if self == Self::VllmOld { text.replace(KV_USAGE, FORMER_KV_USAGE) } else { text }
    }

    /// What begins a line of the KV usage, and of the waiting requests. Where there is no KV usage, nothing does.
    pub fn signals(self) -> [&'static str; 2] {
        match self {
            Self::Vllm => ["vllm:kv_cache_usage_perc{", "vllm:num_requests_waiting{"],
            Self::VllmOld => ["vllm:gpu_cache_usage_perc{", "vllm:num_requests_waiting{"],
            Self::Sglang => ["sglang:token_usage{", "sglang:num_queue_reqs{"],
            Self::Trtllm => ["trtllm_kv_cache_utilization{", "trtllm_num_requests_waiting{"],
            Self::TritonTrtllm => [
                "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"",
                "nv_trt_llm_request_metrics{request_type=\"waiting\"",
            ],
            Self::Triton => ["\n", "nv_inference_pending_request_count{"],
        }
    }

    /// The exposition, unless it is vLLM's.
    pub fn others(self, model: &str, config: &EngineConfig, now: &Snapshot) -> Option<String> {
        let mut out = Exposition::new(now.created);
        let (usage, running) = (now.gauges.kv_usage, now.gauges.running as f64);
        let waiting = (now.gauges.waiting_capacity + now.gauges.waiting_deferred) as f64;
        let (tokens, blocks) = (config.block_size as f64, config.num_blocks as f64);
        match self {
            Self::Vllm | Self::VllmOld => return None,
            Self::Sglang => {
                let labels: &[Label<'_>] =
                    &[("engine_type", "unified"), ("model_name", model), ("tp_rank", "0")];
                let (size, pages) = (config.block_size.to_string(), config.num_blocks.to_string());
                let config: &[Label<'_>] = &[("num_pages", &pages), ("page_size", &size)];
                for (name, help, labels, value) in [
                    ("sglang:num_running_reqs", "The number of running requests.", labels, running),
                    (
                        "sglang:num_queue_reqs",
                        "The number of requests in the waiting queue.",
                        labels,
                        waiting,
                    ),
                    ("sglang:token_usage", "The token usage.", labels, usage),
                    (
                        "sglang:cache_config_info",
                        "Information of the cache configuration.",
                        config,
                        1.0,
                    ),
                ] {
                    out.gauge(name, help, &[(labels, value)]);
                }
            }
            Self::Trtllm => {
                let labels: &[Label<'_>] = &[("engine_type", "trtllm"), ("model_name", model)];
                for (name, help, value) in [
                    ("trtllm_num_requests_running", "Requests in the active batch.", running),
                    ("trtllm_num_requests_waiting", "Requests in the queue.", waiting),
                    ("trtllm_kv_cache_utilization", "Share of KV cache blocks in use.", usage),
                    ("trtllm_kv_cache_tokens_per_block", "Tokens of a KV cache block.", tokens),
                    ("trtllm_kv_cache_max_blocks", "KV cache blocks.", blocks),
                ] {
                    out.gauge(name, help, &[(labels, value)]);
                }
            }
            Self::TritonTrtllm => {
                let requests = |kind| [("request_type", kind), ("model", model), ("version", "1")];
                out.gauge(
                    "nv_trt_llm_request_metrics",
                    "TRT LLM request metrics",
                    &[
                        (&requests("waiting"), waiting),
                        (&requests("scheduled"), running),
                        (&requests("max"), config.max_num_seqs as f64),
                    ],
                );
                let block =
                    |kind| [("kv_cache_block_type", kind), ("model", model), ("version", "1")];
                out.gauge(
                    "nv_trt_llm_kv_cache_block_metrics",
                    "TRT LLM KV cache block metrics",
                    &[
                        (&block("fraction"), usage),
                        (&block("tokens_per"), tokens),
                        (&block("used"), blocks - now.gauges.free_blocks as f64),
                        (&block("free"), now.gauges.free_blocks as f64),
                        (&block("max"), blocks),
                    ],
                );
            }
            Self::Triton => {
                let labels: &[Label<'_>] = &[("model", model), ("version", "1")];
                let pending =
                    "Instantaneous number of pending requests awaiting execution per-model.";
                out.gauge("nv_inference_pending_request_count", pending, &[(labels, waiting)]);
                let executed =
                    "Number of model executions performed (does not include cached requests)";
                out.gauge("nv_inference_exec_count", executed, &[(labels, now.served as f64)]);
            }
        }
        Some(out.finish())
    }
}
