use super::*;
use crate::config::source::Source;
use crate::kv_events::inbox::Message;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;

/// A supervisor whose orders are looked at.
struct Bench {
    handle: KvEvents,
    wanted: watch::Receiver<Wanted>,
    supervisor: Supervisor,
    inbox: mpsc::Receiver<Message>,
    incarnations: u64,
}

impl Bench {
    fn new() -> Self {
        let (outlet, inbox) = Outlet::new();
        let (sender, wanted) = watch::channel(Wanted::default());
        let handle = KvEvents { wanted: sender, task: tokio::spawn(async {}) };
        let supervisor = Supervisor { outlet, running: BTreeMap::new(), models: Vec::new() };
        Self { handle, wanted, supervisor, inbox, incarnations: 0 }
    }

    /// The orders that the newest wishes lead to.
    async fn orders(&mut self) -> Vec<String> {
        let now = self.wanted.borrow_and_update().clone();
        self.supervisor.follow(now, &mut self.incarnations).await.unwrap();
        let mut orders = Vec::new();
        while let Ok(message) = self.inbox.try_recv() {
            let Message::Order(order) = message else { continue };
            orders.push(match order {
                Order::Models(models) => format!("{} models", models.len()),
                Order::Follow(f) => format!("follow {} as {}", f.name, f.incarnation),
                Order::Forget(id) if id == spec("a").id() => "forget a".into(),
                Order::Forget(_) => "forget another".into(),
            });
        }
        orders
    }
}

fn spec(name: &str) -> EndpointSpec {
    EndpointSpec {
        namespace: "n".into(),
        name: name.into(),
        // Discard: nothing listens there.
        address: "127.0.0.1:9".parse().unwrap(),
        labels: BTreeMap::new(),
        pools: Vec::new(),
    }
}

fn labelled(name: &str, port: &str) -> EndpointSpec {
    let label = crate::config::kv_events::PORT_LABEL.to_owned();
    EndpointSpec { labels: BTreeMap::from([(label, port.into())]), ..spec(name) }
}

fn with_documents(models: Vec<ModelSpec>) -> Configuration {
    let kv_events = vec![KvEventsSpec::default()];
    Configuration { kv_events, models, ..Configuration::default() }
}

const NOTHING: [&str; 0] = [];

#[tokio::test]
async fn exactly_what_the_fleet_has_is_followed_and_each_life_apart() {
    let mut bench = Bench::new();
    bench.handle.seen(&spec("a"), 1);
    assert_eq!(bench.orders().await, NOTHING, "no document is about it");
    bench.handle.configure(&with_documents(Vec::new()));
    assert_eq!(bench.orders().await, ["follow n/a as 1"]);
    bench.handle.seen(&spec("a"), 1);
    bench.handle.configure(&with_documents(Vec::new()));
    assert!(!bench.wanted.has_changed().unwrap());
    bench.handle.seen(&spec("a"), 2);
    assert_eq!(bench.orders().await, ["follow n/a as 2"], "the engine restarted");
    bench.handle.gone(spec("a").id());
    bench.handle.seen(&spec("a"), 2);
    assert_eq!(bench.orders().await, ["follow n/a as 3"], "removed and there again");
    bench.handle.seen(&labelled("a", "7"), 2);
    assert_eq!(bench.orders().await, ["follow n/a as 4"], "its events come from elsewhere");
    bench.handle.gone(spec("a").id());
    bench.handle.gone(spec("a").id());
    assert_eq!(bench.orders().await, ["forget a"]);
    assert_eq!(bench.orders().await, NOTHING);
}

#[tokio::test]
async fn an_endpoint_that_is_not_selected_any_more_is_forgotten() {
    let mut bench = Bench::new();
    bench.handle.configure(&with_documents(Vec::new()));
    bench.handle.seen(&spec("a"), 1);
    bench.handle.seen(&labelled("b", "7"), 1);
    assert_eq!(bench.orders().await.len(), 2);
    bench.handle.configure(&Configuration::default());
    assert_eq!(bench.orders().await, ["forget a"]);
}

/// A picker's events of the engines of a pool of this name, as a configuration has them.
fn with_pool(pool: &str) -> Configuration {
    let text = format!(
        "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {{name: {pool}, namespace: n}}\n\
         spec: {{selector: {{matchLabels: {{app: a}}}}, targetPorts: [{{number: 9}}]}}\n---\n\
         apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n\
         plugins: [{{type: precise-prefix-cache-producer}}]\n---\n\
         endpoints: [{{name: a, namespace: n, address: 127.0.0.1, port: 9, labels: {{app: a}}}}]\n"
    );
    let sources = [Source { path: "c.yaml".into(), text }];
    Configuration::from_sources(Path::new("c"), &sources).unwrap()
}

#[tokio::test]
async fn a_renamed_pool_leaves_what_is_known_of_its_caches() {
    let mut bench = Bench::new();
    let (before, after) = (with_pool("p"), with_pool("q"));
    bench.handle.configure(&before);
    bench.handle.seen(&before.endpoints[0], 1);
    assert_eq!(bench.orders().await, ["follow n/a as 1"]);
    // The endpoint is seen with its new pools only at its next scrape.
    bench.handle.configure(&after);
    assert_eq!(bench.orders().await, NOTHING);
    bench.handle.seen(&after.endpoints[0], 1);
    assert_eq!(bench.orders().await, NOTHING);
}

#[tokio::test]
async fn other_models_begin_everything_anew_and_one_that_does_not_load_is_left_out() {
    let mut bench = Bench::new();
    bench.handle.configure(&with_documents(Vec::new()));
    bench.handle.seen(&spec("a"), 1);
    bench.handle.seen(&spec("b"), 1);
    let mut orders = bench.orders().await;
    orders.sort();
    assert_eq!(orders.len(), 2);
    let model = ModelSpec {
        name: "m".into(),
        aliases: Vec::new(),
        adapters: Vec::new(),
        folder: PathBuf::from("no-such-folder"),
    };
    bench.handle.gone(spec("a").id());
    bench.handle.configure(&with_documents(vec![model]));
    let orders = bench.orders().await;
    assert_eq!(orders, ["0 models", "forget a", "follow n/b as 3"]);
}
