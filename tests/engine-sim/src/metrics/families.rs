//! The `vllm:` families of one engine, in vLLM's order and with its help texts.

use super::{Exposition, Label};
use crate::engine::stats::Stats;
use crate::engine::{EngineConfig, Gauges};

/// Prints the families. `model` is the first served name, whatever name or adapter a request used.
pub fn write(
    out: &mut Exposition,
    model: &str,
    max_model_len: usize,
    config: &EngineConfig,
    gauges: &Gauges,
    stats: &Stats,
) {
    let base: &[Label<'_>] = &[("engine", "0"), ("model_name", model)];
    let with = |name: &'static str, value: &'static str| -> [Label<'_>; 3] {
        // Labels are in alphabetical order.
        if name < "model_name" {
            [("engine", "0"), (name, value), ("model_name", model)]
        } else {
            [("engine", "0"), ("model_name", model), (name, value)]
        }
    };
    perf_model(out, base);
    requests(out, base, gauges, &with);
    tokens(out, base, stats, &with);
    finished(out, model, stats, &with);
    histograms(out, base, stats);
    cache_config(out, config, max_model_len);
}

type With<'a, 'm> = &'a dyn Fn(&'static str, &'static str) -> [Label<'m>; 3];

fn perf_model(out: &mut Exposition, base: &[Label<'_>]) {
    out.counter("vllm:estimated_flops_per_gpu", "Estimated number of floating point operations per GPU (for Model Flops Utilization calculations).", &[(base, 0.0)]);
    out.counter("vllm:estimated_read_bytes_per_gpu", "Estimated number of bytes read from memory per GPU (for Model Flops Utilization calculations).", &[(base, 0.0)]);
    out.counter("vllm:estimated_write_bytes_per_gpu", "Estimated number of bytes written to memory per GPU (for Model Flops Utilization calculations).", &[(base, 0.0)]);
}

fn requests(out: &mut Exposition, base: &[Label<'_>], gauges: &Gauges, with: With<'_, '_>) {
    out.gauge(
        "vllm:num_requests_running",
        "Number of requests in model execution batches.",
        &[(base, gauges.running as f64)],
    );
    let waiting = gauges.waiting_capacity + gauges.waiting_deferred;
    out.gauge(
        "vllm:num_requests_waiting",
        "Number of requests waiting to be processed.",
        &[(base, waiting as f64)],
    );
    out.gauge("vllm:num_requests_waiting_by_reason", "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.", &[
        (&with("reason", "capacity"), gauges.waiting_capacity as f64),
        (&with("reason", "deferred"), gauges.waiting_deferred as f64),
    ]);
    out.gauge("vllm:engine_sleep_state", "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep level 2.", &[
        (&with("sleep_state", "awake"), 1.0),
        (&with("sleep_state", "weights_offloaded"), 0.0),
        (&with("sleep_state", "discard_all"), 0.0),
    ]);
    out.gauge(
        "vllm:kv_cache_usage_perc",
        "KV-cache usage. 1 means 100 percent usage.",
        &[(base, gauges.kv_usage)],
    );
}

fn tokens(out: &mut Exposition, base: &[Label<'_>], stats: &Stats, with: With<'_, '_>) {
    let hits = stats.prefix_hits as f64;
    let (computed, transferred) = (stats.computed() as f64, stats.transferred as f64);
    out.counter(
        "vllm:prefix_cache_queries",
        "Prefix cache queries, in terms of number of queried tokens.",
        &[(base, stats.prefix_queries as f64)],
    );
    out.counter(
        "vllm:prefix_cache_hits",
        "Prefix cache hits, in terms of number of cached tokens.",
        &[(base, hits)],
    );
    out.counter("vllm:external_prefix_cache_queries", "External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.", &[(base, stats.transfer_queries as f64)]);
    out.counter("vllm:external_prefix_cache_hits", "External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.", &[(base, transferred)]);
    out.counter(
        "vllm:mm_cache_queries",
        "Multi-modal cache queries, in terms of number of queried items.",
        &[(base, 0.0)],
    );
    out.counter(
        "vllm:mm_cache_hits",
        "Multi-modal cache hits, in terms of number of cached items.",
        &[(base, 0.0)],
    );
    out.counter(
        "vllm:num_preemptions",
        "Cumulative number of preemption from the engine.",
        &[(base, stats.preemptions as f64)],
    );
    out.counter(
        "vllm:prompt_tokens",
        "Number of prefill tokens processed.",
        &[(base, stats.prompt_tokens as f64)],
    );
    out.counter(
        "vllm:prompt_tokens_by_source",
        "Number of prompt tokens by source.",
        &[
            (&with("source", "local_compute"), computed),
            (&with("source", "local_cache_hit"), hits),
            (&with("source", "external_kv_transfer"), transferred),
        ],
    );
    out.counter(
        "vllm:prompt_tokens_cached",
        "Number of cached prompt tokens (local + external).",
        &[(base, hits + transferred)],
    );
    out.counter("vllm:prompt_tokens_cached_by_source", "Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.", &[
        (&with("source", "device"), hits),
        (&with("source", "host"), 0.0),
        (&with("source", "p2p"), transferred),
        (&with("source", "disk"), 0.0),
        (&with("source", "external_unspecified"), 0.0),
    ]);
    out.counter(
        "vllm:generation_tokens",
        "Number of generation tokens processed.",
        &[(base, stats.generation_tokens as f64)],
    );
}

fn finished(out: &mut Exposition, model: &str, stats: &Stats, with: With<'_, '_>) {
    out.counter(
        "vllm:request_success",
        "Count of successfully processed requests.",
        &[
            (&with("finished_reason", "stop"), stats.finished_stop as f64),
            (&with("finished_reason", "length"), stats.finished_length as f64),
            (&with("finished_reason", "abort"), 0.0),
            (&with("finished_reason", "error"), 0.0),
            (&with("finished_reason", "repetition"), 0.0),
        ],
    );
    // This family alone has no engine label.
    let rejected = |reason| [("model_name", model), ("reason", reason)];
    out.counter(
        "vllm:admission_rejections",
        "Number of admission attempts rejected by a queue limit, by reason.",
        &[
            (&rejected("max_num_queued_reqs"), stats.rejected_queue_full as f64),
            (&rejected("max_num_queued_tokens"), 0.0),
        ],
    );
}

fn histograms(out: &mut Exposition, base: &[Label<'_>], stats: &Stats) {
    let families = [
        (
            "vllm:request_prompt_tokens",
            "Number of prefill tokens processed.",
            &stats.request_prompt_tokens,
        ),
        (
            "vllm:request_generation_tokens",
            "Number of generation tokens processed.",
            &stats.request_generation_tokens,
        ),
        (
            "vllm:iteration_tokens_total",
            "Histogram of number of tokens per engine_step.",
            &stats.step_tokens,
        ),
        (
            "vllm:request_max_num_generation_tokens",
            "Histogram of maximum number of requested generation tokens.",
            &stats.max_generation_tokens,
        ),
        ("vllm:request_params_n", "Histogram of the n request parameter.", &stats.params_n),
        (
            "vllm:request_params_max_tokens",
            "Histogram of the max_tokens request parameter.",
            &stats.params_max_tokens,
        ),
        (
            "vllm:time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            &stats.ttft,
        ),
        (
            "vllm:inter_token_latency_seconds",
            "Histogram of inter-token latency in seconds.",
            &stats.inter_token,
        ),
        (
            "vllm:request_time_per_output_token_seconds",
            "Histogram of time_per_output_token_seconds per request.",
            &stats.time_per_output_token,
        ),
        (
            "vllm:e2e_request_latency_seconds",
            "Histogram of e2e request latency in seconds.",
            &stats.e2e,
        ),
        (
            "vllm:request_queue_time_seconds",
            "Histogram of time spent in WAITING phase for request.",
            &stats.queue_time,
        ),
        (
            "vllm:request_inference_time_seconds",
            "Histogram of time spent in RUNNING phase for request.",
            &stats.inference_time,
        ),
        (
            "vllm:request_prefill_time_seconds",
            "Histogram of time spent in PREFILL phase for request.",
            &stats.prefill_time,
        ),
        (
            "vllm:request_decode_time_seconds",
            "Histogram of time spent in DECODE phase for request.",
            &stats.decode_time,
        ),
        (
            "vllm:request_num_preemptions",
            "Histogram of the number of times a request was preempted.",
            &stats.request_preemptions,
        ),
        (
            "vllm:request_prefill_kv_computed_tokens",
            "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
            &stats.prefill_computed_tokens,
        ),
    ];
    for (name, help, histogram) in families {
        out.histogram(name, help, &[(base, histogram)]);
    }
}

/// Labels that describe the cache. What the simulator has no notion of is as the capture had it.
fn cache_config(out: &mut Exposition, config: &EngineConfig, max_model_len: usize) {
    let block_size = config.block_size.to_string();
    let num_blocks = config.num_blocks.to_string();
    let capacity = config.num_blocks.saturating_mul(config.block_size);
    let tokens = capacity.to_string();
    let concurrency = format!("{:?}", capacity as f64 / max_model_len.max(1) as f64);
    let labels: &[Label<'_>] = &[
        ("_block_size_resolved", "True"),
        ("block_size", &block_size),
        ("cache_dtype", "auto"),
        ("cache_hit_alignment_tokens", "None"),
        ("effective_attention_block_size", &block_size),
        ("enable_mamba_shared_prefix_checkpoint", "False"),
        ("enable_prefix_caching", "True"),
        ("engine", "0"),
        ("gpu_memory_utilization", "0.92"),
        ("hash_block_size", "None"),
        ("is_attention_free", "False"),
        ("kv_cache_dtype_skip_layers", "[]"),
        ("kv_cache_layout", "None"),
        ("kv_cache_max_concurrency", &concurrency),
        ("kv_cache_memory_bytes", "1073741824"),
        ("kv_cache_size_tokens", &tokens),
        ("kv_offloading_backend", "native"),
        ("kv_offloading_size", "None"),
        ("kv_sharing_fast_prefill", "False"),
        ("mamba_block_size", "None"),
        ("mamba_cache_dtype", "auto"),
        ("mamba_cache_mode", "none"),
        ("mamba_page_size_padded", "None"),
        ("mamba_ssm_cache_dtype", "float32"),
        ("num_cpu_blocks", "None"),
        ("num_gpu_blocks", &num_blocks),
        ("num_gpu_blocks_override", &num_blocks),
        ("prefix_cache_retention_interval", "0"),
        ("prefix_caching_hash_algo", "sha256"),
        ("prefix_match_unit", "None"),
        ("replayssm_buffer_len", "16"),
        ("skip_page_size_padded", "None"),
        ("sliding_window", "None"),
        ("swa_bounded_replay", "True"),
        ("use_kda_recoverssm", "False"),
        ("use_replayssm", "False"),
        ("user_specified_block_size", "True"),
    ];
    out.gauge(
        "vllm:cache_config_info",
        "Information of the LLMEngine CacheConfig",
        &[(labels, 1.0)],
    );
}
