//! `engine-sim`: simulated vLLM replicas with faults on command.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use engine_sim::admin::fleet::Fleet;
use engine_sim::api::ApiConfig;
use engine_sim::engine::EngineConfig;
use engine_sim::kv_events::KvEventsConfig;
use engine_sim::kv_events::encoding::{Encoding, Hashes};
use engine_sim::metrics::format::Format;
use engine_sim::replica::{SimConfig, listener};
use engine_sim::tokens::{MEMO_TOKENS, Tokenizer};
use tokio::signal::unix::{SignalKind, signal};

/// Simulated vLLM replicas for tests: many in one process, one port each, on 127.0.0.1.
///
/// Once every port is open, one JSON line goes to stdout:
/// {"ready":true,"admin":"127.0.0.1:9100","replicas":["127.0.0.1:9101", …],"kv_events":[[EVENTS,REPLAY], …],"sidecars":["127.0.0.1:9201", …]}
///
/// Each replica serves /v1/chat/completions, /v1/completions, /v1/messages (and count_tokens), /v1/responses,
/// /v1/embeddings, /inference/v1/generate, /v1/models, /tokenize, /metrics, /health, /ping, /version, /load,
/// /kv_event_sources and /reset_prefix_cache as vLLM 0.32 does. A request field `sim_reply_tokens`
/// ends an answer before max_tokens. Answers carry x-sim-endpoint (who answered) and
/// x-sim-cached-tokens (prompt tokens it held when the request came).
///
/// The admin port takes GET /state?requests=N, POST /faults {"replica":0,"fault":"die"}, POST /reset,
/// POST /occupy {"replica":0,"fraction":0.95}, POST /replicas {"port":0}, DELETE /replicas/N and
/// POST /flood {"replica":0,"blocks_per_s":20000,"seconds":5}.
/// Faults: none die hang error reset drain refuse crash_midstream crash_midstream_silent restart
/// metrics_drop metrics_blank metrics_500 metrics_freeze metrics_truncate metrics_old_names
/// metrics_nan metrics_hang events_drop events_gap events_stop replay_off replay_silent; `error` takes status and count, `reset` after_tokens and count,
/// `events_drop` and `events_gap` count.
///
/// SIGTERM and SIGINT end the process at once, with exit code 0.
#[derive(Parser)]
#[command(version, verbatim_doc_comment, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Replicas to start; ignored with --ports
    #[arg(long, default_value_t = 4)]
    replicas: u16,
    /// Port of the first replica, the others follow; 0: any free ports
    #[arg(long, default_value_t = 9101)]
    base_port: u16,
    /// Ports of the replicas, one by one, comma separated
    #[arg(long, value_delimiter = ',')]
    ports: Vec<u16>,
    /// Port for commands; 0: any free port
    #[arg(long, default_value_t = 9100)]
    admin_port: u16,
    /// Served model name; may be repeated, the first is the one in /metrics
    #[arg(long = "model", default_value = "llama-70b")]
    models: Vec<String>,
    /// LoRA adapter, usable as a model name; may be repeated
    #[arg(long = "lora")]
    loras: Vec<String>,
    /// Adapters that run at the same time
    #[arg(long, default_value_t = 2)]
    max_loras: usize,
    /// Most tokens of prompt and answer together
    #[arg(long, default_value_t = 32_768)]
    max_model_len: usize,
    /// Tokens per KV block
    #[arg(long, default_value_t = 16)]
    block_size: usize,
    /// KV blocks per replica (one is never used, as in vLLM)
    #[arg(long, default_value_t = 10_000)]
    num_blocks: usize,
    /// Requests that run at the same time; more wait
    #[arg(long, default_value_t = 256)]
    max_num_seqs: usize,
    /// Requests in a replica, waiting ones included, before it answers 503; no limit by default
    #[arg(long)]
    max_num_queued_reqs: Option<usize>,
    /// Prefill speed in tokens per simulated second, shared by the requests in prefill
    #[arg(long, default_value_t = 16_000)]
    prefill_rate: u64,
    /// Tokens after which prefilled blocks can be hit by others
    #[arg(long, default_value_t = 2_048)]
    prefill_chunk: usize,
    /// Simulated milliseconds per decoded token
    #[arg(long, default_value_t = 10.0)]
    decode_ms: f64,
    /// Simulated seconds per second
    #[arg(long, default_value_t = 1.0)]
    time_scale: f64,
    /// Length of a chat answer without max_tokens
    #[arg(long, default_value_t = 256)]
    default_reply_tokens: usize,
    /// Leave prompt_tokens_details out of usage, as vLLM does unless told otherwise
    #[arg(long)]
    no_prompt_tokens_details: bool,
    /// Usage on every event of every stream
    #[arg(long)]
    enable_force_include_usage: bool,
    /// Echo x-request-id
    #[arg(long)]
    enable_request_id_headers: bool,
    /// Seconds between ": keep-alive" comments on a silent stream; none by default
    #[arg(long)]
    sse_keep_alive_interval: Option<f64>,
    /// Requests that each replica remembers for GET /state
    #[arg(long, default_value_t = 1_000)]
    record_requests: usize,
    /// Publish KV cache events over ZMQ
    #[arg(long)]
    kv_events: bool,
    /// Port of the first replica's events, the next one is for its replay, and so on; 0: any free ports
    #[arg(long, default_value_t = 0)]
    kv_events_base_port: u16,
    /// Spelling of events and replay answers: map as vLLM 0.32, array as 0.16
    #[arg(long, value_enum, default_value_t = Encoding::Map)]
    kv_events_encoding: Encoding,
    /// Spelling of block hashes
    #[arg(long, value_enum, default_value_t = Hashes::Int)]
    kv_events_hashes: Hashes,
    /// Batches of events that can be replayed
    #[arg(long, default_value_t = 10_000)]
    replay_buffer_steps: usize,
    /// Publish events so many milliseconds late
    #[arg(long, default_value_t = 0)]
    kv_events_delay_ms: u64,
    /// Whose /metrics each replica has, in turn, comma separated
    #[arg(long, value_enum, value_delimiter = ',', default_value = "vllm")]
    engine: Vec<Format>,
    /// Give each replica a sidecar with a port of its own, which has prompts computed where x-prefiller-host-port says
    #[arg(long)]
    sidecars: bool,
    /// Port of the first replica's sidecar, the others follow; 0: any free ports
    #[arg(long, default_value_t = 0)]
    sidecar_base_port: u16,
    /// Tokens of encoded messages that are remembered; half of them for certain
    #[arg(long, default_value_t = MEMO_TOKENS)]
    memo_tokens: usize,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

#[derive(Subcommand)]
enum Command {
    /// Write the simulated model's tokenizer.json, tokenizer_config.json and chat_template.jinja, and end
    ModelFolder {
        /// Where to; made if it is missing
        folder: PathBuf,
    },
}

impl Args {
    fn config(&self) -> Result<SimConfig, String> {
        let usable = self.num_blocks.saturating_sub(1).saturating_mul(self.block_size);
        if self.block_size == 0 || self.max_model_len > usable {
            return Err(format!(
                "--max-model-len {} does not fit into the KV cache of {usable} tokens; lower it or raise --num-blocks",
                self.max_model_len
            ));
        }
        for (flag, value) in [("--decode-ms", self.decode_ms), ("--time-scale", self.time_scale)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(format!("{flag} must be above 0, got {value}"));
            }
        }
        if self.max_num_seqs == 0 || self.prefill_rate == 0 {
            return Err("--max-num-seqs and --prefill-rate must be above 0".to_owned());
        }
        Ok(SimConfig {
            api: ApiConfig {
                models: self.models.clone(),
                loras: self.loras.clone(),
                max_model_len: self.max_model_len,
                default_reply_tokens: self.default_reply_tokens,
                prompt_tokens_details: !self.no_prompt_tokens_details,
                force_include_usage: self.enable_force_include_usage,
            },
            engine: EngineConfig {
                block_size: self.block_size,
                num_blocks: self.num_blocks,
                max_num_seqs: self.max_num_seqs,
                max_queued: self.max_num_queued_reqs,
                max_loras: self.max_loras,
                prefill_tokens_per_s: self.prefill_rate,
                prefill_chunk: self.prefill_chunk,
                decode_ns: (self.decode_ms * 1e6) as u64,
            },
            time_scale: self.time_scale,
            request_id_headers: self.enable_request_id_headers,
            sse_keep_alive: self.sse_keep_alive_interval,
            records: self.record_requests,
            kv_events: self.kv_events.then(|| KvEventsConfig {
                encoding: self.kv_events_encoding,
                hashes: self.kv_events_hashes,
                buffer_steps: self.replay_buffer_steps,
                delay: Duration::from_millis(self.kv_events_delay_ms),
            }),
            formats: self.engine.clone(),
            sidecars: self.sidecars,
        })
    }

    fn replica_ports(&self) -> Result<Vec<u16>, String> {
        if !self.ports.is_empty() {
            return Ok(self.ports.clone());
        }
        (0..self.replicas)
            .map(|i| match self.base_port {
                0 => Ok(0),
                base => base.checked_add(i).ok_or_else(|| {
                    format!(
                        "{} replicas from port {base} on run past port 65535; lower --base-port",
                        self.replicas
                    )
                }),
            })
            .collect()
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(Command::ModelFolder { folder }) = &args.command {
        return match engine_sim::model_folder::write(folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("engine-sim: {} cannot be written: {error}", folder.display());
                ExitCode::FAILURE
            }
        };
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.threads.max(1))
        .enable_all()
        .build();
    let result = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let result = runtime.block_on(run(&args));
        // Streams that hang on command must not delay the end.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("engine-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args) -> Result<(), String> {
    let mut terminated = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let tokenizer = Tokenizer::remembering(args.memo_tokens).map_err(|error| error.to_string())?;
    let fleet = Fleet::with_event_ports(args.config()?, tokenizer, args.kv_events_base_port);
    let fleet = Arc::new(fleet.sidecars_from(args.sidecar_base_port));
    let (mut endpoints, mut event_ports) = (Vec::new(), Vec::new());
    let mut sidecars = Vec::new();
    for port in args.replica_ports()? {
        let replica = fleet.add(port).await.map_err(|error| error.to_string())?;
        endpoints.push(replica.addr.to_string());
        sidecars.extend(fleet.sidecar(replica.index).map(|addr| addr.to_string()));
        event_ports.extend(replica.event_ports().map(|ports| [ports.events, ports.replay]));
    }
    let admin = listener::bind(SocketAddr::from(([127, 0, 0, 1], args.admin_port)))
        .await
        .map_err(|error| format!("--admin-port {} cannot be bound: {error}", args.admin_port))?;
    let admin_addr = admin.local_addr().map_err(|error| error.to_string())?;
    let ready = serde_json::json!({ "ready": true, "admin": admin_addr.to_string(), "replicas": endpoints, "kv_events": event_ports, "sidecars": sidecars });
    let mut stdout = std::io::stdout();
    // Whoever started this may not read the line; that is no reason to stop.
    let _ = writeln!(stdout, "{ready}").and_then(|()| stdout.flush());
    tokio::select! {
        () = engine_sim::admin::serve(fleet, admin) => {}
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    Ok(())
}
