//! `up`: starts everything and leaves it running.

use std::path::Path;

use clap::Args;
use warmroute_demo::processes::{
    Ports, Programs, ROUND_ROBIN, Record, Session, Stack, StackOptions, WARMROUTE, first_answer,
    workspace_root,
};

use warmroute_demo::workload::BLOCK_TOKENS;

use super::{Failure, records_file, running_dir, say};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Simulated replicas.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    replicas: u16,
    /// Worker threads of Envoy.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    concurrency_workers: u16,
    /// KV memory of each replica, in tokens. Twice that of the demo: the article's own script, to be
    /// tried here, writes conversations that are twice as long in these engines' tokens.
    #[arg(long, default_value_t = 320_000, value_name = "N", value_parser = usable)]
    kv_tokens: usize,
}

pub(crate) async fn up(arguments: Arguments) -> Result<(), Failure> {
    let root = workspace_root()?;
    let (dir, records) = (running_dir(&root), records_file(&root));
    let before = read(&records);
    let hints = dir.join("hints.txt");
    if !before.is_empty() && before.iter().all(Record::alive) {
        say(&format!("already running:\n{}", std::fs::read_to_string(&hints).unwrap_or_default()));
        return Ok(());
    }
    // What is left of one that has partly ended would only be in the way.
    before.iter().for_each(Record::stop);

    let mut options =
        StackOptions::new(arguments.replicas.into(), arguments.concurrency_workers.into());
    options.session = Session::Own;
    options.ports = Some(Ports::customary()?);
    let blocks = arguments.kv_tokens / BLOCK_TOKENS;
    options.simulator.arguments = vec!["--num-blocks".to_owned(), blocks.to_string()];
    let stack = Stack::start(&Programs::find(&root)?, options, &dir).await?;
    for path in [ROUND_ROBIN, WARMROUTE] {
        first_answer(stack.listen(), path, &stack.options.simulator.model, &stack.dir).await?;
    }
    let text = describe(&stack);
    std::fs::write(&hints, &text)?;
    let running = stack.leave_running();
    if let Err(error) = std::fs::write(&records, serde_json::to_vec_pretty(&running)?) {
        running.iter().for_each(Record::stop);
        return Err(format!("write {}: {error}", records.display()).into());
    }
    say(&text);
    Ok(())
}

/// Less than the longest prompt that the engines take would not start.
fn usable(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|tokens| *tokens >= 40_000).ok_or_else(|| "at least 40000".to_owned())
}

fn read(records: &Path) -> Vec<Record> {
    let text = std::fs::read_to_string(records).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn describe(stack: &Stack) -> String {
    let (envoy, admin, agent) = (stack.envoy.listen, stack.envoy.admin, stack.agent.address);
    let model = &stack.options.simulator.model;
    let engines: Vec<String> = stack.simulator.replicas.iter().map(ToString::to_string).collect();
    let body = format!(
        "'{{\"model\":\"{model}\",\"max_tokens\":16,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'"
    );
    format!(
        "Through Warmroute:
  curl -i http://{envoy}/v1/chat/completions -H 'content-type: application/json' -d {body}
Round robin over the same engines:
  curl -i http://{envoy}/rr/v1/chat/completions -H 'content-type: application/json' -d {body}
The header x-sim-endpoint of the answer names the engine.

Model              {model}
Endpoints (page)   http://{agent}/
Endpoints (JSON)   http://{agent}/v1/endpoints
Agent's metrics    http://{agent}/metrics
Envoy's admin      http://{admin}/
Engines            {}
Engines' state     http://{}/state
Logs               {}
Stop it all with   make down",
        engines.join(" "),
        stack.simulator.admin,
        stack.dir.display(),
    )
}
