//! What Envoy is given, and in which order compared with the stream.

use crate::engine::{Engine, good};
use crate::http;
use crate::reader::Reader;
use crate::run::{Agent, Folder, LIMIT, list, list_of, options};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// Addresses in a DiscoveryResponse.
fn addresses(response: &Value) -> Vec<String> {
    let hosts = response["resources"][0]["endpoints"][0]["lb_endpoints"].as_array().unwrap();
    hosts
        .iter()
        .map(|host| {
            let socket = &host["endpoint"]["address"]["socket_address"];
            format!("{} {}", socket["address"].as_str().unwrap(), socket["port_value"])
        })
        .collect()
}

fn in_file(folder: &Folder) -> Vec<String> {
    let text = std::fs::read(folder.path("eds/pool.json")).unwrap();
    let response: Value = serde_json::from_slice(&text).expect("always a whole file");
    assert_eq!(response["resources"][0]["cluster_name"], "pool");
    addresses(&response)
}

fn shown(engine: &Engine) -> String {
    format!("127.0.0.1 {}", engine.address.port())
}

async fn until_file(folder: &Folder, wanted: impl Fn(&[String]) -> bool) {
    let found = tokio::time::timeout(LIMIT, async {
        while !wanted(&in_file(folder)) {
            tokio::task::yield_now().await;
        }
    });
    found.await.unwrap_or_else(|_| panic!("the file stayed {:?}", in_file(folder)));
}

#[tokio::test]
async fn the_file_is_there_before_anything_is_served_and_has_the_dead_too() {
    let (a, dead) = (Engine::up(good(1, 0)).await, Engine::down(good(1, 0)));
    let folder = Folder::new();
    let agent = Agent::over(&folder, &list_of(&[("a", &a), ("dead", &dead)])).await;
    http::get(agent.address, "/healthz").await;
    let mut expected = vec![shown(&a), shown(&dead)];
    expected.sort();
    assert_eq!(in_file(&folder), expected);
    let mut reader = Reader::new(agent.address);
    reader.until("out", |r| r.get("dead").is_some_and(crate::reader::Row::is_out)).await;
    assert_eq!(in_file(&folder), expected);
}

#[tokio::test]
async fn envoy_gets_a_new_host_before_the_stream_tells_it() {
    let a = Engine::up(good(1, 0)).await;
    let folder = Folder::new();
    folder.write("pool.yaml", "endpoints: []");
    let mut options = options(&folder);
    options.fleet.settle = HOUR;
    let agent = Agent::start(options).await;
    agent.until("/readyz", "ready", |text| text == "ok\n").await;
    folder.write("pool.yaml", &list_of(&[("a", &a)]));
    until_file(&folder, |hosts| hosts == [shown(&a)]).await;
    agent.until("/v1/endpoints", "scraped", |text| text.contains("\"ready\"")).await;
    let mut reader = Reader::new(agent.address);
    reader.poll(0).await;
    assert!(reader.rows.is_empty());
}

#[tokio::test]
async fn a_removed_host_leaves_the_stream_before_envoy() {
    let (a, b) = (Engine::up(good(1, 0)).await, Engine::up(good(1, 0)).await);
    let folder = Folder::new();
    folder.write("pool.yaml", &list_of(&[("a", &a), ("b", &b)]));
    let mut long = options(&folder);
    long.fleet.linger = HOUR;
    let agent = Agent::start(long).await;
    let mut reader = Reader::new(agent.address);
    reader.until("both", |r| r.rows.len() == 2).await;
    folder.write("pool.yaml", &list_of(&[("b", &b)]));
    reader.until("a gone", |r| r.get("a").is_none()).await;
    assert!(in_file(&folder).contains(&shown(&a)));
    agent.stop().await.unwrap();

    folder.write("pool.yaml", &list_of(&[("a", &a), ("b", &b)]));
    let agent = Agent::start(options(&folder)).await;
    let mut reader = Reader::new(agent.address);
    reader.until("both", |r| r.rows.len() == 2).await;
    folder.write("pool.yaml", &list_of(&[("b", &b)]));
    until_file(&folder, |hosts| hosts == [shown(&b)]).await;
    reader.poll(0).await;
    assert!(reader.get("a").is_none(), "what left Envoy had left the stream");
}

#[tokio::test]
async fn rest_xds_answers_the_same_as_the_file() {
    let v6: SocketAddr = "[fd00::1]:8000".parse().unwrap();
    let folder = Folder::new();
    let agent = Agent::over(&folder, &list(&[("v6", v6)])).await;
    let path = "/v3/discovery:endpoints";
    let ask = r#"{"node":{"id":"e"},"resource_names":["pool"],"type_url":"x","version_info":""}"#;
    let (status, body) = http::post(agent.address, path, ask).await;
    let response: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, addresses(&response)), (200, in_file(&folder)));
    assert_eq!(addresses(&response), ["fd00::1 8000"]);
    let (status, body) = http::post(agent.address, path, r#"{"resource_names":["other"]}"#).await;
    let none: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, &none["resources"]), (200, &serde_json::json!([])));
    assert_eq!(http::post(agent.address, path, "not json").await.0, 400);
}
