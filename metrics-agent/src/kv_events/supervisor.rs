//! Follows exactly the endpoints that the fleet has, each in its present life.
//!
//! The fleet says what there is ([`KvEvents`]); a task compares that with what runs, loads models,
//! and starts and stops [endpoint tasks](super::endpoint_task).

use super::endpoint_task::EndpointTask;
use super::inbox::{Following, Gone, Order, Outlet};
use super::models::EventModel;
use super::worker;
use crate::config::Configuration;
use crate::config::file_discovery::EndpointSpec;
use crate::config::kv_events::{KvEventsSpec, Plan};
use crate::config::model::ModelSpec;
use crate::fleet::Shared;
use crate::tokenizer::Tokenizer;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info};
use warmroute_shared_state::endpoint::EndpointId;
use warmroute_shared_state::model::ModelRecord;

/// What there is to follow.
#[derive(Debug, Clone, Default)]
struct Wanted {
    endpoints: BTreeMap<EndpointId, WantedEndpoint>,
    documents: Vec<KvEventsSpec>,
    /// With the state of their files.
    models: Vec<(ModelSpec, u64)>,
    lives: u64,
}

#[derive(Debug, Clone)]
struct WantedEndpoint {
    spec: EndpointSpec,
    generation: u64,
    /// Number of this life of the endpoint: another one shares nothing with it.
    life: u64,
}

/// The fleet's end. Dropping it stops everything.
pub struct KvEvents {
    wanted: watch::Sender<Wanted>,
    task: JoinHandle<()>,
}

impl KvEvents {
    /// Starts the worker and the supervisor, with nothing to follow yet.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let (outlet, inbox) = Outlet::new();
        // Ends by itself when nobody is left to send.
        std::thread::Builder::new()
            .name("kv-events".into())
            .spawn(move || worker::run(&shared, inbox))?;
        let (wanted, receiver) = watch::channel(Wanted::default());
        let supervisor = Supervisor { outlet, running: BTreeMap::new(), models: Vec::new() };
        Ok(Self { wanted, task: tokio::spawn(supervisor.run(receiver)) })
    }

    /// Takes over what a configuration says of events and models.
    pub fn configure(&self, configuration: &Configuration) {
        let models: Vec<_> =
            configuration.models.iter().map(|model| (model.clone(), model.stamp())).collect();
        self.wanted.send_if_modified(|wanted| {
            let same = wanted.documents == configuration.kv_events && wanted.models == models;
            if !same {
                wanted.documents.clone_from(&configuration.kv_events);
                wanted.models = models;
            }
            !same
        });
    }

    /// An endpoint answered, in this generation. The stream knows of it already.
    pub fn seen(&self, spec: &EndpointSpec, generation: u64) {
        self.wanted.send_if_modified(|wanted| {
            let id = spec.id();
            let known = wanted.endpoints.get(&id);
            let life = match known {
                Some(known) if known.generation == generation => known.life,
                _ => {
                    wanted.lives = wanted.lives.saturating_add(1);
                    wanted.lives
                }
            };
            if known.is_some_and(|known| known.life == life && known.spec == *spec) {
                return false;
            }
            wanted.endpoints.insert(id, WantedEndpoint { spec: spec.clone(), generation, life });
            true
        });
    }

    /// Done when nothing is followed any more, which only a fault of the agent's own can bring about: what was told
    /// of endpoints is then frozen, and must not look current.
    pub async fn ended(&mut self) {
        // How it ended makes no difference.
        let _ = (&mut self.task).await;
    }

    /// An endpoint is gone.
    pub fn gone(&self, id: EndpointId) {
        self.wanted.send_if_modified(|wanted| wanted.endpoints.remove(&id).is_some());
    }
}

impl Drop for KvEvents {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Running {
    /// As wanted; 0 if it is over.
    life: u64,
    plan: Plan,
    task: JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Supervisor {
    outlet: Outlet,
    running: BTreeMap<EndpointId, Running>,
    models: Vec<(ModelSpec, u64)>,
}

impl Supervisor {
    async fn run(mut self, mut wanted: watch::Receiver<Wanted>) {
        let mut incarnations = 0;
        loop {
            let now = wanted.borrow_and_update().clone();
            if self.follow(now, &mut incarnations).await.is_err() {
                return;
            }
            tokio::select! {
                changed = wanted.changed() => if changed.is_err() { return },
                () = self.outlet.closed() => return,
            }
        }
    }

    async fn follow(&mut self, wanted: Wanted, incarnations: &mut u64) -> Result<(), Gone> {
        if self.models != wanted.models {
            self.models.clone_from(&wanted.models);
            let models = load(wanted.models).await;
            // What was indexed with other models is of no use to these: all begin another life.
            for running in self.running.values_mut() {
                running.task.abort();
                running.life = 0;
            }
            self.outlet.order(Order::Models(models)).await?;
        }
        let mut plans: BTreeMap<EndpointId, (WantedEndpoint, Plan)> = wanted
            .endpoints
            .into_iter()
            .filter_map(|(id, endpoint)| {
                let plan = Plan::of(&endpoint.spec, &wanted.documents)?;
                Some((id, (endpoint, plan)))
            })
            .collect();
        let stale: Vec<EndpointId> =
            self.running.keys().filter(|id| !plans.contains_key(id)).copied().collect();
        for id in stale {
            self.running.remove(&id);
            self.outlet.order(Order::Forget(id)).await?;
        }
        plans.retain(|id, (endpoint, plan)| {
            let running = self.running.get(id);
            !running.is_some_and(|running| running.life == endpoint.life && running.plan == *plan)
        });
        for (id, (endpoint, plan)) in plans {
            // Its reports are not heard any more once the order is taken.
            self.running.remove(&id);
            *incarnations = incarnations.saturating_add(1);
            let name = endpoint.spec.full_name();
            let following = Following {
                endpoint: id,
                incarnation: *incarnations,
                name: name.clone(),
                model: plan.model.clone(),
                lower_tier_percent: plan.lower_tier_percent,
            };
            self.outlet.order(Order::Follow(following)).await?;
            let task = EndpointTask {
                id,
                incarnation: *incarnations,
                name,
                address: endpoint.spec.address,
                plan: plan.clone(),
                outlet: self.outlet.clone(),
            };
            let task = tokio::spawn(task.run());
            self.running.insert(id, Running { life: endpoint.life, plan, task });
        }
        Ok(())
    }
}

/// Loads models. One that does not load is left out: its prompts stay approximate.
async fn load(specs: Vec<(ModelSpec, u64)>) -> Vec<Arc<EventModel>> {
    let mut models = Vec::new();
    for (spec, _) in specs {
        let folder = spec.folder.clone();
        // A file that makes the tokenizer's code panic costs this model only.
        let loaded = tokio::task::spawn_blocking(move || Tokenizer::load(&folder)).await;
        let error = match loaded {
            Ok(Ok(tokenizer)) => {
                info!(model = spec.name, ids = tokenizer.tokens.len(), "model loaded");
                models.push(Arc::new(event_model(spec, tokenizer)));
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        error!(model = spec.name, error, "model not loaded: its prompts stay approximate");
    }
    models
}

fn event_model(spec: ModelSpec, tokenizer: Tokenizer) -> EventModel {
    let files = tokenizer.files;
    let record = ModelRecord {
        name: spec.name,
        aliases: spec.aliases,
        adapters: spec.adapters,
        stream: files.stream,
        template: files.template.unwrap_or_default(),
        tool_template: files.tool_template,
        special_tokens: files.special_tokens,
        completion_prefix: files.completion_prefix,
        nfc: files.nfc,
    };
    EventModel { record, tokens: tokenizer.tokens, encoder: Box::new(tokenizer.encoder) }
}

#[cfg(test)]
mod tests;
