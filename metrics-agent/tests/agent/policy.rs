//! The compiled configuration: when it reaches the filters, and what Envoy has by then.

use crate::engine::{Engine, good};
use crate::http;
use crate::reader::{Reader, Row};
use crate::run::{Agent, Folder, options};
use serde_json::Value;
use std::time::Duration;

fn pool(name: &str) -> String {
    format!(
        "---\napiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {{name: {name}, namespace: serving}}\n\
         spec:\n  selector: {{matchLabels: {{variant: {name}}}}}\n  targetPorts: [{{number: 8000}}]\n  \
         appProtocol: http\n"
    )
}

fn route(share: u32) -> String {
    let backend = |name: &str, weight: u32| {
        format!(
            "    - {{group: inference.networking.k8s.io, kind: InferencePool, name: {name}, weight: {weight}}}\n"
        )
    };
    let backends = [backend("old", 100 - share), backend("new", share)].concat();
    format!(
        "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: r, namespace: serving}}\n\
         spec:\n  rules:\n  - backendRefs:\n{backends}"
    )
}

fn endpoint(name: &str, variant: &str, engine: &Engine) -> String {
    let (ip, port) = (engine.address.ip(), engine.address.port());
    format!(
        "- {{name: {name}, namespace: serving, address: '{ip}', port: {port}, labels: {{variant: {variant}}}}}\n"
    )
}

fn weights(reader: &Reader) -> Vec<u32> {
    let rules = reader.policy.iter().flat_map(|policy| &policy.routing.rules);
    rules.flat_map(|rule| &rule.backends).map(|backend| backend.weight).collect()
}

fn file(folder: &Folder, name: &str) -> Value {
    let text = std::fs::read(folder.path(&format!("eds/{name}"))).unwrap();
    serde_json::from_slice(&text).expect("always a whole file")
}

fn names(response: &Value, field: &str) -> Vec<String> {
    let resources = response["resources"].as_array().unwrap().iter();
    resources.map(|resource| resource[field].as_str().unwrap().to_owned()).collect()
}

fn ports(response: &Value) -> Vec<u64> {
    let hosts = response["resources"][0]["endpoints"][0]["lb_endpoints"].as_array().unwrap().iter();
    let port = |host: &Value| host["endpoint"]["address"]["socket_address"]["port_value"].as_u64();
    hosts.filter_map(port).collect()
}

#[tokio::test]
async fn the_first_table_has_a_policy_also_without_any_configuration() {
    let folder = Folder::new();
    let agent = Agent::over(&folder, "endpoints: []").await;
    agent.until("/readyz", "ready", |text| text == "ok\n").await;
    assert_eq!(file(&folder, "clusters.json")["resources"], serde_json::json!([]));
    let mut reader = Reader::new(agent.address);
    reader.poll(0).await;
    let policy = reader.policy.unwrap();
    assert_eq!((policy.pools.len(), policy.schedulers.len()), (0, 1));
    assert_eq!(policy.schedulers[0].profiles[0].scorers.len(), 3);
}

#[tokio::test]
async fn a_pool_without_endpoints_is_a_configuration() {
    let folder = Folder::new();
    let agent = Agent::over(&folder, &pool("old")).await;
    agent.until("/readyz", "ready", |text| text == "ok\n").await;
    let mut reader = Reader::new(agent.address);
    reader.poll(0).await;
    let policy = reader.policy.unwrap();
    assert_eq!(
        (policy.pools[0].name.as_str(), policy.pools[0].cluster.as_str()),
        ("serving/old", "pool")
    );
    assert_eq!(policy.routing.default_pool, Some(0));
}

#[tokio::test]
async fn several_pools_are_clusters_before_the_policy_names_them() {
    let engines = [Engine::up(good(1, 0)).await, Engine::up(good(1, 0)).await];
    let folder = Folder::new();
    let mut lists = "endpoints:\n".to_owned();
    lists += &endpoint("a", "old", &engines[0]);
    folder.write("pool.yaml", &format!("{lists}{}", pool("old")));
    let mut options = options(&folder);
    options.fleet.linger = Duration::from_secs(3600);
    let agent = Agent::start(options).await;
    let mut reader = Reader::new(agent.address);
    reader.until("one pool", |r| r.rows.len() == 1).await;
    assert_eq!(reader.rows.values().next().unwrap().record.pools, ["serving/old"]);

    lists += &endpoint("b", "new", &engines[1]);
    folder.write("pool.yaml", &format!("{lists}{}{}{}", pool("old"), pool("new"), route(10)));
    let always = |r: &Reader| {
        let policy = r.policy.as_ref().unwrap();
        for name in policy.pools.iter().map(|pool| &pool.cluster) {
            assert!(folder.path(&format!("eds/{name}.json")).is_file(), "{name}");
        }
        if policy.pools.len() > 1 {
            let named =
                |r: &Reader| r.rows.values().filter(|row| !row.record.pools.is_empty()).count();
            assert!(named(r) >= 1, "its pools have endpoints");
        }
    };
    reader.until_with("two pools", always, |r| weights(r) == [90, 10] && r.rows.len() == 2).await;
    let clusters: Vec<_> =
        reader.policy.iter().flat_map(|p| &p.pools).map(|p| p.cluster.clone()).collect();
    assert_eq!(clusters, ["serving.old", "serving.new"]);
    let of_file = file(&folder, "clusters.json");
    assert_eq!(names(&of_file, "name"), ["serving.new", "serving.old"]);
    assert_eq!(ports(&file(&folder, "serving.new.json")), [u64::from(engines[1].address.port())]);
    assert_eq!(ports(&file(&folder, "serving.old.json")), [u64::from(engines[0].address.port())]);
    assert_eq!(ports(&file(&folder, "pool.json")).len(), 2, "the cluster of all");

    let (status, body) = http::post(agent.address, "/v3/discovery:clusters", "{}").await;
    let over_http: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, names(&over_http, "name")), (200, names(&of_file, "name")));
    let ask = r#"{"resource_names":["serving.new"]}"#;
    let (_, body) = http::post(agent.address, "/v3/discovery:endpoints", ask).await;
    let hosts: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(names(&hosts, "cluster_name"), ["serving.new"]);
}

#[tokio::test]
async fn a_bad_file_among_good_ones_is_refused_and_the_old_behaviour_stays() {
    let engine = Engine::up(good(1, 0)).await;
    let folder = Folder::new();
    std::fs::create_dir(folder.path("conf")).unwrap();
    folder.write("conf/endpoints.yaml", &format!("endpoints:\n{}", endpoint("a", "old", &engine)));
    folder.write("conf/pools.yaml", &[pool("old"), pool("new")].concat());
    folder.write("conf/route.yaml", &route(10));
    let mut options = options(&folder);
    options.config = folder.path("conf");
    let agent = Agent::start(options).await;
    let mut reader = Reader::new(agent.address);
    reader.until("first", |r| weights(r) == [90, 10] && r.rows.len() == 1).await;

    // In one step: a route that would be good, and a picker that is not.
    let picker = "---\napiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: queue-scorrer}]\n";
    folder.write("conf/route.yaml", &format!("{}{picker}", route(20)));
    let refused = "\nwarmroute_agent_config_refused 1\n";
    agent.until("/metrics", "refused", |text| text.contains(refused)).await;
    reader.poll(0).await;
    assert_eq!(weights(&reader), [90, 10]);
    assert!(reader.rows.values().all(|row| Row::waiting(row) == Some(0.0)), "still scraped");

    folder.write("conf/route.yaml", &route(30));
    reader.until("good again", |r| weights(r) == [70, 30]).await;
    assert_eq!(reader.snapshots, 1);
}
