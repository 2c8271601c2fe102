//! Engines that show whatever load a test wants, behind an Envoy that is configured by YAML.

use anyhow::{Context as _, Result, ensure};
use e2e::client::{self, Request, Response};
use e2e::echo_engine::EchoEngine;
use e2e::{Endpoint, Setup, Stack};

/// What an engine shows of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Waiting requests.
    pub(crate) waiting: u32,
    /// Running requests.
    pub(crate) running: u32,
    /// KV utilization, 0 to 1.
    pub(crate) kv_usage: f64,
}

impl Load {
    /// As vLLM shows it.
    pub(crate) fn metrics(self) -> String {
        let Self { waiting, running, kv_usage } = self;
        format!(
            "process_start_time_seconds 1000\nvllm:num_requests_waiting {waiting}\n\
             vllm:num_requests_running {running}\nvllm:kv_cache_usage_perc {kv_usage}\n\
             vllm:cache_config_info{{block_size=\"16\",num_gpu_blocks=\"10000\"}} 1.0\n"
        )
    }
}

/// Engines and the stack around them.
pub(crate) struct Bed {
    /// Envoy, agent, and no simulated engine.
    pub(crate) stack: Stack,
    /// The engines, `engine-0` and so on.
    pub(crate) engines: Vec<EchoEngine>,
}

impl Bed {
    /// As many engines as there are lists of labels, configured by `yaml`.
    pub(crate) async fn start(labels: &[&[(&str, &str)]], yaml: &str) -> Result<Self> {
        Self::start_with(labels, yaml, "").await
    }

    /// The same with more fields for the plugin configuration, each with a comma before it.
    pub(crate) async fn start_with(
        labels: &[&[(&str, &str)]],
        yaml: &str,
        plugin: &str,
    ) -> Result<Self> {
        let mut setup = Setup::new(0, 1).document(yaml);
        plugin.clone_into(&mut setup.plugin_config_extra);
        let mut engines = Vec::new();
        for (index, labels) in labels.iter().enumerate() {
            let engine = EchoEngine::start().await?;
            let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            let labels = labels.iter().map(owned).collect();
            let endpoint = Endpoint::new(format!("engine-{index}"), engine.address);
            setup.other_endpoints.push(Endpoint { labels, ..endpoint });
            engines.push(engine);
        }
        Ok(Self { stack: Stack::start(setup).await?, engines })
    }

    /// Configures anew, and waits until the filter decides by it.
    pub(crate) async fn configure(&mut self, yaml: &str) -> Result<()> {
        configure(&mut self.stack, yaml).await
    }

    /// The engine shows this from now on; returns once the filter knows.
    pub(crate) async fn load(&self, engine: usize, load: Load) -> Result<()> {
        let stub = self.engines.get(engine).context("no such engine")?;
        stub.show(load.metrics());
        let address = stub.address.to_string();
        let known = async || {
            let state = self.stack.filter_state().await.ok()?;
            let endpoint = state.endpoints.iter().find(|e| e.address == address)?;
            let is = |seen: Option<f64>, wanted: f64| {
                seen.is_some_and(|seen| (seen - wanted).abs() < 1e-3)
            };
            let all = is(endpoint.waiting, load.waiting.into())
                && is(endpoint.running, load.running.into())
                && is(endpoint.kv_usage, load.kv_usage);
            all.then_some(())
        };
        self.stack.until("the filter's knowledge of a load", known).await
    }

    /// Sends a request.
    pub(crate) async fn send(&self, request: &Request) -> Result<Response> {
        client::send(self.stack.listen(), request).await
    }

    /// Sends a request and returns the index of the engine that answered.
    pub(crate) async fn served_by(&self, request: &Request) -> Result<usize> {
        let response = self.send(request).await?;
        ensure!(response.status == 200, "{}: {}", response.status, response.text());
        let address = response.json()["engine"].as_str().unwrap_or_default().to_owned();
        let at = self.engines.iter().position(|e| e.address.to_string() == address);
        at.with_context(|| format!("answered by {address}"))
    }
}

/// Configures anew, and waits until the filter decides by it.
pub(crate) async fn configure(stack: &mut Stack, yaml: &str) -> Result<()> {
    let before = stack.filter_state().await?.policy.revision;
    stack.write_documents(&format!("---\n{yaml}\n"))?;
    let seen = &*stack;
    let changed =
        async || (seen.filter_state().await.ok()?.policy.revision != before).then_some(());
    stack.until("another configuration in the filter", changed).await
}

/// An `EndpointPickerConfig` with these plugins (YAML list items) and one profile that refers to `used`, in order.
pub(crate) fn picker_config(plugins: &str, used: &[&str]) -> String {
    let mut refs = String::new();
    for name in used {
        refs.push_str(&format!("  - pluginRef: {name}\n"));
    }
    format!(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n{}\n\
         schedulingProfiles:\n- name: default\n  plugins:\n{refs}",
        plugins.trim_matches('\n')
    )
}

/// An `EndpointPickerConfig` with these plugins (YAML list items), and for each of these roles its filter and a profile
/// of its name.
pub(crate) fn roles_config(plugins: &str, roles: [&str; 2]) -> String {
    let (mut filters, mut profiles) = (String::new(), String::new());
    for role in roles {
        filters.push_str(&format!("- type: {role}-filter\n"));
        profiles.push_str(&format!(
            "- name: {role}\n  plugins: [{{pluginRef: {role}-filter}}, {{pluginRef: max-score-picker}}]\n"
        ));
    }
    format!(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n{}\n\
         {filters}- type: max-score-picker\nschedulingProfiles:\n{profiles}",
        plugins.trim_matches('\n')
    )
}

/// An `InferencePool` called `llama`, of the engines with `app: llama`, and these documents that refer to it.
pub(crate) fn pool_config(documents: &str) -> String {
    format!(
        "apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {{name: llama, namespace: default}}
spec:
  selector: {{matchLabels: {{app: llama}}}}
  targetPorts: [{{number: 8000}}]
  endpointPickerRef: {{name: picker, port: {{number: 9002}}}}
---
{}",
        documents.trim_start_matches('\n')
    )
}

/// A chat of one message, short enough to hold no whole block.
pub(crate) fn short() -> Request {
    Request::chat(&serde_json::json!({
        "model": e2e::MODEL,
        "messages": [{"role": "user", "content": "Hi"}],
    }))
}

/// A chat of one message of this text.
pub(crate) fn long(text: &str) -> Request {
    Request::chat(&serde_json::json!({
        "model": e2e::MODEL,
        "messages": [{"role": "user", "content": text}],
    }))
}
